"""Tuners that do not use results, for every compiler: points in the order of their numbers, or at random."""

from __future__ import annotations

import random as generator
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from op_profiler.tuning.tuners.tuner import Tuner

if TYPE_CHECKING:
    from op_profiler.tuning.candidate import TrialResult
    from op_profiler.tuning.task import Task

_LISTED = 100_000
"""Largest space that is shuffled as a whole; in a larger one, random points hardly repeat."""


class InOrder:
    """A `Tuner` that proposes given points in order and ignores results.

    Args:
        points: valid points, each once.
    """

    def __init__(self, points: Iterator[int]) -> None:
        self._points = points
        self._next = next(points, None)

    def has_next(self) -> bool:
        """Return whether there is a point left to propose."""
        return self._next is not None

    def next_batch(self, count: int) -> Sequence[int]:
        """Return the next points, at most `count`."""
        batch: list[int] = []
        while self._next is not None and len(batch) < count:
            batch.append(self._next)
            self._next = next(self._points, None)
        return batch

    def update(self, points: Sequence[int], results: Sequence[TrialResult]) -> None:
        """Ignore the results."""


def grid(task: Task, seed: int) -> Tuner:
    """Return a tuner that proposes all valid points in the order of their numbers; `seed` has no effect."""
    return InOrder(filter(task.is_valid, range(task.size)))


def random(task: Task, seed: int) -> Tuner:
    """Return a tuner that proposes valid points at random, each once."""
    return InOrder(drawn(task, generator.Random(seed)))


def drawn(task: Task, rng: generator.Random) -> Iterator[int]:
    """Yield valid points at random, each once."""
    if task.size <= _LISTED:
        points = list(range(task.size))
        rng.shuffle(points)
        yield from filter(task.is_valid, points)
        return
    seen: set[int] = set()
    while len(seen) < task.size:
        point = rng.randrange(task.size)
        if point not in seen:
            seen.add(point)
            if task.is_valid(point):
                yield point
