"""The state of the host below a virtual machine: cores without a common cache, and shared physical cores.

A hypervisor moves the virtual cores of a guest between physical cores. For seconds to minutes, two of them may share no
cache: data that one core wrote then takes five times as long to reach the other, and kernels that read what other cores
wrote take up to four times as long. Arithmetic and memory are as fast as before. A kernel that only reads what the
other cores wrote is therefore timed in every window.

Two virtual cores, also of different guests, may also share one physical core: arithmetic then takes up to twice as
long, which the arithmetic reference kernel shows.
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
"""Unit of stored scatters, because files of reference times have three decimals."""


_QUIET = 0.25
"""Quantile of all times that is the reference time of a kernel: most times are undisturbed."""
_RUNS_KEPT = 100


class HostState:
    """Detector of cores that share no cache, or share a physical core, more than usual.

    Args:
        probe: the reference kernels.
        device: the machine.
        threads: thread counts of the run. Data is exchanged at the largest, unless that is one thread.
    """

    def __init__(self, probe: SteadinessProbe, device: Device, threads: Sequence[int]) -> None:
        self._probe = probe
        self._most = max(threads)
        self._computing = {n: ReferenceTime(device, n, "compute", probe.sizes_bytes[0]) for n in threads}
        self._scatter = {n: ReferenceTime(device, n, "scatter", probe.sizes_bytes[0]) for n in threads}
        self._exchanging = ReferenceTime(device, self._most, "exchange", probe.exchanged_bytes)

    def exchanged_us(self) -> list[float]:
        """Return one time of the exchange between cores in microseconds, if the largest thread count is set; empty if
        it is 1."""
        if self._most == 1:
            return []
        self._exchanging.add(time_us := self._probe.exchanged_us())
        return [time_us]

    def add(self, computed_us: Mapping[int, float]) -> None:
        """Add times of the arithmetic reference kernel by thread count, microseconds."""
        for threads, time_us in computed_us.items():
            self._computing[threads].add(time_us)

    def disturbs(self, computed_us: Mapping[int, float], exchanged_us: Sequence[float]) -> bool:
        """Return whether the exchange or the arithmetic was slower than usual in these readings."""
        apart = any(self._exchanging.exceeded(time_us, APART) for time_us in exchanged_us)
        return apart or any(self._computing[n].exceeded(time_us, SHARED) for n, time_us in computed_us.items())

    def noise(self, threads: int) -> float:
        """Return the noise of this machine at a thread count: the usual scatter of the arithmetic reference kernel over
        the windows of a run, as the standard deviation of its logarithm. 0 before the first run with enough windows."""
        return (self._scatter[threads].reference_us or 0.0) / _PERCENT

    def keep(self) -> None:
        """Store the readings for later runs."""
        for threads, computing in self._computing.items():
            found = scatter(np.log(computing.times_us))
            if found is not None:
                self._scatter[threads].add(_PERCENT * found)
        for usual in (self._exchanging, *self._computing.values(), *self._scatter.values()):
            usual.keep()

    def stored_times(self, threads: int, exchanged_us: Sequence[float]) -> dict[str, Any]:
        """Return what the dataset stores about a run at a thread count, in microseconds: the reference times, and
        the medians of readings that are not stored elsewhere."""
        reference_us, near_us = self._computing[threads].reference_us, self._exchanging.reference_us
        found = {} if reference_us is None else {"compute_usual_us": round(reference_us, 3)}
        if not exchanged_us or near_us is None:
            return found
        return found | {
            "exchange_us": round(float(np.median(exchanged_us)), 3),
            "exchange_near_us": round(near_us, 3),
        }


class ReferenceTime:
    """Times of one kernel at one thread count: all of this run, and one for each earlier run (in a file of the cache
    folder).

    Each run counts once, so that a run that waits for a quiet moment does not outweigh others.

    Args:
        device: the machine.
        threads: thread count.
        kernel: name of the kernel.
        size_bytes: size of its data; times of other sizes are stored separately.

    Attributes:
        times_us: the readings of this run.
    """

    def __init__(self, device: Device, threads: int, kernel: str, size_bytes: int) -> None:
        self._path = cache_folder() / "states" / f"{device.key}-{threads}-{kernel}-{size_bytes}.json"
        self._earlier_us = self._read()
        self.times_us: list[float] = []

    @property
    def reference_us(self) -> float | None:
        """Return the time of the kernel in quiet runs; None before the first reading."""
        runs = self._earlier_us + ([self._of_run_us] if self.times_us else [])
        return float(np.quantile(runs, _QUIET)) if runs else None

    @property
    def _of_run_us(self) -> float:
        return float(np.quantile(self.times_us, _QUIET))

    def add(self, time_us: float) -> None:
        """Add a reading of this run, microseconds."""
        self.times_us.append(time_us)

    def exceeded(self, time_us: float, factor: float) -> bool:
        """Return whether a reading is more than this factor above the reference time."""
        reference_us = self.reference_us
        return reference_us is not None and time_us > factor * reference_us

    def keep(self) -> None:
        """Store the readings for later runs. If the cache cannot be written, nothing is stored."""
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
