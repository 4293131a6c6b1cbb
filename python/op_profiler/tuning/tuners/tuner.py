"""`Tuner`: the contract of a strategy that proposes points of a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from op_profiler.tuning.candidate import TrialResult
    from op_profiler.tuning.task import Task


class Tuner(Protocol):
    """Walks the space of one task, each point at most once. It learns from what became of its proposals."""

    def has_next(self) -> bool:
        """Whether there is a point left to propose."""

    def next_batch(self, count: int) -> Sequence[int]:
        """Return at most `count` valid points; fewer where the space ends."""

    def update(self, points: Sequence[int], results: Sequence[TrialResult]) -> None:
        """Learn from the last proposals; a failure has no samples."""


class TunerFactory(Protocol):
    """Makes a tuner for a task."""

    def __call__(self, task: Task, seed: int) -> Tuner:
        """The same seed gives the same proposals for the same results. Python's and numpy's global generators have this
        seed already: AutoTVM draws from them.

        Raises:
            UsageError: it searches the tasks of another compiler only.
        """
