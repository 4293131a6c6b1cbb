"""Alternating measurement of two built models (before, after, after, before), whose libraries are loaded again for each
pair of times.

The state of a shared machine changes from minute to minute. The time of a model also changes with the addresses of its
tensors (`measure/placements.py`) and of its code: small kernels differed by 4 % from one load of the same library to
the next. Both models are therefore loaded in one process, and for each pair of times both libraries are loaded again,
with a few copies of the tensors. Within a pair, the two models are measured round by round in alternating order, each
round at another position on the stack (`measure/stack.py`). Each pair gives one change of each operator, and pairs
differ as two processes do. The changes are averaged over the pairs; their spread gives the uncertainty of the average.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.comparison.changes import half_width, of_pairs
from op_profiler.measure.rounds import no_garbage_collection
from op_profiler.measure.samples import per_operator

if TYPE_CHECKING:
    from op_profiler.measure.load import LoadMeter
    from op_profiler.measure.measurement import Cache
    from op_profiler.targets.machine import LoadedModel, Machine

COPIES = 4
"""Number of copies of the tensors of a loaded library."""
MOST_PAIRS = 64
FEWEST_PAIRS = 8
_ALIVE = 2  # pairs before this one, so that it does not get their memory
_LEAST_ROUNDS = 3
_COPY_SECONDS = 0.05
_NARROW = 0.01
_SMALL = 0.05

Pair = tuple["LoadedModel", "LoadedModel"]
Times = dict[int, tuple[np.ndarray, np.ndarray]]
"""By thread count, an array for each side: microseconds of the whole model, then those of its operators."""


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two models that are compared.

    Attributes:
        load: loads the library again, with several copies of the model's tensors.
        groups: for each kernel, the number of its operator, shape (kernels,).
    """

    load: Callable[[], LoadedModel]
    groups: np.ndarray


@dataclasses.dataclass
class PairedTimes:
    """Times at one thread count in microseconds, one row per pair.

    Attributes:
        whole: times of the whole model, shape (pairs, 2): before, after.
        operators: for each side, shape (pairs, operators); NaN if an operator failed.
    """

    whole: np.ndarray
    operators: tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class MeasuredTurns:
    """Result of an alternating measurement.

    Attributes:
        times: times of all pairs, by thread count.
        foreign_load: whether pairs were kept although there was background load.
    """

    times: dict[int, PairedTimes]
    foreign_load: bool


class Turns:
    """Alternating measurement of two models.

    Args:
        machine: machine that measures.
        sides: the two models.
        threads: thread counts; every pair is measured at each thread count.
        cache: cache state in which operators are measured.
        matched: pairs of operators that are compared, each as its number in the first and in the second model.
        comparisons: number of changes that will be judged together.
    """

    def __init__(
        self,
        machine: Machine,
        sides: tuple[Side, Side],
        *,
        threads: Sequence[int],
        cache: Cache,
        matched: Sequence[tuple[int, int]],
        comparisons: int,
    ) -> None:
        self._machine = machine
        self._sides = sides
        self._threads = tuple(threads)
        self._cache = cache
        self._matched = list(matched)
        self._comparisons = comparisons
        self._pairs: list[Times] = []

    def measure(self, seconds: float) -> MeasuredTurns:
        """Measure pairs until the half-width of the interval of each important change is at most 1 %, or until the time
        limit.

        The important changes are those of the whole model, and of every operator that takes at least 5 % of the model's
        time.

        Args:
            seconds: time limit, including the time to load libraries; `FEWEST_PAIRS` pairs are measured in any case.
        """
        meter = self._machine.meter(max(self._threads))
        started = time.monotonic()
        alive: deque[Pair] = deque(maxlen=_ALIVE)
        foreign_load = False
        while len(self._pairs) < MOST_PAIRS:
            number = len(self._pairs)
            pair = self._loaded(number)
            alive.append(pair)
            found, foreign = self._quiet_times(pair, number, meter)
            foreign_load |= foreign
            self._pairs.append(found)
            late = time.monotonic() - started > seconds
            both_ways = number % 2 == 1  # as many pairs with either side first
            if both_ways and number + 1 >= FEWEST_PAIRS and (late or (number % 4 == 3 and self._known())):
                break
        return MeasuredTurns({n: self._times(n) for n in self._threads}, foreign_load)

    def _loaded(self, number: int) -> Pair:
        """Load both models again, in alternating order from pair to pair, because memory is allocated in order."""
        before, after = (side.load for side in self._sides)
        if number % 2:
            second = after()
            return before(), second
        return before(), after()

    def _quiet_times(self, pair: Pair, number: int, meter: LoadMeter | None) -> tuple[Times, bool]:
        """Return the times of a pair, and whether there was background load.

        A pair under load is measured again once. A load that persists disturbs both sides, and another pair is then
        more useful than another repetition.
        """
        found, foreign = self._measured(pair, number, meter)
        return self._measured(pair, number, meter) if foreign else (found, foreign)

    def _measured(self, pair: Pair, number: int, meter: LoadMeter | None) -> tuple[Times, bool]:
        if meter is not None:
            meter.read()
        with no_garbage_collection():
            found = {n: self._times_of(pair, n, number) for n in self._threads}
        load = meter.read() if meter is not None else None
        return found, load is not None and load.disturbs

    def _times_of(self, pair: Pair, threads: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the times of both sides at one thread count, medians over the copies of the tensors.

        The median is needed because at a few positions on the stack, a kernel takes three times as long.
        """
        self._machine.threads.use(threads)
        rows = [self._times_of_copies(_moved(pair, number + i), number + i) for i in range(COPIES)]
        before, after = (np.median([row[which] for row in rows], axis=0) for which in (0, 1))
        return before, after

    def _times_of_copies(self, copies: Pair, turn: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the times of both sides with one copy of the tensors, medians over the rounds."""
        for which in _order(turn):  # both find the caches as the other one left them
            copies[which].run_model()
        rows: tuple[list[list[float]], list[list[float]]] = ([], [])
        until = time.monotonic() + _COPY_SECONDS
        while len(rows[0]) < _LEAST_ROUNDS or time.monotonic() < until:
            for which in _order(turn):
                copy = copies[which]
                copy.run_model()
                whole_us = copy.time_model()
                rows[which].append([whole_us, *copy.walk(self._cache, [True] * len(self._sides[which].groups))])
            turn += 1
        return self._medians(0, copies[0], rows[0]), self._medians(1, copies[1], rows[1])

    def _medians(self, which: int, copy: LoadedModel, rows: list[list[float]]) -> np.ndarray:
        table = np.asarray(rows)
        kernels = table[:, 1:] - (copy.call_overhead_us() or 0.0)
        operators = per_operator(kernels, self._sides[which].groups)
        return np.concatenate([[np.median(table[:, 0])], np.median(operators, axis=0)])

    def _times(self, threads: int) -> PairedTimes:
        before, after = (np.array([pair[threads][which] for pair in self._pairs]) for which in (0, 1))
        return PairedTimes(np.stack([before[:, 0], after[:, 0]], axis=1), (before[:, 1:], after[:, 1:]))

    def _known(self) -> bool:
        """Whether the change of the whole model and that of each operator with 5 % of its time are known to 1 %."""
        calls = np.bincount(self._sides[0].groups)
        for threads in self._threads:
            times = self._times(threads)
            shares = np.median(times.operators[0], axis=0) * calls / np.median(times.whole[:, 0])
            columns = [(times.whole[:, 0], times.whole[:, 1])]
            columns += [
                (times.operators[0][:, one], times.operators[1][:, other])
                for one, other in self._matched
                if shares[one] >= _SMALL
            ]
            for before, after in columns:
                estimate = of_pairs(before, after)
                if estimate is not None and half_width(estimate, self._comparisons) > _NARROW:
                    return False
        return True


def _order(turn: int) -> tuple[int, int]:
    """Return which side comes first in a turn."""
    return (0, 1) if turn % 2 == 0 else (1, 0)


def _moved(pair: Pair, turn: int) -> Pair:
    """Return both models with copied tensors; the order of copying alternates from turn to turn, because memory is
    allocated in order."""
    copies = {which: pair[which].moved() for which in _order(turn)}
    return copies[0], copies[1]
