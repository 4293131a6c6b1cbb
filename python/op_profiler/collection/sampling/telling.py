"""The most informative operators for a machine without measurements, in the order in which to measure them.

``collector/choose_telling.py`` chose the first operators among random ones, ordered by their information about the
operators of the included networks: whenever the time limit is reached, the measured operators are about as informative
as any other selection of this size. `telling_points.json` contains their positions in the random draw. Batches of small
operators that stay in the cache alternate with these operators and show the call overhead. Random operators follow
after the last chosen operator. Operators that take long are left out: each would take the time of fifty others.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from op_profiler.collection.sampling import spaces
from op_profiler.collection.sampling.batch import Batch, batches_of_points, operators_of_chunk
from op_profiler.frontends.sample import CACHED
from op_profiler.operators.kinds.point import Point

POINTS_FILE = Path(__file__).with_name("telling_points.json")
_POINTS = 40
"""Number of points in a batch."""
_PRECISION = "float32"
_CACHED_KINDS = ("gates", "dense", "elementwise")
"""Kinds of small operators for the batches that stay in the cache, which alternate with the other batches. Kernels of a
tenth of a microsecond, as in networks that take microseconds, show the call overhead, which is about as long."""
_MOST_OPERATIONS, _MOST_ELEMENTS = 6e8, 8e6
_SEED = 0


def informative_batches(seed: int) -> Iterator[Batch]:
    """Yield batches without end; equal seeds give equal batches, so that a run continues where an earlier run ended.

    Args:
        seed: seed of the small operators, and of the random operators after the chosen operators.
    """
    points = itertools.chain(_chosen(), pool(seed + 1))
    cached = spaces.draw(random.Random(seed), _CACHED_KINDS)
    small = batches_of_points(cached, f"calibrate{seed}{CACHED}", seed, cached=True)  # the smallest first
    for number in itertools.count():
        chunk = list(itertools.islice(points, _POINTS))
        yield Batch(
            f"calibrate{seed}-{number:04d}",
            ["telling", [point.identity() for point in chunk]],
            functools.partial(operators_of_chunk, chunk, seed + number),
        )
        yield next(small)


def pool(seed: int = _SEED) -> Iterator[Point]:
    """Yield random float32 points (sampled shapes) of all kinds without end; points that take long are left out."""
    drawn = spaces.draw(random.Random(seed), [spaces.ALL])
    return (point for point in drawn if point.precision == _PRECISION and _is_short(point))


def digest(points: Sequence[Point]) -> str:
    """Return a digest (16 hex digits) of points, to detect that the draw changed and the chosen numbers are invalid."""
    text = json.dumps([point.identity() for point in points], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _chosen() -> list[Point]:
    numbers = json.loads(POINTS_FILE.read_text(encoding="utf-8"))["numbers"]
    drawn = list(itertools.islice(pool(), max(numbers) + 1))
    return [drawn[number] for number in numbers]


def _is_short(point: Point) -> bool:
    operations, elements = point.work()
    return operations <= _MOST_OPERATIONS and elements <= _MOST_ELEMENTS
