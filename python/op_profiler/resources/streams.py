"""The resource ``streams``: streams of a GPU, which the collector reports and cannot set."""

from __future__ import annotations

import contextlib

from op_profiler.resources.nvml import bus_id
from op_profiler.resources.resource import Resource, ResourceError

_MOST = 128
"""Largest number of kernels that a GPU of compute capability 7.0 or later runs at once (CUDA C++ Programming Guide,
technical specifications per compute capability)."""

_REASON = "the collector runs one kernel after the other, on one stream; a plan uses several"


class Streams(Resource):
    """Number of streams of a GPU. A stream is a queue of kernels; kernels of different streams may run side by side."""

    name = "streams"
    of_gpu = True

    def range(self) -> dict[str, int]:
        """Return 1 to 128 streams. Raise ResourceError without a GPU."""
        bus_id()
        return {"least": 1, "most": _MOST}

    def read(self) -> int:
        """Return 1: the collector launches on one stream."""
        bus_id()
        return 1

    def check_settable(self) -> None:
        """Raise ResourceError: the collector uses one stream only."""
        raise ResourceError(_REASON)

    def applied(self, value: int) -> contextlib.AbstractContextManager[None]:
        """Raise ResourceError: the collector uses one stream only."""
        raise ResourceError(_REASON)
