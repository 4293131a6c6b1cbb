"""Reads the background load of a processor during a measurement."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from op_profiler.cores import siblings

MINIMUM_SECONDS = 0.1
_LEAST_CORES, _SHARE = 0.15, 0.02
_SHARE_ELSEWHERE = 0.25
_BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal of a line of /proc/stat; user includes guests


@dataclasses.dataclass(frozen=True)
class ForeignLoad:
    """Background load between two readings of a `LoadMeter`.

    Attributes:
        share: share of the used cores, or of the GPU, that other processes took, 0 to 1; None if unknown.
        disturbs: whether the load was high enough to change times.
    """

    share: float | None
    disturbs: bool


class LoadMeter(Protocol):
    """A meter that reads background load."""

    def read(self) -> ForeignLoad | None:
        """Return the background load since the last reading; None if the last reading was too recent."""


@dataclasses.dataclass(frozen=True)
class CoreLoad:
    """Background load as the number of cores that other processes kept busy.

    Attributes:
        near: load on the near cores: the cores in use and those that share a physical core with one of them.
        near_cores: number of near cores.
        elsewhere: load on all other cores.
        elsewhere_cores: number of all other cores.
    """

    near: float
    near_cores: int
    elsewhere: float
    elsewhere_cores: int


class CoreMeter:
    """A `LoadMeter` of this machine's processor: it reads the processor time of other processes and the hypervisor.

    On the used cores, background load disturbs above 0.15 cores (or above 2 % of the cores if that is more, because a
    large server always runs daemons). Load on other cores shares only the memory with the measurement, so it disturbs
    above a quarter of these cores.

    Args:
        cores: numbers of the used cores; this process has to run on them.
        processes: numbers of other processes that belong to the measurement and therefore do not count as load.
        proc, sysfs: roots of Linux's files.
    """

    def __init__(
        self,
        cores: Collection[int],
        *,
        processes: Sequence[int] = (),
        proc: Path = Path("/proc"),
        sysfs: Path = Path("/sys"),
    ) -> None:
        self._cores = len(set(cores))
        self._processes = [psutil.Process(number) for number in processes]
        self._stat = proc / "stat"
        self._near = {near for core in cores for near in siblings(core, sysfs)}
        self._last = self._now()

    def _now(self) -> tuple[float, dict[int, float], float]:
        own = [os.times(), *(process.cpu_times() for process in self._processes)]
        return time.monotonic(), _busy_seconds(self._stat.read_text()), sum(one.user + one.system for one in own)

    def cores(self) -> CoreLoad | None:
        """Return the load since the last reading; None if the last reading was less than `MINIMUM_SECONDS` ago.

        Linux counts processor time in ticks of 10 ms, so shorter intervals are too inaccurate.
        """
        now = self._now()
        seconds = now[0] - self._last[0]
        if seconds < MINIMUM_SECONDS:
            return None
        busy = {core: now[1][core] - self._last[1].get(core, now[1][core]) for core in now[1]}
        own = now[2] - self._last[2]
        self._last = now
        near = [taken for core, taken in busy.items() if core in self._near]
        elsewhere = [taken for core, taken in busy.items() if core not in self._near]
        return CoreLoad(
            max((sum(near) - own) / seconds, 0.0), len(near), max(sum(elsewhere) / seconds, 0.0), len(elsewhere)
        )

    def read(self) -> ForeignLoad | None:
        """Return the background load since the last reading; None if it was less than `MINIMUM_SECONDS` ago."""
        load = self.cores()
        if load is None:
            return None
        disturbs = load.near > max(_LEAST_CORES, _SHARE * self._cores)
        disturbs |= load.elsewhere > _SHARE_ELSEWHERE * load.elsewhere_cores
        return ForeignLoad(min(load.near / max(load.near_cores, 1), 1.0), disturbs)


def _busy_seconds(text: str) -> dict[int, float]:
    """Return the seconds in which each core was not idle, by core, from the text of /proc/stat (see proc_stat(5)).

    The file leaves out offline cores.
    """
    tick = os.sysconf("SC_CLK_TCK")
    found = {}
    for line in text.splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            found[int(name[3:])] = sum(int(fields[i]) for i in _BUSY if i < len(fields)) / tick
    return found
