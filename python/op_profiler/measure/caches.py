"""Sizes of the caches of the cores in use, and sizes of data that exceed them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psutil

from op_profiler.control_groups import memory_limit
from op_profiler.cores import parse_core_list, text_in

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_OF_ALL_MEMORY, _OF_FREE_MEMORY = 32, 2


def caches_in_use_bytes(cores: Iterable[int], *, sysfs: Path = Path("/sys")) -> int:
    """Return the total size of the data caches of these cores in bytes; a shared cache counts once.

    The result is 0 if Linux reports no caches. In a virtual machine, Linux may report the caches of the whole host for
    every core.

    Args:
        cores: numbers of the cores.
        sysfs: root of the kernel's files.
    """
    sizes: dict[tuple[str, frozenset[int]], int] = {}
    for core in cores:
        for cache in (sysfs / f"devices/system/cpu/cpu{core}/cache").glob("index*"):
            if text_in(cache / "type") == "Instruction":
                continue
            size = text_in(cache / "size")
            shared = frozenset({core, *parse_core_list(text_in(cache / "shared_cpu_list"))})
            if size:
                sizes[text_in(cache / "level"), shared] = cache_bytes(size)
    return sum(sizes.values())


def cache_bytes(size: str) -> int:
    """Return the bytes of a size such as ``32K``."""
    return int(size.rstrip("KMG")) * _UNITS.get(size[-1], 1)


def beyond_caches_bytes(wanted_bytes: int) -> int:
    """Return `wanted_bytes`, limited to 1/32 of the installed memory and to half of the free memory.

    The first limit is the same in every run.
    """
    installed = psutil.virtual_memory()
    total = min(installed.total, memory_limit() or installed.total)
    return min(wanted_bytes, total // _OF_ALL_MEMORY, installed.available // _OF_FREE_MEMORY)
