"""Matrix products and batches of them, with any number of rows: a tile of the output stays in registers."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.relax.batched import TRANSPOSED
from op_profiler.compilers.relax.rules.blocks import (
    RuleMismatch,
    anchor_of,
    epilogue,
    extent,
    inline,
    name_of,
    spatial_count,
)
from op_profiler.compilers.relax.rules.nest import AnchoredFunction, in_parts, nest_of, reduction_of
from op_profiler.compilers.relax.vectors import divisor, lanes_of
from op_profiler.compilers.vectors import Vectors
from op_profiler.schedules.nest import Axis

_VECTORS_OF_A_ROW = 4
_DYNAMIC_ROWS = 4


def product(schedule: Any, vectors: Vectors) -> AnchoredFunction:
    """Return a function that computes a product, with the knobs of its schedule, which is not applied yet.

    The output is (..., rows, columns), the left side (..., rows, depth) and the right side (..., depth, columns).

    Raises:
        RuleMismatch: the function is not of this kind, or its columns are only known at run time.
    """
    before, anchor, after = anchor_of(schedule)
    if "matmul" not in name_of(schedule, anchor):
        raise RuleMismatch("no product")
    count = spatial_count(schedule, anchor)
    before = inline(schedule, before, [TRANSPOSED])
    last = epilogue(schedule, anchor, after)
    loops = schedule.get_loops(last)
    if len(loops) != count or count < 2 or len(schedule.get_loops(anchor)) != count + 1:
        raise RuleMismatch("a product of other dimensions")
    *batch, rows, columns = (extent(schedule, loop) for loop in loops)
    if columns is None:
        raise RuleMismatch("a number of columns that is known only at run time")
    block = _block_of_columns(schedule, anchor) or columns
    lanes = lanes_of(block, vectors) if rows == 1 else divisor(block, vectors.lanes)
    wide = divisor(block // lanes, _VECTORS_OF_A_ROW)
    registers = wide * -(-lanes // vectors.lanes)
    tall = _DYNAMIC_ROWS if rows is None else divisor(rows, max(vectors.accumulators // registers, 1))
    others = [Axis(f"b{number}" if number else "b", size, tiled=False) for number, size in enumerate(batch)]
    axes = (*others, Axis("y", rows), Axis("x", columns))
    order = (*(axis.name for axis in others), "x", "y")
    reduction = reduction_of(schedule, anchor)
    split = reduction[0][0] if reduction[0][1] > 1 else None
    tile = {"y": tall, "x": wide * lanes}
    nest = nest_of(axes, order, tile, reduction, split, lanes=vectors.lanes, block=block, vectorize=lanes)
    return AnchoredFunction(schedule, in_parts(nest), anchor, last, before)


def _block_of_columns(schedule: Any, anchor: Any) -> int | None:
    """Return the number of contiguous columns in a weight that `relax.dense` packed; None for other weights."""
    if "packed" not in name_of(schedule, anchor):
        return None
    *_, weight = schedule.get(anchor).reads
    return int(weight.source.shape[-1])
