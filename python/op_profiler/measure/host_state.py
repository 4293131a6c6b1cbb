"""The state of the host below a virtual machine: cores without a common cache, and shared physical cores.

A hypervisor moves the virtual cores of a guest between physical ones. For seconds to minutes two of them may share no
cache: data that one wrote then takes five times as long to the other, and kernels that read what their neighbours on
other cores wrote take two to four times as long. Neither arithmetic nor memory gets slower. So a kernel that does
nothing but read what the other cores wrote is timed beside the rounds.

Or two of them share one physical core, with one another or with another guest: arithmetic then takes up to twice as
long. The compute kernel of the steadiness probe tells.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from op_profiler.cache import cache_folder
from op_profiler.files import atomic_file
from op_profiler.measure.disturbance import APART, SHARED
from op_profiler.measure.measurement import Device
from op_profiler.measure.quiet_rounds import scatter
from op_profiler.measure.steadiness import SteadinessProbe

_PERCENT = 100.0
"""Files of usual times hold three decimals."""


_QUIET = 0.25
"""Nobody disturbs most of the time: of all times the quantile that tells how long the kernel then takes."""
_RUNS_KEPT = 100


class HostState:
    """Whether the cores are apart, or shared, more than they usually are.

    Args:
        probe: has the kernels.
        device: the machine.
        threads: thread counts of the run. The largest exchanges data; at one thread nothing is exchanged.
    """

    def __init__(self, probe: SteadinessProbe, device: Device, threads: Sequence[int]) -> None:
        self._probe = probe
        self._most = max(threads)
        self._computing = {n: UsualTime(device, n, "compute", probe.sizes_bytes[0]) for n in threads}
        self._scatter = {n: UsualTime(device, n, "scatter", probe.sizes_bytes[0]) for n in threads}
        self._exchanging = UsualTime(device, self._most, "exchange", probe.exchanged_bytes)

    def exchanged_us(self) -> list[float]:
        """One reading of how long data takes between cores, microseconds, where the largest thread count is set; none
        where that is 1."""
        if self._most == 1:
            return []
        self._exchanging.add(time_us := self._probe.exchanged_us())
        return [time_us]

    def add(self, computed_us: Mapping[int, float]) -> None:
        """Readings of the compute kernel by thread count, microseconds."""
        for threads, time_us in computed_us.items():
            self._computing[threads].add(time_us)

    def disturbs(self, computed_us: Mapping[int, float], exchanged_us: Sequence[float]) -> bool:
        """Whether the cores were further apart, or slower, than usual while this was read."""
        apart = any(self._exchanging.exceeded(time_us, APART) for time_us in exchanged_us)
        return apart or any(self._computing[n].exceeded(time_us, SHARED) for n, time_us in computed_us.items())

    def noise(self, threads: int) -> float:
        """Noise of this machine at a thread count: the usual scatter of the compute kernel over the windows of a run,
        as the standard deviation of its logarithm. 0 before the first run of enough windows."""
        return (self._scatter[threads].usual_us or 0.0) / _PERCENT

    def keep(self) -> None:
        """Leave what was read to later runs."""
        for threads, computing in self._computing.items():
            found = scatter(np.log(computing.times_us))
            if found is not None:
                self._scatter[threads].add(_PERCENT * found)
        for usual in (self._exchanging, *self._computing.values(), *self._scatter.values()):
            usual.keep()

    def told(self, threads: int, exchanged_us: Sequence[float]) -> dict[str, Any]:
        """Return what the dataset stores of a run at a thread count, in microseconds: the usual times, and medians of
        readings that are not stored otherwise."""
        usual_us, near_us = self._computing[threads].usual_us, self._exchanging.usual_us
        found = {} if usual_us is None else {"compute_usual_us": round(usual_us, 3)}
        if not exchanged_us or near_us is None:
            return found
        return found | {
            "exchange_us": round(float(np.median(exchanged_us)), 3),
            "exchange_near_us": round(near_us, 3),
        }


class UsualTime:
    """Times of one kernel at one thread count: of this run, and one of each run before it (a file in the cache folder).

    A run counts once, however often it reads: one that waits for a quiet moment reads many others.

    Args:
        device: the machine.
        threads: that are set.
        kernel: its name.
        size_bytes: of its data; times of another size are others.

    Attributes:
        times_us: the readings of this run.
    """

    def __init__(self, device: Device, threads: int, kernel: str, size_bytes: int) -> None:
        self._path = cache_folder() / "states" / f"{device.key}-{threads}-{kernel}-{size_bytes}.json"
        self._earlier_us = self._read()
        self.times_us: list[float] = []

    @property
    def usual_us(self) -> float | None:
        """Time of the kernel in quiet runs; None before the first reading."""
        runs = self._earlier_us + ([self._of_run_us] if self.times_us else [])
        return float(np.quantile(runs, _QUIET)) if runs else None

    @property
    def _of_run_us(self) -> float:
        return float(np.quantile(self.times_us, _QUIET))

    def add(self, time_us: float) -> None:
        """A reading of this run, microseconds."""
        self.times_us.append(time_us)

    def exceeded(self, time_us: float, factor: float) -> bool:
        """Whether a reading is more than so many times the usual one."""
        usual_us = self.usual_us
        return usual_us is not None and time_us > factor * usual_us

    def keep(self) -> None:
        """Leave what was read to later runs; a cache that cannot be written costs the entry."""
        if not self.times_us:
            return
        runs = [*self._earlier_us, round(self._of_run_us, 3)][-_RUNS_KEPT:]
        try:
            with atomic_file(self._path) as partial:
                partial.write_text(json.dumps(runs))
        except OSError:
            return

    def _read(self) -> list[float]:
        try:
            return [float(time_us) for time_us in json.loads(self._path.read_text())]
        except (OSError, ValueError, TypeError):
            return []
