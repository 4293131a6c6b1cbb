"""`Batch`: operators that are measured together, made from points or from models."""

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
"""Points of the batches that are cut out of a pool, in which points are in the order of their size: what goes through
the caches between two calls of an operator then differs from batch to batch as it does between networks."""

CACHED_SIZE = 8
CACHED_STEPS = (1, 10)
"""By turns, how often a batch whose weights stay in the cache runs within one run of its model: as a small network that
calls each operator once, and as the steps of a recurrent one."""
_CACHED_ELEMENTS = 1 << 17
"""Half a megabyte of float32 in a batch: what it keeps in the second-level cache from one run to the next. A whole one
is more than a cache of a megabyte keeps beside what the batch writes."""


@dataclasses.dataclass(frozen=True)
class Batch:
    """Operators that are measured as one model.

    Attributes:
        label: for people, the start of the batch's name.
        identity: plain JSON values; together with the target and the schedule records that the operators ask for they
            decide the content. Where only lowering tells them, what answers with them.
        operators: makes the content for a target; called where no file has it yet. What it is given beside is told why
            an operator is left out.
        precision: of all of them.
        steps: how often all of them run, one after the other, in one run of the model.
    """

    label: str
    identity: object | Callable[[], object]
    operators: Callable[[Target, Callable[[str], None]], Sequence[Occurrence]]
    precision: Precision = "float32"
    steps: int = 1


def batches_of_points(points: Iterator[P], label: str, seed: int, *, cached: bool = False) -> Iterator[Batch]:
    """Points in batches of changing size, each of one precision; those of a precision come in their order.

    Args:
        cached: batches are so small that their weights stay in the second-level cache, as those of a recurrent cell do
            between its calls; points that are too large for that are left out.
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
    """Points of one precision each, as soon as there are enough of it; at the end what is left."""
    pools: dict[str, list[P]] = {}
    for point in points:
        pool = pools.setdefault(point.precision, [])
        pool.append(point)
        if len(pool) == sum(BATCH_SIZES):
            yield pools.pop(point.precision)
    yield from pools.values()


def _cut(pool: list[P]) -> Iterator[list[P]]:
    """A pool in the order of size, in pieces of `BATCH_SIZES`."""
    ordered = iter(sorted(pool, key=lambda point: point.work()[1]))
    for size in BATCH_SIZES:
        if chunk := list(itertools.islice(ordered, size)):
            yield chunk


def _cut_cached(pool: list[P]) -> Iterator[list[P]]:
    """A pool in the order of size, in pieces of `CACHED_SIZE` at most that hold `_CACHED_ELEMENTS` at most."""
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
    """Return the operators of one batch, as `Batch` needs them; see `operators_of_points`."""
    from op_profiler.collection.sampling.batches import operators_of_points

    return operators_of_points(chunk, target, seed, refused)


def batches_of_models(requests: Sequence[ModelRequest]) -> Iterator[Batch]:
    """The distinct operators of each model, one batch a model."""
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
    """All points in an order that is random but always the same, so that a run that is cut short covers every axis."""
    order = list(points)
    random.Random(seed).shuffle(order)
    return iter(order)
