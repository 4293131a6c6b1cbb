"""The cores that this process may use."""

from __future__ import annotations

import contextlib
import functools
import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


@functools.cache
def available_cores() -> tuple[int, ...]:
    """Numbers of the cores that this process may use; as they were when first asked, since pools bind their threads."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def unbind() -> None:
    """Let this thread, and what it starts from now on, run on all available cores: a pool may have bound it to few."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, available_cores())


def usable_cores() -> int:
    """Cores that this process can keep busy, not those of the machine.

    They are those that it may run on (its affinity at its start), and no more than its container is given time of:
    threads beyond that would be stopped again and again.
    """
    there = len(available_cores())
    quota = _quota()
    return there if quota is None else max(min(there, int(quota)), 1)


def _quota() -> float | None:
    """Cores whose time this container has; None for no limit.

    The kernel's two interfaces are cgroup v2's ``cpu.max`` and v1's ``cpu.cfs_quota_us``: microseconds in a period.
    """
    with contextlib.suppress(OSError, ValueError):
        quota, period = (_CGROUPS / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError):
        of, given = (int((_CGROUPS / "cpu" / f"cpu.cfs_{name}_us").read_text()) for name in ("period", "quota"))
        return given / of if given > 0 else None
    return None
