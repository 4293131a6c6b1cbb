"""The resource ``cache_ways``: ways of the last-level caches, set through resctrl."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from op_profiler.resources.resource import (
    SYSFS,
    Resource,
    ResourceError,
    check_writable,
    read_text,
    restored,
    write_text,
)


class CacheWays(Resource):
    """Number of ways of every L3 cache that the resctrl group of this process may fill.

    The group is inherited from the parent process (https://docs.kernel.org/filesystems/resctrl.html). To give a
    collection ways that no other process fills, start it from a shell in a separate group.

    Args:
        root: where sysfs is mounted, with resctrl below it.
    """

    name = "cache_ways"

    def __init__(self, root: Path = SYSFS) -> None:
        super().__init__(root)
        self._resctrl = root / "fs/resctrl"

    def range(self) -> dict[str, int]:
        """Return the numbers of ways that a group may fill: from the kernel's minimum to the whole cache."""
        if not self._resctrl.is_dir():
            raise ResourceError(f"there is no {self._resctrl}: this kernel or processor has no resctrl")
        info = self._resctrl / "info/L3"
        if not info.is_dir():
            raise ResourceError(f"there is no {info}: resctrl is not mounted, or the L3 cache cannot be divided")
        return {"least": int(read_text(info / "min_cbm_bits")), "most": self._all_ways().bit_count()}

    def _all_ways(self) -> int:
        return int(read_text(self._resctrl / "info/L3/cbm_mask"), 16)

    def _schemata(self) -> Path:
        """Return the schemata of the group of this process."""
        for tasks in sorted(self._resctrl.glob("*/tasks")):
            if str(os.getpid()) in read_text(tasks).split():
                return tasks.with_name("schemata")
        return self._resctrl / "schemata"

    def _masks(self) -> dict[str, int]:
        """Return the ways that may be filled, by number of the cache."""
        found = re.search(r"^\s*L3:(\S+)$", read_text(self._schemata()), re.MULTILINE)
        if found is None:
            raise ResourceError(f"{self._schemata()} has no line for L3")
        masks = (part.split("=") for part in found[1].split(";"))
        return {cache: int(mask, 16) for cache, mask in masks}

    def read(self) -> int:
        """Return the number of ways that the group may fill; if the L3 caches differ, the smallest number."""
        return min(mask.bit_count() for mask in self._masks().values())

    def check_settable(self) -> None:
        """Raise ResourceError if the group's schemata cannot be written."""
        check_writable(self._schemata())

    @contextlib.contextmanager
    def applied(self, value: int) -> Iterator[None]:
        """Assign the `value` lowest-numbered ways of every L3 cache to the group."""
        self.check_settable()
        schemata = self._schemata()
        mask = (1 << value) - 1
        with restored({schemata: read_text(schemata)}):
            write_text(schemata, "L3:" + ";".join(f"{cache}={mask:x}" for cache in self._masks()))
            yield
