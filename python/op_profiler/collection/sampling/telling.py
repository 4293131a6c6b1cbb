"""Operators that tell most about a machine of which nothing is known: each as unlike those before it as there is one.

The greedy solution of the k-centre problem (Gonzalez, Theoretical Computer Science 38, 1985) over the descriptions of
random operators: however early the time is up, what was measured covers what networks are made of.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.collection.sampling import spaces
from op_profiler.collection.sampling.run import Batch

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import Occurrence
    from op_profiler.compilers.tvm_types import Target

_BATCH = 24
_DRAWN = 3
"""Points that are drawn for each that is chosen."""


def telling_batches(seed: int) -> Iterator[Batch]:
    """Batches without end; the same ones for a seed and a target, so that a run goes on where an earlier one ended."""
    points = spaces.draw(random.Random(seed))
    before: list[np.ndarray] = []
    for number in itertools.count():
        drawn = list(itertools.islice(points, _DRAWN * _BATCH))
        yield Batch(
            f"calibrate{seed}-{number:04d}",
            ["telling", seed, number],
            lambda target, d=drawn, n=number: _telling(d, target, seed + n, before),  # type: ignore[misc]
        )


def _telling(points: Sequence[Any], target: Target, seed: int, before: list[np.ndarray]) -> list[Occurrence]:
    """The operators of a batch; `before` are the places of those of earlier batches of this run, and grows."""
    from op_profiler.collection.sampling.batches import distinct, operators_of_points
    from op_profiler.predict.latency.adapt import places_of

    pool = distinct(operators_of_points(points, target, seed))
    places = places_of([occurrence.operator for occurrence in pool])
    chosen = farthest_first(places, min(_BATCH, len(pool)), np.array(before).reshape(-1, places.shape[1]))
    before += list(places[chosen])
    return [pool[i] for i in chosen]


def farthest_first(places: np.ndarray, count: int, before: np.ndarray) -> list[int]:
    """Indices of places, each the farthest from those chosen before it.

    Args:
        places: shape (candidates, dimensions).
        before: shape (any, dimensions): chosen already; where there are none, the most central place is the first.
    """
    if len(before):
        distance = np.min(((places[:, None] - before[None]) ** 2).sum(axis=2), axis=1)
    else:
        distance = -((places - np.median(places, axis=0)) ** 2).sum(axis=1)
    chosen: list[int] = []
    for step in range(count):
        chosen.append(int(np.argmax(distance)))
        to_it = ((places - places[chosen[-1]]) ** 2).sum(axis=1)
        distance = np.minimum(distance, to_it) if step or len(before) else to_it
    return chosen
