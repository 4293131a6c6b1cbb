"""Ways to run the same models, timed in turn in one run, so that all of them see the same minutes of the machine."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from op_profiler.measure.load import LoadMeter
from op_profiler.measure.rounds import Limits
from op_profiler.measure.statistics import median_interval


@dataclasses.dataclass(frozen=True)
class Way:
    """One way to run the models.

    Attributes:
        prepare: called before each turn, to set the threads.
        run: runs everything once.
    """

    prepare: Callable[[], object]
    run: Callable[[], object]


@dataclasses.dataclass(frozen=True)
class Timed:
    """Attributes:
    samples_us: shape (rounds, ways).
    foreign_load: whether rounds were kept although others used the machine.
    load_before, load_after: cores that others used before and at the end; None where it cannot be read.
    """

    samples_us: np.ndarray
    foreign_load: bool
    load_before: float | None
    load_after: float | None

    @property
    def median_us(self) -> np.ndarray:
        """Of each way."""
        return np.asarray(np.median(self.samples_us, axis=0))

    def interval_us(self, way: int) -> tuple[float, float]:
        """95 % confidence interval of a way's median."""
        return median_interval(self.samples_us[:, way])

    def speedup(self, way: int, over: int = 0) -> float:
        """How many times as fast as another way: the median of the ratios within a round."""
        return float(np.median(self.samples_us[:, over] / self.samples_us[:, way]))

    def speedup_interval(self, way: int, over: int = 0) -> tuple[float, float]:
        """95 % confidence interval of `speedup`."""
        return median_interval(self.samples_us[:, over] / self.samples_us[:, way])


def time_in_turn(ways: Sequence[Way], *, rounds: int, meter: LoadMeter | None, limits: Limits) -> Timed:
    """Time every way once a round, a different one first each time, each after a run that settles caches and threads.

    A window of rounds under foreign load is repeated for up to `limits.repeat_seconds`, then kept and marked.
    """
    kept: list[list[float]] = []
    foreign_load = False
    repeated_seconds = 0.0
    before = after = _read(meter)
    while len(kept) < rounds:
        started = time.monotonic()
        window: list[list[float]] = []
        while len(kept) + len(window) < rounds and time.monotonic() - started < limits.window_seconds:
            window.append(_one_round(ways, len(kept) + len(window)))
        after = _read(meter)
        foreign = after is not None and after > limits.foreign_cores
        if foreign and repeated_seconds < limits.repeat_seconds:
            repeated_seconds += time.monotonic() - started
            continue
        foreign_load |= foreign
        kept += window
    return Timed(np.asarray(kept), foreign_load, before, after)


def finite(interval: tuple[float, float]) -> list[float] | None:
    """For JSON; None where there were too few rounds for an interval."""
    return list(interval) if np.isfinite(interval).all() else None


def relative_difference(expected: np.ndarray, found: np.ndarray) -> float:
    """The largest difference between two arrays, over the largest expected value."""
    scale = float(np.abs(expected).max(initial=0.0)) or 1.0
    return float(np.abs(expected.astype(np.float64) - found).max(initial=0.0)) / scale


def _one_round(ways: Sequence[Way], turn: int) -> list[float]:
    times = [0.0] * len(ways)
    for place in range(len(ways)):
        number = (turn + place) % len(ways)
        way = ways[number]
        way.prepare()
        way.run()
        started = time.perf_counter_ns()
        way.run()
        times[number] = (time.perf_counter_ns() - started) / 1e3
    return times


def _read(meter: LoadMeter | None) -> float | None:
    return meter.foreign_cores() if meter is not None else None
