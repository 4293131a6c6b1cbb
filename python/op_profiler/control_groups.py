"""Processor and memory limits of the control groups (cgroups) of this process: containers, slices, services.

Every group on the way from the process to the root limits it, so the smallest limit holds. Both interfaces of the
kernel are read: cgroup v2 (one hierarchy) and v1 (one hierarchy for each controller).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

_PROCESS = Path("/proc/self")


def processor_quota() -> float | None:
    """Return the number of cores whose time this process may use; None without a limit."""
    quotas = []
    for group in _groups("cpu"):
        with contextlib.suppress(OSError, ValueError):
            quota, period = (group / "cpu.max").read_text().split()
            quotas.append(int(quota) / int(period))  # "max" is no number
        with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            quotas.append(int(quota) / int(period))
    return min((quota for quota in quotas if quota > 0), default=None)  # v1 writes -1 for no limit


def memory_limit() -> int | None:
    """Return the memory limit of the control groups of this process, in bytes; None without a limit."""
    limits = []
    for group in _groups("memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                limits.append(int((group / name).read_text()))
    return min(limits, default=None)


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folder of each group that this process is in, of v2 and of v1's hierarchy of a controller."""
    own: dict[str, str] = {}
    for line in _lines("cgroup"):  # 4:cpu,cpuacct:/system.slice, or 0::/system.slice
        _, controllers, group = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), group)
    for line in _lines("mountinfo"):
        mounted, _, filesystem = line.partition(" - ")
        root, place = (Path(field) for field in mounted.split()[3:5])
        kind, *_, options = filesystem.split()
        if kind == "cgroup2":
            path = own.get("")
        elif kind == "cgroup" and controller in options.split(","):
            path = own.get(controller)
        else:
            continue
        if path is None:
            continue
        # A container may see its own group as the root of the hierarchy, under a path of the host or under "/".
        below = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
        yield from (place / part for part in (below, *below.parents) if ".." not in part.parts)


def _lines(name: str) -> list[str]:
    try:
        return (_PROCESS / name).read_text().splitlines()
    except OSError:
        return []
