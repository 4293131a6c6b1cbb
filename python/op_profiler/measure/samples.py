"""`Samples`: times of the rounds so far; and functions that find the operators with most of the model's time."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from op_profiler.operators.operator import Operator

WHOLE_MODEL = -1
"""Key of the whole model in `Samples.failed`; the key of an operator is its number."""


def numbers(operators: Sequence[Operator]) -> Iterator[tuple[str, int]]:
    """Yield pairs: a name in ``failed_rounds`` of `ModelTiming.details`, and the corresponding key in `Samples.failed`.

    The pair of the whole model comes first, then the pairs of the operators.

    Args:
        operators: operators in the order of their numbers.
    """
    yield "model", WHOLE_MODEL
    yield from ((operator.key, number) for number, operator in enumerate(operators))


@dataclasses.dataclass
class Samples:
    """All samples so far at one thread count; times are in microseconds.

    Attributes:
        whole_us: time of the whole model, one entry per round.
        kernels_us: times of the kernels, one row per round, one column per kernel; NaN if a kernel failed or was not
            timed.
        foreign: whether the round was measured under background load in spite of repetitions, one entry per round.
        probe_us: times of the reference kernels, one row per window, one column per kernel; empty without them.
        window_rounds: number of rounds of each window with a row in `probe_us`.
        exchange_us: time of the exchange between cores (`HostState`), one entry per window: the larger of the readings
            before and after the rounds; empty at one thread.
        call_overhead_us: overhead that is included in each time of `kernels_us`, one entry per window; empty if times
            include no overhead.
        launch_gap_us: time in which the whole model waits for launches, one entry per window; empty on devices without
            launches.
        conditions: state of the machine (`ConditionsOfWindow`), one entry per window; empty if unknown.
        failed: number of rounds in which a call failed, by operator number or `WHOLE_MODEL`; includes discarded rounds.
        discarded: number of rounds that were disturbed and discarded.
    """

    whole_us: list[float] = dataclasses.field(default_factory=list)
    kernels_us: list[list[float]] = dataclasses.field(default_factory=list)
    foreign: list[bool] = dataclasses.field(default_factory=list)
    probe_us: list[tuple[float, ...]] = dataclasses.field(default_factory=list)
    window_rounds: list[int] = dataclasses.field(default_factory=list)
    exchange_us: list[float] = dataclasses.field(default_factory=list)
    call_overhead_us: list[float] = dataclasses.field(default_factory=list)
    launch_gap_us: list[float] = dataclasses.field(default_factory=list)
    conditions: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    failed: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)
    discarded: int = 0

    @property
    def rounds(self) -> int:
        """Number of rounds that were kept."""
        return len(self.whole_us)

    @property
    def discarded_share(self) -> float | None:
        """Return the share of discarded rounds among all rounds, 0 to 1; None if there was no round."""
        return self.discarded / (self.rounds + self.discarded) if self.rounds + self.discarded else None

    def extend(self, new: Samples, foreign: bool) -> None:
        """Append the rounds of a window; `failed` and `discarded` of `new` are not added.

        Args:
            foreign: whether the rounds were measured under background load.
        """
        self.whole_us += new.whole_us
        self.kernels_us += new.kernels_us
        self.foreign += [foreign] * new.rounds
        self.probe_us += new.probe_us
        self.window_rounds += [new.rounds] * len(new.probe_us)
        self.exchange_us += new.exchange_us
        self.call_overhead_us += new.call_overhead_us
        self.launch_gap_us += new.launch_gap_us
        self.conditions += new.conditions

    def clear(self) -> None:
        """Remove all rounds; the counts of failed and discarded rounds are kept."""
        for field in dataclasses.fields(self):
            if field.name not in ("failed", "discarded"):
                getattr(self, field.name).clear()

    def count_failures(self, new: Samples, groups: np.ndarray, timed: Sequence[bool]) -> None:
        """Add to `failed` the rounds of a window in which the whole model, or a kernel that had to be timed, failed.

        Args:
            new: samples of the window.
            groups: as in `per_operator`.
            timed: for each kernel, whether it should have been timed.
        """
        failed = np.isnan(new.matrix()) & np.asarray(timed, dtype=bool)
        for group in np.unique(groups[failed.any(axis=0)]):
            self.failed[int(group)] += int(failed[:, groups == group].any(axis=1).sum())
        self.failed[WHOLE_MODEL] += int(np.isnan(new.whole_us).sum())

    def failure(self, number: int) -> str | None:
        """Return the error of an operator or of the whole model that failed in any round; None if it never failed.

        Args:
            number: number of an operator, or `WHOLE_MODEL`.
        """
        count = self.failed[number]
        return f"failed in {count} of {self.rounds + self.discarded} rounds" if count else None

    def matrix(self) -> np.ndarray:
        """Return `kernels_us` as an array, shape (rounds, kernels)."""
        return np.asarray(self.kernels_us, dtype=np.float64)

    def sums_us(self) -> np.ndarray:
        """Return the sum of kernel times in each round, shape (rounds,), without kernels that a round did not time."""
        if not self.rounds:
            return np.empty(0)
        matrix = self.matrix()
        return np.asarray(matrix[:, ~np.isnan(matrix).any(axis=0)].sum(axis=1))

    def overhead_us(self) -> float | None:
        """Return the median call overhead over the windows, microseconds; None if times include no overhead."""
        return round(float(np.median(self.call_overhead_us)), 3) if self.call_overhead_us else None

    def gap_us(self) -> float | None:
        """Return the median of `launch_gap_us` over the windows, microseconds; None on devices without launches."""
        return round(float(np.median(self.launch_gap_us)), 3) if self.launch_gap_us else None


def per_operator(matrix: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the mean time over the calls of each operator in each round.

    Args:
        matrix: times of kernels, shape (rounds, kernels); NaN if a kernel was not timed.
        groups: index of each kernel's operator, 0 to operators - 1, shape (kernels,).

    Returns:
        Mean times, shape (rounds, operators); NaN if any call of the operator has no time.
    """
    count = np.bincount(groups)
    sums = np.zeros((len(matrix), len(count)))
    np.add.at(sums.T, groups, matrix.T)
    return sums / count


def heavy_operators(matrix: np.ndarray, groups: np.ndarray, coverage: float) -> np.ndarray:
    """Return which operators are heavy: the largest ones that together make up `coverage` of the summed time.

    Args:
        matrix: times of kernels, shape (rounds, kernels), at least one round.
        groups: as in `per_operator`.
        coverage: share of the summed time, 0 to 1.

    Returns:
        Mask of the heavy operators, shape (operators,).
    """
    medians = np.nan_to_num(np.median(per_operator(matrix, groups), axis=0), nan=0.0)
    totals = medians * np.bincount(groups)
    order = np.argsort(totals)[::-1]
    reached = np.cumsum(totals[order]) - totals[order]
    heavy = np.zeros(len(totals), dtype=bool)
    heavy[order[reached < coverage * totals.sum()]] = True
    return heavy
