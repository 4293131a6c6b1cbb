"""`Tuner`: the contract of a search strategy, which proposes points of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from op_profiler.tuning.candidate import TrialResult
    from op_profiler.tuning.task import Task


class Tuner(Protocol):
    """A search strategy for one task: it proposes points of the task's space, each at most once, from the results of
    earlier proposals."""

    def has_next(self) -> bool:
        """Return whether there is a point left to propose."""

    def next_batch(self, count: int) -> Sequence[int]:
        """Return at most `count` valid points to measure next; fewer only if the space has no more points."""

    def update(self, points: Sequence[int], results: Sequence[TrialResult]) -> None:
        """Use the results of the last proposals.

        Args:
            points: the proposed points.
            results: result of each point; a failure has no samples.
        """


class TunerFactory(Protocol):
    """A function or class that creates a tuner."""

    def __call__(self, task: Task, seed: int) -> Tuner:
        """Return a tuner; the same seed and the same results give the same proposals.

        Python's and numpy's global generators already have this seed, because AutoTVM draws from them.

        Raises:
            UsageError: the tuner only supports tasks of another compiler.
        """
