"""Softmax, layer norm, means over the last axis: all that is computed of a row, row by row, and rows in parallel."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.relax.rules.blocks import (
    Unfit,
    blocks_of,
    extent,
    has_bool,
    inline,
    name_of,
    reduces,
    spatial_count,
    uses,
)
from op_profiler.compilers.relax.rules.elementwise import FEWEST_LANES
from op_profiler.compilers.relax.vectors import Vectors, divisor
from op_profiler.schedules.factors import Factors

_DEAR = ("exp",)
"""Parts of names of what is not computed again where it is read."""
_PARTIAL = "_rf"
"""Behind the name of a block of partial sums."""


def rows(schedule: Any, vectors: Vectors) -> Factors:
    """Functions whose reductions all run over the last axes, and whose last block writes rows or a value of each.

    Raises:
        Unfit: it is none.
    """
    blocks = blocks_of(schedule)
    reductions = [block for block in blocks if reduces(schedule, block)]
    if not reductions or reduces(schedule, blocks[-1]) or any(has_bool(schedule, block) for block in blocks):
        raise Unfit("no rows")
    common = spatial_count(schedule, reductions[0])
    if common == 0 or any(spatial_count(schedule, block) != common for block in reductions):
        raise Unfit("reductions over other axes")
    if any(len(schedule.get_loops(block)) < common for block in blocks):
        raise Unfit("no rows")
    if _rank(schedule, blocks[-1]) == common and not all(_along_rows(schedule, block) for block in reductions):
        raise Unfit("rows that lie apart")
    inlined = [b for b in blocks[:-1] if not reduces(schedule, b) and _rank(schedule, b) > common]
    inline(schedule, inlined, _DEAR)
    for block in reductions:
        _vector_of_sums(schedule, block, common, vectors)
    blocks = blocks_of(schedule)
    row = schedule.fuse(*schedule.get_loops(blocks[-1])[:common])
    for block in reversed(blocks[:-1]):
        schedule.compute_at(block, row, preserve_unit_loops=True)
    schedule.parallel(row)
    for block in schedule.get_child_blocks(row):
        if name_of(schedule, block).endswith(_PARTIAL):
            *_, lane, outer = schedule.get_loops(block)
            schedule.reorder(outer, lane)
            schedule.vectorize(lane)
            init = schedule.decompose_reduction(block, outer)
            schedule.vectorize(schedule.get_loops(init)[-1])
        elif not reduces(schedule, block) and _rank(schedule, block) > 1:
            _vectorize_last(schedule, block, vectors)
    return Factors(fuse=common, parallel="rows")


def _along_rows(schedule: Any, block: Any) -> bool:
    """Whether a reduction reads what lies beside each other, and not in windows as pooling does."""
    node = schedule.get(block)
    *others, last = (v.var for v in node.iter_vars)
    indices = [region.region[-1].min for region in node.reads]
    return any(uses(at, last) and not any(uses(at, other) for other in others) for at in indices)


def _rank(schedule: Any, block: Any) -> int:
    return len(schedule.get_loops(block))


def _vector_of_sums(schedule: Any, block: Any, rows: int, vectors: Vectors) -> None:
    """So many partial sums of a row as a vector has lanes, added up at the end."""
    loop = schedule.get_loops(block)[-1]
    size = extent(schedule, loop)
    lanes = divisor(size, vectors.lanes) if size else 1
    if lanes >= FEWEST_LANES:
        _, inner = schedule.split(loop, [None, lanes])
        schedule.rfactor(inner, rows)


def _vectorize_last(schedule: Any, block: Any, vectors: Vectors) -> None:
    loop = schedule.get_loops(block)[-1]
    size = extent(schedule, loop)
    lanes = divisor(size, vectors.lanes) if size else 1
    if lanes > 1:
        schedule.vectorize(schedule.split(loop, [None, lanes])[1])
