"""`Samples`: times of the rounds so far, and the operators that make up most of the model's time."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from op_profiler.operators.operator import Operator

WHOLE_MODEL = -1
"""Key of the whole model in `Samples.failed`; operators are keyed by their numbers."""


def numbers(operators: Sequence[Operator]) -> Iterator[tuple[str, int]]:
    """Return the keys of `Samples.failed` for the names in ``failed_rounds`` of `ModelTiming.details`."""
    yield "model", WHOLE_MODEL
    yield from ((operator.key, number) for number, operator in enumerate(operators))


@dataclasses.dataclass
class Samples:
    """All times so far at one thread count.

    Attributes:
        whole_us: time of the whole model, one entry per round.
        kernels_us: one row per round, one column per kernel; NaN if a kernel failed or was not timed.
        foreign: one entry per round: whether it was measured under background load in spite of repetitions.
        probe_us: one row per window, one column per reference kernel; empty if there are none.
        window_rounds: number of rounds after each of these readings.
        exchange_us: one entry per window, the larger of the readings of `HostState` before and after its rounds; empty
            at one thread.
        call_overhead_us: one entry per window, the overhead included in each time of `kernels_us`; empty if there is
            none.
        launch_gap_us: one entry per window, the time in which the whole model waits for launches; empty if there are no
            launches.
        conditions: one entry per window, the state of the machine (`ConditionsOfWindow`); empty if unknown.
        failed: number of rounds in which a call failed, by operator number; includes discarded rounds.
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
        """Return the share of discarded rounds among all, 0 to 1; None without a round."""
        return self.discarded / (self.rounds + self.discarded) if self.rounds + self.discarded else None

    def extend(self, new: Samples, foreign: bool) -> None:
        """Append the rounds of a window without its counts; `foreign` marks all of them."""
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
        """Remove all rounds; counts stay."""
        for field in dataclasses.fields(self):
            if field.name not in ("failed", "discarded"):
                getattr(self, field.name).clear()

    def count_failures(self, new: Samples, groups: np.ndarray, timed: Sequence[bool]) -> None:
        """Add the rounds of a window in which the whole model, or a call that should have been timed, failed.

        Args:
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
        """Return the measured times, shape (rounds, kernels)."""
        return np.asarray(self.kernels_us, dtype=np.float64)

    def sums_us(self) -> np.ndarray:
        """Return, per round, the sum over the kernels that every round timed, shape (rounds,)."""
        if not self.rounds:
            return np.empty(0)
        matrix = self.matrix()
        return np.asarray(matrix[:, ~np.isnan(matrix).any(axis=0)].sum(axis=1))

    def overhead_us(self) -> float | None:
        """Return the median call overhead over the windows, in whole nanoseconds; None where times contain none."""
        return round(float(np.median(self.call_overhead_us)), 3) if self.call_overhead_us else None

    def gap_us(self) -> float | None:
        """Return the median of `launch_gap_us` over the windows; None if there are no launches."""
        return round(float(np.median(self.launch_gap_us)), 3) if self.launch_gap_us else None


def per_operator(matrix: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the mean over the calls of each operator, round by round.

    Args:
        matrix: shape (rounds, kernels); NaN where a kernel was not timed.
        groups: shape (kernels,); for each kernel the number of its operator, 0 to operators - 1.

    Returns:
        Shape (rounds, operators); NaN where any occurrence has no time.
    """
    count = np.bincount(groups)
    sums = np.zeros((len(matrix), len(count)))
    np.add.at(sums.T, groups, matrix.T)
    return sums / count


def heavy_operators(matrix: np.ndarray, groups: np.ndarray, coverage: float) -> np.ndarray:
    """Return which operators make up `coverage` of the summed time, from the largest down.

    Args:
        matrix: shape (rounds, kernels), at least one round.
        groups: as in `per_operator`.
        coverage: share of the time, 0 to 1.

    Returns:
        Boolean array, shape (operators,).
    """
    medians = np.nan_to_num(np.median(per_operator(matrix, groups), axis=0), nan=0.0)
    totals = medians * np.bincount(groups)
    order = np.argsort(totals)[::-1]
    reached = np.cumsum(totals[order]) - totals[order]
    heavy = np.zeros(len(totals), dtype=bool)
    heavy[order[reached < coverage * totals.sum()]] = True
    return heavy
