"""The most informative operators for a machine without measurements, in the order in which to measure them.

The first operators were chosen among random ones by ``collector/choose_telling.py``, in the order of their information
about the operators of the included networks: whenever the time is up, the measured operators are about as informative
as any equally large selection. `telling_points.json` contains their numbers in the order of the draw. Small operators
that stay in the cache are measured next to them and show the call overhead. Random operators follow after the last
chosen one. Operators that take long are left out: each would take the time of fifty others.
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
"""Kinds of small operators for batches that stay in the cache, one after every other batch. Kernels of a tenth of a
microsecond, as in networks of microseconds, take as long as a call and therefore show the call overhead."""
_MOST_OPERATIONS, _MOST_ELEMENTS = 6e8, 8e6
_SEED = 0


def informative_batches(seed: int) -> Iterator[Batch]:
    """Yield batches without end, equal for equal seeds, so that a run continues where an earlier one ended.

    Args:
        seed: seed of the small operators, and of the random operators after the chosen ones.
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
    """Yield points of all kinds without end that take little time to measure."""
    drawn = spaces.draw(random.Random(seed), [spaces.ALL])
    return (point for point in drawn if point.precision == _PRECISION and _is_short(point))


def digest(points: Sequence[Point]) -> str:
    """Return 16 hex digits over points: with another draw, the chosen numbers would stand for other points."""
    text = json.dumps([point.identity() for point in points], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _chosen() -> list[Point]:
    numbers = json.loads(POINTS_FILE.read_text(encoding="utf-8"))["numbers"]
    drawn = list(itertools.islice(pool(), max(numbers) + 1))
    return [drawn[number] for number in numbers]


def _is_short(point: Point) -> bool:
    operations, elements = point.work()
    return operations <= _MOST_OPERATIONS and elements <= _MOST_ELEMENTS
