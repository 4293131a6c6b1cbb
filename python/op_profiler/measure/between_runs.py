"""Times at the reference state of the machine, and between-run intervals.

The interval of a median (`statistics.median_interval`) is its precision within one run. The median of another run
differs more, because its tensors are at other addresses and the machine is in another state. Both effects are estimated
here, from the windows of one run and from the states of the machine in earlier runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from op_profiler.measure.measurement import Device
from op_profiler.measure.run_states import RunStates

_QUIET = 0.1
"""Quantile of the rounds that represents a quiet machine. Background load only slows a machine down, for milliseconds
to minutes, so it affects few of the fastest tenth of the rounds."""
FEWEST_RUNS = 5
"""Number of earlier runs that are needed to determine the reference state of a machine."""
_FEWEST_WINDOWS = 4
_NORMAL = 1.4826
"""Ratio of the standard deviation of a normal distribution to its median absolute deviation."""
_TWO_SIDED_95 = 1.96


@dataclasses.dataclass(frozen=True)
class MachineState:
    """State of the machine during a run, relative to its reference state.

    Attributes:
        deviation: logarithm of each reference kernel's time divided by its time at the reference state, shape (2,):
            arithmetic, memory; multiplied by 1 - (1.96 spread / deviation)^2, at least 0.
        spread: standard deviation of the logarithm of each reference kernel's time over the runs so far, shape (2,), or
            the standard error within this run if that is larger.
        runs_before: number of earlier runs.
    """

    deviation: np.ndarray
    spread: np.ndarray
    runs_before: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class BetweenRuns:
    """Values for the fields ``steady_*`` and ``again_*`` of one `Measurement`, microseconds. The ends of the intervals
    are None if there were fewer than four windows, or if a round was no longer than its call overhead."""

    steady_us: float
    steady_low_us: float | None = None
    steady_high_us: float | None = None
    again_low_us: float | None = None
    again_high_us: float | None = None


class History:
    """The states of a machine in earlier runs.

    Args:
        device: the machine.
        threads: thread count of the runs.
        sizes_bytes: sizes of the data of the reference kernels; each combination of sizes has a separate file.

    Attributes:
        path: path of their file.
    """

    def __init__(self, device: Device, threads: int, sizes_bytes: Sequence[int]) -> None:
        self._states = RunStates(device, threads, *sizes_bytes)
        self.path = self._states.path

    def state(self, probe_us: np.ndarray) -> MachineState:
        """Return the state of a run, relative to the reference state: the median over the earlier runs and this run.

        Args:
            probe_us: times of the reference kernels, microseconds, shape (windows, 2).
        """
        found = np.log(np.quantile(probe_us, _QUIET, axis=0))
        before = self._states.read(_pair)
        runs = np.array([*before, found])
        difference = found - np.median(runs, axis=0)
        within = _robust_deviation(np.log(probe_us)) / np.sqrt(len(probe_us))
        spread = np.maximum(_robust_deviation(runs), within)
        kept = np.maximum(1 - (_TWO_SIDED_95 * spread / np.maximum(np.abs(difference), 1e-12)) ** 2, 0.0)
        return MachineState(difference * kept, spread, len(before))

    def add(self, probe_us: np.ndarray) -> None:
        """Store the state of a finished run; `probe_us` is as for `state`. If the file is not writable, do nothing."""
        found = np.log(np.quantile(probe_us, _QUIET, axis=0)).tolist()
        self._states.write([*self._states.read(_pair), found])


def _pair(state: Sequence[float]) -> list[float]:
    arithmetic, memory = state
    return [float(arithmetic), float(memory)]


def between_runs(
    rounds_us: np.ndarray,
    window_rounds: Sequence[int],
    state: MachineState,
    shares: np.ndarray,
    median_us: float | None = None,
) -> BetweenRuns:
    """Return the time at the machine's reference state, and the between-run intervals.

    The time at the reference state is the 10 % quantile of the rounds, divided by exp(d), where d is the mean of both
    reference kernels' deviations, weighted by `shares`. The result of another
    run differs by the spread between the windows of this run (other memory, another moment) and by the spread of the
    machine's states. Both are standard deviations on a logarithmic scale, and their squares are added.

    Args:
        rounds_us: time of each round, microseconds, shape (rounds,).
        window_rounds: number of rounds of each window, in order. If their sum is less than the number of rounds, the
            first rounds are from an earlier process and count as one more window.
        state: state of the machine during the run.
        shares: shares of arithmetic and memory in the operator's time, shape (2,), sum 1.
        median_us: median of the quiet rounds; None: the median of all rounds is used.
    """
    median_us = float(np.median(rounds_us)) if median_us is None else median_us
    quiet_us = float(np.quantile(rounds_us, _QUIET) / np.exp(shares @ state.deviation))
    earlier = len(rounds_us) - sum(window_rounds)
    ends = np.cumsum([earlier, *window_rounds])[:-1]
    windows = [window for window in np.split(rounds_us, ends) if len(window)]
    if len(windows) < _FEWEST_WINDOWS or rounds_us.min() <= 0:  # a round was no longer than its call overhead
        return BetweenRuns(steady_us=quiet_us)
    of_state = np.sum((shares * state.spread) ** 2)
    factors = []
    for quantile in (_QUIET, 0.5):
        values = np.log([np.quantile(window, quantile) for window in windows])
        factors.append(float(np.exp(_TWO_SIDED_95 * np.sqrt(_robust_deviation(values) ** 2 + of_state))))
    steady, again = factors
    return BetweenRuns(
        steady_us=quiet_us,
        steady_low_us=quiet_us / steady,
        steady_high_us=quiet_us * steady,
        again_low_us=median_us / again,
        again_high_us=median_us * again,
    )


def waits(flops: float, moved_bytes: float, device: Device, threads: int) -> np.ndarray:
    """Return the shares of arithmetic and memory in an operator's time, shape (2,), sum 1.

    They are estimated from the device's peaks at the nearest thread count; both are 0.5 if the peaks are unknown.

    Args:
        flops, moved_bytes: floating-point operations and memory traffic of one call.
    """
    peaks = device.properties.get("peaks")
    if not peaks or not flops + moved_bytes:
        return np.array([0.5, 0.5])
    nearest = int(np.argmin(np.abs(np.array(peaks["threads"]) - threads)))
    both = np.array([flops / peaks["flops_per_us"][nearest], moved_bytes / peaks["bytes_per_us"][nearest]])
    return np.asarray(both / both.sum())


def _robust_deviation(values: np.ndarray) -> np.ndarray:
    """Return the standard deviation along the first axis, estimated from the median absolute deviation."""
    return np.asarray(_NORMAL * np.median(np.abs(values - np.median(values, axis=0)), axis=0))
