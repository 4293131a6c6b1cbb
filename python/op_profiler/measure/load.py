"""Foreign load: the share of the machine that others used while something was measured."""

from __future__ import annotations

import os
import time

import psutil


class LoadMeter:
    """Cores that other processes (or the hypervisor) took, between two readings.

    The kernel counts processor time in ticks of 10 ms, so a reading over less than `minimum_seconds` says nothing and
    is answered with None.
    """

    minimum_seconds = 0.1

    def __init__(self) -> None:
        self._process = psutil.Process(os.getpid())
        self._last = self._read()

    def _read(self) -> tuple[float, float, float]:
        total = psutil.cpu_times()
        busy = sum(getattr(total, f, 0.0) for f in ("user", "system", "nice", "irq", "softirq", "steal"))
        own = self._process.cpu_times()
        return time.monotonic(), busy, own.user + own.system

    def elapsed_seconds(self) -> float:
        """Seconds since the last reading."""
        return time.monotonic() - self._last[0]

    def foreign_cores(self) -> float | None:
        """Cores' worth of foreign work since the last reading (0.05 = 5 % of one core); None if read too soon."""
        now = self._read()
        wall = now[0] - self._last[0]
        if wall < self.minimum_seconds:
            return None
        foreign = (now[1] - self._last[1]) - (now[2] - self._last[2])
        self._last = now
        return max(foreign / wall, 0.0)
