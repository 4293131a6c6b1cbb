"""A tuner for every compiler: boosted trees on the knobs and the order of the loops.

The first points are the default, its neighbours and random ones. Then the trees rank thousands of untried points:
random ones, and neighbours of the best points so far and of the points ranked first. A part of each batch stays random,
because the trees are inaccurate for points that are unlike the tried ones.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.lean_imports import load_xgboost
from op_profiler.tuning.tuners.drawn import drawn
from op_profiler.tuning.tuners.tuner import Tuner

if TYPE_CHECKING:
    from op_profiler.tuning.candidate import TrialResult
    from op_profiler.tuning.task import Task

_FIRST = 16
_RANDOM = 400
_STARTS, _STEPS, _NEIGHBOURS = 24, 4, 6
_RANDOM_SHARE = 0.15
_FAILED = 4.0
"""Time that a failure counts as, relative to the slowest time so far."""


class TreesTuner:
    """A `Tuner` that ranks points by the times that boosted trees predict for them."""

    def __init__(self, task: Task, seed: int) -> None:
        self._task = task
        self._seed = seed
        self._rng = random.Random(seed)
        self._drawn = drawn(task, self._rng)
        self._proposed: set[int] = set()
        self._times: dict[int, float] = {}
        self._features: dict[int, list[float]] = {}
        self._fresh = next(self._drawn, None)

    def has_next(self) -> bool:
        """Return whether a valid point is left that was not proposed."""
        return self._fresh is not None

    def next_batch(self, count: int) -> Sequence[int]:
        """Return points with a low predicted time, and random ones for the rest of the batch.

        Until 16 points have a time, the default and its neighbours take the place of the ranked points.
        """
        measured = sum(math.isfinite(us) for us in self._times.values())
        ranked = self._ranked() if measured >= _FIRST else self._default_neighbours()
        chosen = list(itertools.islice(ranked, max(round(count * (1 - _RANDOM_SHARE)), 1)))
        self._proposed |= set(chosen)
        while len(chosen) < count and (fresh := self._take_fresh()) is not None:
            chosen.append(fresh)
        self._fresh = self._next_fresh()
        return chosen

    def update(self, points: Sequence[int], results: Sequence[TrialResult]) -> None:
        """Store the median times in microseconds; a failure counts as 4 times the slowest time."""
        self._times |= {point: result.median_us for point, result in zip(points, results)}

    def _next_fresh(self) -> int | None:
        """Return a random point that was not proposed; None if all valid points were proposed."""
        if self._fresh is not None and self._fresh not in self._proposed:
            return self._fresh
        return next((point for point in self._drawn if point not in self._proposed), None)

    def _take_fresh(self) -> int | None:
        self._fresh = point = self._next_fresh()
        if point is not None:
            self._proposed.add(point)
        return point

    def _default_neighbours(self) -> Iterable[int]:
        default = self._task.point(self._task.default().knobs)
        if default is None:
            return []
        found = dict.fromkeys([default, *(self._task.neighbour(default) for _ in range(_FIRST))])
        half = 1 + _FIRST // 2
        return [point for point in list(found)[:half] if point not in self._proposed]

    def _ranked(self) -> Iterable[int]:
        """Return points that were not proposed, the most promising first."""
        predict = self._trained()
        pool = {self._task.random_point() for _ in range(min(_RANDOM, self._task.size))}
        best = sorted(self._times, key=self._times.__getitem__)[:_STARTS]
        for _ in range(_STEPS):
            pool |= {self._task.neighbour(start) for start in best for _ in range(_NEIGHBOURS)}
            new = sorted(pool - self._proposed)
            if not new:
                return []
            order = np.argsort(predict(new), kind="stable")
            best = [new[place] for place in order[:_STARTS]]
        return [new[place] for place in order]

    def _trained(self) -> Callable[[Sequence[int]], np.ndarray]:
        xgboost = load_xgboost()
        finite = [us for us in self._times.values() if math.isfinite(us)]
        worst = max(finite) * _FAILED
        points = list(self._times)
        times = np.log([self._times[p] if math.isfinite(self._times[p]) else worst for p in points])
        data = xgboost.DMatrix(self._table(points), label=times)
        options = {
            "max_depth": 5,
            "eta": 0.15,
            "subsample": 0.9,
            "min_child_weight": 1,
            "nthread": 1,
            "seed": self._seed,
        }
        model = xgboost.train(options, data, num_boost_round=60)
        return lambda asked: np.asarray(model.predict(xgboost.DMatrix(self._table(asked))))

    def _table(self, points: Sequence[int]) -> np.ndarray:
        for point in points:
            if point not in self._features:
                self._features[point] = _features(self._task, point)
        return np.asarray([self._features[point] for point in points], dtype="float32")


def trees(task: Task, seed: int) -> Tuner:
    """Return a tuner that ranks points by boosted trees, fitted anew for each batch."""
    return TreesTuner(task, seed)


def _features(task: Task, point: int) -> list[float]:
    """Return the features of a point: logarithms of its knobs, the position of each loop if the order is known, and the
    logarithm of the size of the tile."""
    schedule = task.schedule(point)
    numbers = [_number(value) for values in schedule.knobs.values() for value in _flat(values)]
    reorder = schedule.factors.reorder or ""
    order = reorder.split() if "|" in reorder else []  # TVM's templates list knobs, for some points only
    places = {name: float(place) for place, name in enumerate(order)}
    tile = math.prod((schedule.factors.tile or {}).values())
    return [*numbers, *(places[name] for name in sorted(places)), math.log2(max(tile, 1))]


def _flat(value: object) -> Sequence[object]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _number(value: object) -> float:
    if isinstance(value, (int, float)):
        return math.copysign(math.log2(1 + abs(value)), value)
    return float(sum(map(ord, str(value))))
