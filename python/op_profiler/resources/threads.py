"""The resource ``threads``: the number of threads that run a kernel."""

from __future__ import annotations

from op_profiler.cores import available_cores
from op_profiler.resources.resource import PoolResource


class ThreadsResource(PoolResource):
    """Number of cores among which a kernel is divided; the option ``--threads`` of the collector."""

    name = "threads"

    def range(self) -> dict[str, int]:
        """Return 1 to the number of cores that this process may use."""
        return {"least": 1, "most": len(available_cores())}

    def read(self) -> int:
        """Return the number of cores that this process may use."""
        return len(available_cores())
