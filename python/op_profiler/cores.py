"""The cores that this process may use."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores() -> int:
    """Cores that this process can keep busy, not those of the machine.

    They are those that it may run on (its affinity), and no more than its container is given time of: threads beyond
    that would be stopped again and again.
    """
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
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
