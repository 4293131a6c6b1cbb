"""Times at the reference state of the machine, and between-run intervals.

The interval of a run's median (`statistics.median_interval`) says how well that run knows its own median. Another run
comes to another median: its tensors lie elsewhere in memory, and the machine is in another state. Both are estimated
here from what one run sees, and from the states that the machine was in before.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import numpy as np

from op_profiler.cache import cache_folder
from op_profiler.files import atomic_file
from op_profiler.measure.measurement import Device

_QUIET = 0.1
"""Neighbours only ever slow a machine down, for milliseconds to minutes: the fastest tenth met few of them."""
_RUNS_KEPT = 100
FEWEST_RUNS = 5
"""Earlier runs of a machine from which on they tell what is usual on it."""
_FEWEST_WINDOWS = 4
_NORMAL = 1.4826
"""Median absolute deviation to standard deviation, of a normal distribution."""
_TWO_SIDED_95 = 1.96


@dataclasses.dataclass(frozen=True)
class MachineState:
    """State of the machine during a run, relative to its reference state.

    Attributes:
        deviation: logarithm of each probe kernel's time over its usual one, shape (2,): arithmetic, memory; 0 where it
            is within what is usual.
        spread: standard deviation of that logarithm over the runs so far, shape (2,).
        runs_before: how many there were.
    """

    deviation: np.ndarray
    spread: np.ndarray
    runs_before: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class BetweenRuns:
    """Fields of `Measurement` in microseconds; None where a run has too few windows."""

    steady_us: float
    steady_low_us: float | None = None
    steady_high_us: float | None = None
    again_low_us: float | None = None
    again_high_us: float | None = None


class History:
    """The states that a machine was found in: a line a run, in the cache folder.

    Args:
        device: the machine.
        threads: of the runs.
        sizes_bytes: of the probe's data; readings of other sizes are others.

    Attributes:
        path: of its file.
    """

    def __init__(self, device: Device, threads: int, sizes_bytes: Sequence[int]) -> None:
        sizes = "-".join(map(str, sizes_bytes))
        self.path = cache_folder() / "states" / f"{device.key}-{threads}-{sizes}.json"

    def state(self, probe_us: np.ndarray) -> MachineState:
        """Return the state of a run with the readings `probe_us`, shape (windows, 2). The first run defines the
        reference state."""
        found = np.log(np.quantile(probe_us, _QUIET, axis=0))
        before = self._read()
        runs = np.array([*before, found])
        difference = found - np.median(runs, axis=0)
        within = _robust_deviation(np.log(probe_us)) / np.sqrt(len(probe_us))
        spread = np.maximum(_robust_deviation(runs), within)
        kept = np.maximum(1 - (_TWO_SIDED_95 * spread / np.maximum(np.abs(difference), 1e-12)) ** 2, 0.0)
        return MachineState(difference * kept, spread, len(before))

    def add(self, probe_us: np.ndarray) -> None:
        """Keep the state of a finished run; a cache that cannot be written costs the entry."""
        runs = [*self._read(), np.log(np.quantile(probe_us, _QUIET, axis=0)).tolist()][-_RUNS_KEPT:]
        try:
            with atomic_file(self.path) as partial:
                partial.write_text(json.dumps(runs))
        except OSError:
            return

    def _read(self) -> list[list[float]]:
        try:
            runs = json.loads(self.path.read_text())
            return [[float(one), float(other)] for one, other in runs]
        except (OSError, ValueError, TypeError):
            return []


def between_runs(
    rounds_us: np.ndarray,
    window_rounds: Sequence[int],
    state: MachineState,
    shares: np.ndarray,
    median_us: float | None = None,
) -> BetweenRuns:
    """Return the time at the reference state, and the between-run intervals.

    The time at the usual state is that of the quiet rounds, with what the state differs from the usual one taken off:
    a mean of the probe's two logarithms by what the operator waits for. Another run's value differs by as much as one
    window of this run (other memory, another moment) and as the machine's states do: both are standard deviations on
    a logarithmic scale, and add up in squares.

    Args:
        rounds_us: shape (rounds,), microseconds.
        window_rounds: rounds of each window, in order; the sum is at most the number of rounds, and what is before the
            first window (of an earlier process) counts as a window.
        shares: how much arithmetic and memory are waited for, shape (2,), sum 1.
        median_us: of the quiet ones among the rounds; None: of all.
    """
    median_us = float(np.median(rounds_us)) if median_us is None else median_us
    quiet_us = float(np.quantile(rounds_us, _QUIET) / np.exp(shares @ state.deviation))
    earlier = len(rounds_us) - sum(window_rounds)
    ends = np.cumsum([earlier, *window_rounds])[:-1]
    windows = [window for window in np.split(rounds_us, ends) if len(window)]
    if len(windows) < _FEWEST_WINDOWS or rounds_us.min() <= 0:  # nothing is left of some round without its call
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
    """Shares of arithmetic and of memory in what an operator waits for, by the device's peaks at the nearest thread
    count, shape (2,); halves where they are not known."""
    peaks = device.properties.get("peaks")
    if not peaks or not flops + moved_bytes:
        return np.array([0.5, 0.5])
    nearest = int(np.argmin(np.abs(np.array(peaks["threads"]) - threads)))
    both = np.array([flops / peaks["flops_per_us"][nearest], moved_bytes / peaks["bytes_per_us"][nearest]])
    return np.asarray(both / both.sum())


def _robust_deviation(values: np.ndarray) -> np.ndarray:
    """Standard deviation along the first axis, as the median absolute deviation tells it."""
    return np.asarray(_NORMAL * np.median(np.abs(values - np.median(values, axis=0)), axis=0))
