"""Two built models in turns: before, after, after, before, in many places of memory.

A shared machine is another one from minute to minute, and a model takes other times in other memory
(`measure/placements.py`). So both models are loaded in one process, each as many copies, and a copy of one is measured
beside a copy of the other, round by round, the other way around each time. A pair of copies gives one change of each
operator, and pairs differ as two processes do. The changes are averaged over the pairs; their spread tells how sure the
average is.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.comparison.changes import half_width, of_pairs
from op_profiler.measure.rounds import no_garbage_collection, per_operator

if TYPE_CHECKING:
    from op_profiler.measure.load import LoadMeter
    from op_profiler.measure.measurement import Cache
    from op_profiler.targets.machine import LoadedModel, Machine

MOST_PAIRS = 64
FEWEST_PAIRS = 16
_LEAST_ROUNDS = 5
_PAIR_SECONDS = 0.1
_NARROW = 0.01


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two models.

    Attributes:
        loaded: with copies to go through.
        groups: for each of its kernels the number of its operator, shape (kernels,).
    """

    loaded: LoadedModel
    groups: np.ndarray


@dataclasses.dataclass
class PairedTimes:
    """What was measured at one thread count, microseconds; one row a pair of copies, each a median over its rounds.

    Attributes:
        whole: shape (pairs, 2): before, after.
        operators: of each side, shape (pairs, operators); NaN where an operator failed.
    """

    whole: np.ndarray
    operators: tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Measured:
    """Attributes:
    times: by thread count.
    foreign_load: whether pairs were kept although others used the machine.
    moved: whether the pairs lay in different memory.
    """

    times: dict[int, PairedTimes]
    foreign_load: bool
    moved: bool


class Turns:
    """Measures two models.

    Args:
        threads: counts, each of which every pair is measured at.
        matched: numbers of the operators of both sides that are compared; rounds go on until these are known well.
        comparisons: that will be judged together.
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
        self._pairs: list[dict[int, tuple[np.ndarray, np.ndarray]]] = []

    def measure(self, seconds: float) -> Measured:
        """Measure pairs until the changes are known to 1 %, for so many seconds, or until there are no more copies.

        Args:
            seconds: at most, once there are `FEWEST_PAIRS`.
        """
        meter = self._machine.meter(max(self._threads))
        patience = self._machine.limits.repeat_seconds
        started = time.monotonic()
        seen: set[int] = set()
        foreign_load, moved = False, True
        with no_garbage_collection():
            while len(self._pairs) < MOST_PAIRS:
                number = len(self._pairs)
                copies = self._copies(number)
                if seen & {id(copy) for copy in copies}:
                    if number >= FEWEST_PAIRS:
                        break
                    moved = False
                seen |= {id(copy) for copy in copies}
                found, foreign, waited = self._quiet_pair(copies, number, meter, patience)
                patience -= waited
                foreign_load |= foreign
                self._pairs.append(found)
                late = time.monotonic() - started > seconds
                if number + 1 >= FEWEST_PAIRS and (late or (number % 4 == 3 and self._known())):
                    break
        return Measured({n: self._times(n) for n in self._threads}, foreign_load, moved)

    def _copies(self, number: int) -> tuple[LoadedModel, LoadedModel]:
        """The next copy of each; one model comes first in every second pair, since memory is dealt out in order."""
        if number % 2:
            after = self._sides[1].loaded.moved()
            return self._sides[0].loaded.moved(), after
        before = self._sides[0].loaded.moved()
        return before, self._sides[1].loaded.moved()

    def _quiet_pair(
        self, copies: tuple[LoadedModel, LoadedModel], number: int, meter: LoadMeter | None, patience: float
    ) -> tuple[dict[int, tuple[np.ndarray, np.ndarray]], bool, float]:
        """A pair, again while others use the machine and patience lasts; whether they did, and what that cost."""
        waited = 0.0
        while True:
            started = time.monotonic()
            if meter is not None:
                meter.read()
            found = {n: self._pair(copies, n, number) for n in self._threads}
            load = meter.read() if meter is not None else None
            foreign = load is not None and load.disturbs
            if not foreign or waited >= patience:
                return found, foreign, waited
            waited += time.monotonic() - started

    def _pair(
        self, copies: tuple[LoadedModel, LoadedModel], threads: int, number: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Median times over the rounds of a pair of copies: of each side the whole model, then its operators."""
        self._machine.threads.use(threads)
        for copy in copies:
            copy.run_model()
        rows: tuple[list[list[float]], list[list[float]]] = ([], [])
        until = time.monotonic() + _PAIR_SECONDS
        turn = number
        while len(rows[0]) < _LEAST_ROUNDS or time.monotonic() < until:
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
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
        """Whether every change is known to 1 %."""
        for threads in self._threads:
            times = self._times(threads)
            columns = [(times.whole[:, 0], times.whole[:, 1])]
            columns += [(times.operators[0][:, a], times.operators[1][:, b]) for a, b in self._matched]
            for one, other in columns:
                estimate = of_pairs(one, other)
                if estimate is not None and half_width(estimate, self._comparisons) > _NARROW:
                    return False
        return True
