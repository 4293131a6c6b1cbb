"""The resource ``core_set``: the cores that threads are bound to."""

from __future__ import annotations

import re

from op_profiler.cores import available_cores
from op_profiler.errors import UsageError
from op_profiler.resources.resource import PoolResource


class CoreSet(PoolResource):
    """The cores to which the threads of a kernel are bound; n threads use the first n of them."""

    name = "core_set"

    def range(self) -> list[int]:
        """Return the cores that this process may use."""
        return list(available_cores())

    def read(self) -> list[int]:
        """Return the cores that this process may use; threads are bound for each run."""
        return list(available_cores())

    def parse(self, text: str) -> tuple[int, ...]:
        """Parse cores separated by ``+``, with ranges by ``-``: ``0-3+6`` is 0, 1, 2, 3 and 6."""
        cores: list[int] = []
        for part in text.split("+"):
            found = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
            if found is None:
                raise UsageError(f"--sweep core_set: {text!r} is no set of cores; write it like 0, 0-3 or 0+2")
            cores += range(int(found[1]), int(found[2] or found[1]) + 1)
        strange = sorted(set(cores) - set(self.range()))
        if strange or not cores:
            what = f"cores {strange} are not there" if strange else f"{text!r} holds no core"
            raise UsageError(f"--sweep core_set: {what}; this process may use {self.range()}")
        return tuple(dict.fromkeys(cores))
