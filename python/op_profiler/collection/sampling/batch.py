"""`Batch`: operators that are measured together as one model, created from points (sampled shapes) or from models."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.measurement import Precision
from op_profiler.operators.kinds.point import Point

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import Occurrence
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.tvm_types import Target

P = TypeVar("P", bound=Point)

BATCH_SIZES = (10, 20, 32, 48)
"""Numbers of points in the batches that a pool, ordered by size, is cut into. The memory traffic between two calls of
an operator then differs between batches as it does between networks."""

CACHED_SIZE = 8
CACHED_STEPS = (1, 10)
"""Numbers of steps (`Batch.steps`) of cached batches, in turn: 1 as in a small network that calls each operator once,
and 10 as in the steps of a recurrent network."""
_CACHED_ELEMENTS = 1 << 17
"""Largest number of elements in a cached batch: half a megabyte of float32, which stays in a second-level cache of one
megabyte from one run to the next. A full megabyte would not stay there, because the batch also writes."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """Operators that are measured as one model.

    Attributes:
        label: start of the batch's name, for users.
        identity: JSON-serializable value that, together with the target and the schedule records of the operators,
            determines the content. If only lowering determines it, a function that returns this value.
        operators: creates the operators for a target; called if no file contains the batch yet. Its second argument is
            called with the reasons why operators are left out.
        precision: precision of all operators.
        steps: how often all operators run, one after the other, in one run of the model.
    """

    label: str
    identity: object | Callable[[], object]
    operators: Callable[[Target, Callable[[str], None]], Sequence[Occurrence]]
    precision: Precision = "float32"
    steps: int = 1


def batches_of_points(points: Iterator[P], label: str, seed: int, *, cached: bool = False) -> Iterator[Batch]:
    """Yield batches of different sizes, each with points of one precision.

    Points of one precision are collected into pools in their order; each pool is sorted by size and cut into batches.

    Args:
        label: start of the batches' names.
        cached: make batches so small that their weights stay in the second-level cache, as the weights of a recurrent
            cell do between its calls; points that are too large for this are left out.
    """
    if cached:
        points = (point for point in points if point.work()[1] <= _CACHED_ELEMENTS)
    cut = (batch for pool in _pools(points) for batch in (_cut_cached(pool) if cached else _cut(pool)))
    for number, chunk in enumerate(cut):
        identity: list[object] = [point.identity() for point in chunk]
        steps = CACHED_STEPS[number % len(CACHED_STEPS)] if cached else 1
        yield Batch(
            f"{label}-{number:04d}",
            identity if steps == 1 else ["steps", steps, *identity],
            functools.partial(operators_of_chunk, chunk, seed + number),
            chunk[0].precision,
            steps,
        )


def _pools(points: Iterator[P]) -> Iterator[list[P]]:
    """Yield pools of points of one precision, each as soon as it is full; at the end, yield the incomplete pools."""
    pools: dict[str, list[P]] = {}
    for point in points:
        pool = pools.setdefault(point.precision, [])
        pool.append(point)
        if len(pool) == sum(BATCH_SIZES):
            yield pools.pop(point.precision)
    yield from pools.values()


def _cut(pool: list[P]) -> Iterator[list[P]]:
    """Cut a pool, ordered by size, into chunks of `BATCH_SIZES` points."""
    ordered = iter(sorted(pool, key=lambda point: point.work()[1]))
    for size in BATCH_SIZES:
        if chunk := list(itertools.islice(ordered, size)):
            yield chunk


def _cut_cached(pool: list[P]) -> Iterator[list[P]]:
    """Cut a pool, ordered by size, into chunks of at most `CACHED_SIZE` points and `_CACHED_ELEMENTS` elements."""
    chunk: list[P] = []
    held = 0.0
    for point in sorted(pool, key=lambda point: point.work()[1]):
        elements = point.work()[1]
        if chunk and (len(chunk) == CACHED_SIZE or held + elements > _CACHED_ELEMENTS):
            yield chunk
            chunk, held = [], 0.0
        chunk.append(point)
        held += elements
    if chunk:
        yield chunk


def operators_of_chunk(
    chunk: Sequence[Point], seed: int, target: Target, refused: Callable[[str], None]
) -> Sequence[Occurrence]:
    """Lower a chunk of points as `operators_of_points` does; if `chunk` and `seed` are bound to values, the resulting
    function can be used as `Batch.operators`."""
    from op_profiler.collection.sampling.batches import operators_of_points

    return operators_of_points(chunk, target, seed, refused)


def batches_of_models(requests: Sequence[ModelRequest]) -> Iterator[Batch]:
    """Yield one batch per model, with the distinct operators of the model."""
    for request in requests:
        frontend = FRONTENDS.get(request.source)
        frontend.check(request)
        shapes = "_".join("x".join(map(str, shape)) for shape in request.input_shapes)
        details = [f"b{request.batch_size}", shapes, f"s{request.sequence_length}" if request.sequence_length else ""]
        label = "-".join(filter(None, ["of", Path(request.name).name, *details]))
        content = frontend.fingerprint(request) or functools.partial(_content, request)
        yield Batch(label, content, functools.partial(_operators_of_model, request))


def _content(request: ModelRequest) -> str:
    return _lowered(request).content


def _operators_of_model(request: ModelRequest, target: Target, _refused: Callable[[str], None]) -> list[Occurrence]:
    from op_profiler.collection.sampling.batches import distinct

    return distinct(compiler_in_use().operators(_lowered(request), target, layers=False))


def _lowered(request: ModelRequest) -> ImportedModel:
    from op_profiler.frontends.lowered_cache import original_model

    return original_model(request)


def shuffled(points: Sequence[P], seed: int) -> Iterator[P]:
    """Return all points in a random but reproducible order, so that a run that ends early still covers every axis."""
    order = list(points)
    random.Random(seed).shuffle(order)
    return iter(order)
