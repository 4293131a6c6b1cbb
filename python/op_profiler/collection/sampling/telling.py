"""Operators that tell most about a machine of which nothing is known: those that stand for what networks are made of.

Random operators are described without a compiler; of these, each batch takes those that bring the operators of the
networks of the datasets that ship nearest to one that is measured. That is the greedy solution of the p-median problem,
within 1 - 1/e of the best (Nemhauser, Wolsey & Fisher, Mathematical Programming 14, 1978): however early the time is
up, what was measured covers most of what networks spend their time on. Kinds that only a compiler describes are drawn
beside them, and small operators that stay in the cache, which tell what a call costs. Where none is left that would
come nearer, or where what ships was removed, random ones follow. What takes long to run once is left out: it would tell
of one operator in the time of fifty.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.collection.sampling import spaces
from op_profiler.collection.sampling.batch import Batch, batches_of_points, operators_of_chunk
from op_profiler.collection.sampling.point import Point
from op_profiler.frontends.sample import CACHED

if TYPE_CHECKING:
    from op_profiler.operators.operator import Operator

_CHOSEN, _DRAWN = 32, 8
"""Points of a batch: chosen among those that are described, and drawn of other kinds."""
_POOL = 2000
_OTHER_KINDS = (
    "conv2d_grouped",
    "conv2d_wide_groups",
    "conv2d_transpose",
    "layer_norm",
    "transpose",
    "concatenate",
    "mean",
)
_CACHED_KINDS, _CACHED_EVERY = ("gates", "dense", "elementwise"), 3
"""Of small operators in batches that stay in the cache, one behind so many others: networks of microseconds."""
_SHUFFLED = 12
"""Of these batches, which are drawn in the order of their size."""
_MOST_OPERATIONS, _MOST_ELEMENTS = 6e8, 8e6


def telling_batches(seed: int) -> Iterator[Batch]:
    """Batches without end; the same for a seed and what ships, so that a run goes on where an earlier one ended."""
    chosen = itertools.chain(_representatives(seed), filter(_is_short, spaces.draw(random.Random(seed + 1))))
    others = filter(_is_short, spaces.draw(random.Random(seed), _OTHER_KINDS))
    small = _small(seed)
    for number in itertools.count():
        if number % _CACHED_EVERY == 1:
            yield next(small)
        points = [*itertools.islice(chosen, _CHOSEN), *itertools.islice(others, _DRAWN)]
        yield Batch(
            f"calibrate{seed}-{number:04d}",
            ["representative", [repr(point) for point in points]],
            functools.partial(operators_of_chunk, points, seed + number),
        )


def _small(seed: int) -> Iterator[Batch]:
    """Batches that stay in the cache, of all sizes from the start on."""
    points = spaces.draw(random.Random(seed), _CACHED_KINDS)
    found = batches_of_points(points, f"calibrate{seed}{CACHED}", seed, cached=True)
    first = list(itertools.islice(found, _SHUFFLED))
    random.Random(seed).shuffle(first)
    return itertools.chain(first, found)


def nearest_first(wanted: np.ndarray, weight: np.ndarray, pool: np.ndarray) -> Iterator[int]:
    """Indices of the pool, each the one that lowers the weighted sum of distances most from what is wanted to the
    nearest that was taken; ends where none lowers it. What one gains only ever shrinks, so it is asked again of those
    alone that may be the best (Minoux, Accelerated greedy algorithms for maximizing submodular set functions, 1978).

    Args:
        wanted: places, shape (wanted, dimensions); `weight`: one each.
        pool: places, shape (candidates, dimensions).
    """
    squares = (pool**2).sum(axis=1)[:, None] - 2 * pool @ wanted.T + (wanted**2).sum(axis=1)
    distance = np.sqrt(np.maximum(squares, 0.0))
    nearest = distance.max(axis=0)
    gains = [(-gain, at) for at, gain in enumerate(((nearest - distance) @ weight).tolist())]
    heapq.heapify(gains)
    while gains:
        _, at = gains[0]
        gain = float(np.maximum(nearest - distance[at], 0.0) @ weight)
        if gain <= 0:
            heapq.heappop(gains)
            continue
        heapq.heapreplace(gains, (-gain, at))
        if gains[0][1] == at:
            heapq.heappop(gains)
            yield at
            nearest = np.minimum(nearest, distance[at])


def _representatives(seed: int) -> Iterator[Point]:
    from op_profiler.predict.latency.adapt import places_of
    from op_profiler.shipped import shipped_processors

    files = [one.operators for one in shipped_processors() if one.operators is not None]
    if not files:
        return iter(())
    pool, described = _described_pool(seed)
    wanted, weight = (np.concatenate(parts) for parts in zip(*map(_operators_of_networks, files)))
    return (pool[at] for at in nearest_first(wanted, weight, places_of(described)))


@functools.cache
def _operators_of_networks(file: Path) -> tuple[np.ndarray, np.ndarray]:
    """Places of the operators of the networks of a dataset, and the root of each one's share of its network's time:
    what takes most counts most, and the rest too."""
    from op_profiler.predict.latency.adapt import places_of
    from op_profiler.predict.latency.devices import rows_of_file
    from op_profiler.predict.latency.examples import COLUMNS, examples_of

    examples = examples_of(rows_of_file(file, COLUMNS, [("model_source", "!=", "sample"), ("threads", "=", 1)]))
    spent = examples.latency_us * examples.occurrences
    share = spent / np.bincount(examples.model, spent)[examples.model]
    weight = np.bincount(examples.operator, share, minlength=len(examples.operators))
    used = np.flatnonzero(weight)
    return places_of([examples.operators[at] for at in used]), np.sqrt(weight[used])


def _described_pool(seed: int) -> tuple[list[Point], list[Operator]]:
    from op_profiler.collection.sampling.described import described
    from op_profiler.errors import UsageError

    pool: list[Point] = []
    operators: list[Operator] = []
    for point in filter(_is_short, spaces.draw(random.Random(seed))):
        try:
            operators.append(described(point))
        except UsageError:
            continue
        pool.append(point)
        if len(pool) == _POOL:
            break
    return pool, operators


def _is_short(point: Point) -> bool:
    operations, elements = point.work()
    return operations <= _MOST_OPERATIONS and elements <= _MOST_ELEMENTS
