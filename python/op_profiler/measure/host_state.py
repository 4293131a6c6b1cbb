"""The state of the host below a virtual machine: cores without a common cache, and shared physical cores.

A hypervisor moves the virtual cores of a guest between physical cores. For seconds to minutes, two of them may share no
cache: data that one core wrote then takes five times as long to reach the other core, and kernels that read data of
other cores take up to four times as long. Arithmetic and memory are as fast as before. Therefore a kernel that only
reads data that the other cores wrote is timed in every window.

Two virtual cores, also of different guests, may also share one physical core: arithmetic then takes up to twice as
long, which the arithmetic reference kernel shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from op_profiler.measure.disturbance import APART, SHARED
from op_profiler.measure.measurement import Device
from op_profiler.measure.quiet_rounds import scatter
from op_profiler.measure.run_states import RunStates
from op_profiler.measure.steadiness import SteadinessProbe

_PERCENT = 100.0
"""Factor from scatters to the percent that files store, because numbers in these files have only three decimals."""


_QUIET = 0.25
"""Quantile of a kernel's times that is its reference time; most times are undisturbed."""


class HostState:
    """Detects when cores of a run share no cache or share a physical core, by comparison with earlier times.

    Args:
        probe: the reference kernels.
        device: the machine.
        threads: thread counts of the run. The exchange of data between cores is timed at the largest count; if the
            largest count is 1, it is not timed.
    """

    def __init__(self, probe: SteadinessProbe, device: Device, threads: Sequence[int]) -> None:
        self._probe = probe
        self._most = max(threads)
        self._computing = {n: ReferenceTime(device, n, "compute", probe.sizes_bytes[0]) for n in threads}
        self._scatter = {n: ReferenceTime(device, n, "scatter", probe.sizes_bytes[0]) for n in threads}
        self._exchanging = ReferenceTime(device, self._most, "exchange", probe.exchanged_bytes)

    def exchanged_us(self) -> list[float]:
        """Time the exchange of data between cores once; return a list with this time in microseconds.

        Call it while the largest thread count of the run is in effect. If that count is 1, the list is empty.
        """
        if self._most == 1:
            return []
        self._exchanging.add(time_us := self._probe.exchanged_us())
        return [time_us]

    def add(self, computed_us: Mapping[int, float]) -> None:
        """Add times of the arithmetic reference kernel by thread count, microseconds."""
        for threads, time_us in computed_us.items():
            self._computing[threads].add(time_us)

    def disturbs(self, computed_us: Mapping[int, float], exchanged_us: Sequence[float]) -> bool:
        """Return whether any of these times is longer than usual.

        Args:
            computed_us: times of the arithmetic reference kernel by thread count, microseconds.
            exchanged_us: times that the method `exchanged_us` returned.
        """
        apart = any(self._exchanging.exceeded(time_us, APART) for time_us in exchanged_us)
        return apart or any(self._computing[n].exceeded(time_us, SHARED) for n, time_us in computed_us.items())

    def noise(self, threads: int) -> float:
        """Return the noise of this machine at a thread count, as the standard deviation of the logarithm of a time.

        The noise is the usual scatter of the arithmetic reference kernel over the windows of a run; 0 before the first
        run with enough windows.
        """
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
        """Return the fields for `ModelTiming.details` of a run at a thread count, microseconds.

        These are the reference times, and the median of `exchanged_us`.
        """
        reference_us, near_us = self._computing[threads].reference_us, self._exchanging.reference_us
        found = {} if reference_us is None else {"compute_usual_us": round(reference_us, 3)}
        if not exchanged_us or near_us is None:
            return found
        return found | {
            "exchange_us": round(float(np.median(exchanged_us)), 3),
            "exchange_near_us": round(near_us, 3),
        }


class ReferenceTime:
    """Reference time of one kernel at one thread count, from the readings of this run and of earlier runs.

    One time is stored per earlier run, so that a run that waits for a quiet moment, with many readings, does not
    outweigh the others.

    Args:
        device: the machine.
        threads: thread count.
        kernel: name of the kernel.
        size_bytes: size of the kernel's data; each size has a separate file.

    Attributes:
        times_us: the readings of this run, microseconds.
    """

    def __init__(self, device: Device, threads: int, kernel: str, size_bytes: int) -> None:
        self._states = RunStates(device, threads, kernel, size_bytes)
        self._earlier_us = self._states.read(float)
        self.times_us: list[float] = []

    @property
    def reference_us(self) -> float | None:
        """Return the time of the kernel in quiet runs, microseconds; None if neither this run nor an earlier run has a
        reading."""
        runs = self._earlier_us + ([self._of_run_us] if self.times_us else [])
        return float(np.quantile(runs, _QUIET)) if runs else None

    @property
    def _of_run_us(self) -> float:
        return float(np.quantile(self.times_us, _QUIET))

    def add(self, time_us: float) -> None:
        """Add a reading of this run, microseconds."""
        self.times_us.append(time_us)

    def exceeded(self, time_us: float, factor: float) -> bool:
        """Return whether a reading is longer than `factor` times the reference time; False without a reference time."""
        reference_us = self.reference_us
        return reference_us is not None and time_us > factor * reference_us

    def keep(self) -> None:
        """Store the time of this run for later runs; if the cache folder cannot be written, do nothing."""
        if self.times_us:
            self._states.write([*self._earlier_us, round(self._of_run_us, 3)])
