"""Times several ways to run the same models alternately, so that all ways have the same background load.

The times are taken in rounds; windows of rounds under background load are repeated.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from op_profiler.measure.limits import Limits
from op_profiler.measure.load import ForeignLoad, LoadMeter
from op_profiler.measure.statistics import median_interval

_Sample = TypeVar("_Sample")
_WARM_UP_NS = 2_000_000  # longer than lanes and TVM's pool spin before they sleep
NO_INTERVAL = "too few rounds for an interval"
_NARROW = 1.25  # largest ratio of the ends of an interval


@dataclasses.dataclass(frozen=True)
class Load:
    """Background load during a measurement.

    Attributes:
        foreign: whether rounds were kept in spite of background load.
        before, after: share of the used cores, or of the GPU, that other processes took before the rounds and in the
            last window, 0 to 1; None if it cannot be read.
        repeated_seconds: duration of the discarded windows, seconds.
    """

    foreign: bool
    before: float | None
    after: float | None
    repeated_seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to run the models.

    Attributes:
        prepare: called before each call of `run`, to set the thread count.
        run: runs all models once.
    """

    prepare: Callable[[], object]
    run: Callable[[], object]


@dataclasses.dataclass(frozen=True)
class TimedWays:
    """Times of several ways to run the same models, from the same rounds.

    Attributes:
        samples_us: times in microseconds, shape (rounds, ways).
        load: background load during the rounds.
    """

    samples_us: np.ndarray
    load: Load

    @property
    def median_us(self) -> np.ndarray:
        """Return the median time of each way, microseconds, shape (ways,)."""
        return np.asarray(np.median(self.samples_us, axis=0))

    def interval_us(self, way: int) -> tuple[float, float]:
        """Return the 95 % confidence interval of a way's median, microseconds."""
        return median_interval(self.samples_us[:, way])

    def speedup(self, way: int, over: int = 0) -> float:
        """Return the speed-up of a way over another way: the median of the ratios of their times in each round."""
        return float(np.median(self.samples_us[:, over] / self.samples_us[:, way]))

    def speedup_interval(self, way: int, over: int = 0) -> tuple[float, float]:
        """Return the 95 % confidence interval of `speedup`."""
        return median_interval(self.samples_us[:, over] / self.samples_us[:, way])

    def not_compared(self, way: int, over: int = 0) -> str | None:
        """Return why two ways cannot be compared, and what to do; None if they can be compared.

        Background load may delay only one of the ways. Under background load, `speedup` is therefore valid only if its
        confidence interval is narrow.
        """
        low, high = self.speedup_interval(way, over)
        if not self.load.foreign or high <= _NARROW * low:
            return None
        return (
            "the comparison was not obtained: others used the machine; repeat it with --rounds 40 or more while they "
            "do not, or let OP_PROFILER_PATIENCE_SECONDS=300 wait longer for that"
        )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable comparison of way 1 (a plan) with way 0 (sequential execution).

        The speed-up is None if the two ways cannot be compared.
        """
        not_compared = self.not_compared(1)
        sequential_us, plan_us = self.median_us[:2].tolist()
        return {
            "sequential_us": sequential_us,
            "sequential_interval_us": finite(self.interval_us(0)),
            "plan_us": plan_us,
            "plan_interval_us": finite(self.interval_us(1)),
            "speedup": self.speedup(1) if not_compared is None else None,
            "speedup_interval": finite(self.speedup_interval(1)) if not_compared is None else None,
            "not_compared": not_compared,
            "foreign_load": self.load.foreign,
            "rounds": len(self.samples_us),
        }

    def faster(self, way: int) -> bool:
        """Return whether a way is at least as fast as way 0, both by their medians and by `speedup`."""
        return self.speedup(way) >= 1.0 and bool(self.median_us[way] <= self.median_us[0])


def time_in_turn(
    ways: Sequence[Way],
    *,
    rounds: int,
    meter: LoadMeter | None,
    limits: Limits,
    fewest: int | None = None,
    until: float = math.inf,
) -> TimedWays:
    """Time every way once per round, after untimed runs that warm up caches and threads.

    Each round begins with another way than the round before. For the other arguments see `in_quiet_rounds`.
    """
    samples, load = in_quiet_rounds(
        lambda turn: _one_round(ways, turn), rounds=rounds, meter=meter, limits=limits, fewest=fewest, until=until
    )
    return TimedWays(np.asarray(samples), load)


def in_quiet_rounds(
    one_round: Callable[[int], _Sample],
    *,
    rounds: int,
    meter: LoadMeter | None,
    limits: Limits,
    fewest: int | None = None,
    until: float = math.inf,
) -> tuple[list[_Sample], Load]:
    """Take one sample per round, and return the samples and the background load.

    Windows of rounds under background load are repeated.

    Args:
        one_round: returns the sample of a round; called with the number of the round.
        rounds: largest number of rounds.
        meter: reads the background load; None if it cannot be read.
        limits: windows under background load are repeated for up to `Limits.repeat_seconds`, then kept and marked.
        fewest: number of rounds that are always done; None: all `rounds`.
        until: time (of `time.monotonic`) after which the rounds end once `fewest` are done.
    """
    kept: list[_Sample] = []
    fewest = rounds if fewest is None else fewest
    foreign_load = False
    repeated_seconds = 0.0

    def wanted(done: int) -> bool:
        return done < rounds and (done < fewest or time.monotonic() < until)

    before = after = _read(meter)
    while wanted(len(kept)):
        started = time.monotonic()
        window: list[_Sample] = []
        while wanted(len(kept) + len(window)) and (not window or time.monotonic() - started < limits.window_seconds):
            window.append(one_round(len(kept) + len(window)))
        after = _read(meter)
        foreign = after is not None and after.disturbs
        if foreign and repeated_seconds < limits.repeat_seconds and time.monotonic() < until:
            repeated_seconds += time.monotonic() - started
            continue
        foreign_load |= foreign
        kept += window
    first, last = (load.share if load is not None else None for load in (before, after))
    return kept, Load(foreign_load, first, last, repeated_seconds)


def surely_fastest(samples_us: np.ndarray, present: int) -> int:
    """Return the number of the fastest way if it is significantly faster than the way `present`, otherwise `present`.

    It is significantly faster if the 95 % interval of the differences within rounds is below 0.

    Args:
        samples_us: times in microseconds, shape (rounds, ways).
        present: number of the way that is in use now.
    """
    more_us = samples_us - samples_us[:, [present]]
    best = int(np.argmin(np.median(more_us, axis=0)))
    return best if median_interval(more_us[:, best])[1] < 0 else present


def finite(interval: tuple[float, float]) -> list[float] | None:
    """Return an interval as a list for JSON; None if there were too few rounds for an interval."""
    return list(interval) if np.isfinite(interval).all() else None


def compare_outputs(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> tuple[bool, float]:
    """Return whether all arrays are equal bit for bit, and the largest relative difference of a pair of arrays.

    The difference is relative to the largest value of the expected array. NaN equals NaN, and has an infinite
    difference from any other value.
    """
    pairs = list(zip(expected, found, strict=True))
    equal = all(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)
    return equal, max((_relative_difference(a, b) for a, b in pairs), default=0.0)


def _relative_difference(expected: np.ndarray, found: np.ndarray) -> float:
    a, b = expected.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0)) or 1.0
    return float(np.where(np.isnan(apart), np.inf, apart).max(initial=0.0)) / scale


def warm_up(run: Callable[[], object]) -> None:
    """Call `run` at least once, and again until the spinning threads of another runtime are asleep (2 ms).

    Directly after another runtime, a model that takes microseconds would take a sixth longer.
    """
    end = time.perf_counter_ns() + _WARM_UP_NS
    run()
    while time.perf_counter_ns() < end:
        run()


def _one_round(ways: Sequence[Way], turn: int) -> list[float]:
    times = [0.0] * len(ways)
    for place in range(len(ways)):
        number = (turn + place) % len(ways)
        way = ways[number]
        way.prepare()
        warm_up(way.run)
        started = time.perf_counter_ns()
        way.run()
        times[number] = (time.perf_counter_ns() - started) / 1e3
    return times


def _read(meter: LoadMeter | None) -> ForeignLoad | None:
    return meter.read() if meter is not None else None
