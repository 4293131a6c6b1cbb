"""The most informative operators for a machine without measurements, in the order in which to measure them.

Those that come first were chosen among random ones by ``collector/choose_telling.py``, in the order in which they
tell most about the operators of the networks that ship: however early the time is up, what was measured tells about
as much as so many operators can. `telling_points.json` holds their numbers in the order in which they are drawn.
Small operators that stay in the cache are measured beside them and tell what a call costs. Behind the last that was
chosen random ones follow. What takes long to run once is left out: it would tell of one operator in the time of
fifty.
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
"""Of a batch."""
_PRECISION = "float32"
_CACHED_KINDS = ("gates", "dense", "elementwise")
"""Of small operators in batches that stay in the cache, one behind each other batch. Kernels of a tenth of a
microsecond, of which a network of microseconds is made, take as long as a call and tell what it costs."""
_MOST_OPERATIONS, _MOST_ELEMENTS = 6e8, 8e6
_SEED = 0


def telling_batches(seed: int) -> Iterator[Batch]:
    """Batches without end, the same for a seed, so that a run goes on where an earlier one ended; `seed` is that of the
    small ones and of those that follow what was chosen."""
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
    """Points of all kinds without end that take little time to measure."""
    drawn = spaces.draw(random.Random(seed), [spaces.ALL])
    return (point for point in drawn if point.precision == _PRECISION and _is_short(point))


def digest(points: Sequence[Point]) -> str:
    """16 hex digits over points: another draw would give the chosen numbers to others."""
    text = json.dumps([point.identity() for point in points], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _chosen() -> list[Point]:
    numbers = json.loads(POINTS_FILE.read_text(encoding="utf-8"))["numbers"]
    drawn = list(itertools.islice(pool(), max(numbers) + 1))
    return [drawn[number] for number in numbers]


def _is_short(point: Point) -> bool:
    operations, elements = point.work()
    return operations <= _MOST_OPERATIONS and elements <= _MOST_ELEMENTS
