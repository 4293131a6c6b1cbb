"""Identifies undisturbed (quiet) rounds by their times only.

The threads of a kernel wait for one another by spinning. If the system preempts one thread for another process, all
threads stall, and a run takes several times as long. If the background load cannot be read, or is low on average, only
the times of the rounds show this: they have a second, slower mode, or are widely scattered.

Background load only slows a machine down, so the quiet mode is the fastest mode. It includes the rounds up to three
standard deviations above its centre, but not more than the difference between copies of a model (`COPIES_APART`). The
standard deviation is the noise of this machine, the largest of three values:

- the scatter of these rounds where they are closest together;
- the usual scatter of the reference kernel at this thread count (`HostState.noise`), from earlier runs;
- the standard deviation that corresponds to the target width of the interval, because no more precision is needed.

A run that takes microseconds varies by 20 % even on an idle machine. A disturbance lasts for hundreds of such runs, so
rounds that are shorter than a disturbance are judged in blocks of its duration, by the median of a block.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from op_profiler.measure.disturbance import COPIES_APART
from op_profiler.measure.samples import Samples

STEADY_SHARE = 0.75
"""Smallest share of quiet rounds in a steady run; with a smaller share, the upper quartile is in a slower mode."""
_FEWEST_ROUNDS = 6
"""Smallest number of rounds whose median has a 95 % interval; also the smallest number of rounds in a mode."""
_FASTEST = 0.1
"""Share of the fastest rounds that always belong to the quiet mode, as in `measure.between_runs`."""
_BELOW_CENTRE = 1.2816
"""Distance from the quantile `_FASTEST` of a normal distribution to its centre, in standard deviations."""
_DEVIATIONS = 3.0
_OF_INTERVAL = 1.96
"""Half the width of a 95 % interval, in standard deviations."""
_SIMULATED = 200
_DISTURBED_US = 2000.0
"""Duration of a disturbance, microseconds: Linux's scheduler gives a process a core for 1.5 to 3 ms."""
_MOST_OF_BLOCK = 64


@dataclasses.dataclass(frozen=True)
class QuietRounds:
    """The quiet rounds of a run at one thread count.

    Attributes:
        used: mask of the rounds that medians use, shape (rounds,): the quiet rounds; all rounds if too few are quiet.
        share: share of quiet rounds, 0 to 1.
    """

    used: np.ndarray
    share: float

    def median_us(self, samples: Samples) -> float:
        """Return the median time of the whole model over the used rounds, microseconds."""
        return float(np.median(np.asarray(samples.whole_us)[self.used]))

    @property
    def is_steady(self) -> bool:
        """Return whether the share of quiet rounds is at least `STEADY_SHARE`."""
        return self.share >= STEADY_SHARE


def quiet_rounds(samples: Samples, *, noise: float, target: float) -> QuietRounds:
    """Find the rounds in which the whole model and its kernels were quiet; if there are few rounds, all count as quiet.

    Args:
        noise: usual scatter of the reference kernel, as the standard deviation of the logarithm; 0 if unknown.
        target: relative half width of the interval of a median at which the rounds converge.
    """
    return _used(_quiet_of(samples, noise, target))


def quiet_means(means_us: np.ndarray, *, target: float) -> QuietRounds:
    """Find the rounds in which a kernel in isolation was quiet; if there are few rounds, all count as quiet.

    Args:
        means_us: mean time of the calls of each round, microseconds, shape (rounds,); the calls of one round together
            have to last as long as a disturbance.
        target: as for `quiet_rounds`.
    """
    if len(means_us) < _FEWEST_ROUNDS or not (means_us > 0).all():
        return _used(np.ones(len(means_us), dtype=bool))
    return _used(_in_fastest_mode(np.log(means_us), target / _OF_INTERVAL))


def _used(quiet: np.ndarray) -> QuietRounds:
    return QuietRounds(quiet if quiet.sum() >= _FEWEST_ROUNDS else np.ones_like(quiet), _share(quiet))


def shares_of_windows(samples: Sequence[Samples], *, noise: float, target: float) -> list[float]:
    """Return the share of quiet rounds in each part of a run; quiet rounds are identified among all parts together.

    Args:
        samples: samples of each part.
        noise, target: as for `quiet_rounds`.
    """
    together = Samples()
    for one in samples:
        together.extend(one, False)
    parts = np.split(_quiet_of(together, noise, target), np.cumsum([one.rounds for one in samples])[:-1])
    return [_share(part) for part in parts]


def as_long_as_disturbed(time_us: float) -> int:
    """Return how many runs of `time_us` microseconds each last as long as one disturbance, 1 to 64; 1 for 0 and NaN."""
    return int(np.clip(_DISTURBED_US / time_us, 1, _MOST_OF_BLOCK)) if time_us > 0 else 1


def scatter(logarithms: np.ndarray) -> float | None:
    """Return the standard deviation of values where they are closest together; None for too few values.

    The shortest interval that contains a quarter of the values is inside one mode, even if there are several modes. Its
    width is divided by the width for as many standard normal values, because the shortest interval of few values is
    narrow by chance. At least `_FEWEST_ROUNDS` values are needed.
    """
    count = len(logarithms)
    if count < _FEWEST_ROUNDS:
        return None
    held = max(-(-count // 4), _FEWEST_ROUNDS)
    return float(_shortest(logarithms[None, :], held)[0]) / _shortest_of_normal(count, held)


def _share(quiet: np.ndarray) -> float:
    return float(quiet.mean()) if len(quiet) else 1.0


def _quiet_of(samples: Samples, noise: float, target: float) -> np.ndarray:
    rounds = samples.rounds
    quiet = np.ones(rounds, dtype=bool)
    if rounds < _FEWEST_ROUNDS:
        return quiet
    timed_us = [np.asarray(samples.whole_us, dtype=np.float64), samples.sums_us()]
    timed_us = [times_us for times_us in timed_us if (times_us > 0).all()]  # excludes missing times and NaN
    round_us = float(np.median(sum(timed_us))) if timed_us else 0.0
    blocks = rounds // min(as_long_as_disturbed(round_us), rounds // _FEWEST_ROUNDS)
    held = rounds // blocks
    block_of = np.minimum(np.arange(rounds) // held, blocks - 1)  # the last block includes the remaining rounds
    for times_us in timed_us:
        medians = np.median(times_us[: blocks * held].reshape(blocks, held), axis=1)
        quiet &= _in_fastest_mode(np.log(medians), max(noise, target / _OF_INTERVAL))[block_of]
    return quiet


def _in_fastest_mode(logarithms: np.ndarray, noise: float) -> np.ndarray:
    deviation = max(scatter(logarithms) or 0.0, noise)
    width = min((_BELOW_CENTRE + _DEVIATIONS) * deviation, math.log(COPIES_APART))
    return np.asarray(logarithms <= np.quantile(logarithms, _FASTEST) + width)


def _shortest(rows: np.ndarray, held: int) -> np.ndarray:
    """Return, for each row, the width of the shortest interval that contains `held` of its values."""
    ordered = np.sort(rows, axis=1)
    return np.asarray((ordered[:, held - 1 :] - ordered[:, : ordered.shape[1] - held + 1]).min(axis=1))


@functools.lru_cache(maxsize=4096)
def _shortest_of_normal(count: int, held: int) -> float:
    rows = np.random.default_rng(0).standard_normal((_SIMULATED, count))
    return float(np.median(_shortest(rows, held)))
