"""Matrix products and batches of them, with any number of rows: a tile of the output in registers."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.relax.rules.blocks import (
    Unfit,
    anchor_of,
    epilogue,
    extent,
    inline,
    loops_of_tile,
    name_of,
    spatial_count,
    sum_in_registers,
)
from op_profiler.compilers.relax.rules.elementwise import schedule_blocks
from op_profiler.compilers.relax.vectors import Vectors, divisor, lanes_of
from op_profiler.schedules.factors import Factors

_VECTORS_OF_A_ROW = 4
_DYNAMIC_ROWS = 4


def product(schedule: Any, vectors: Vectors) -> Factors:
    """Output (..., rows, columns) of left (..., rows, depth) and right (..., depth, columns).

    Raises:
        Unfit: it is none, or its columns are only known at run time.
    """
    before, anchor, after = anchor_of(schedule)
    if "matmul" not in name_of(schedule, anchor):
        raise Unfit("no product")
    axes = spatial_count(schedule, anchor)
    before = inline(schedule, before)
    last = epilogue(schedule, anchor, after)
    loops = schedule.get_loops(last)
    if len(loops) != axes or axes < 2 or len(schedule.get_loops(anchor)) != axes + 1:
        raise Unfit("a product of other dimensions")
    *batch, row, column = loops
    columns, rows = extent(schedule, column), extent(schedule, row)
    if columns is None:
        raise Unfit("columns that only run time tells")
    block = _block_of_columns(schedule, anchor) or columns
    lanes = lanes_of(block, vectors) if rows == 1 else divisor(block, vectors.lanes)
    wide = divisor(block // lanes, _VECTORS_OF_A_ROW)
    registers = wide * -(-lanes // vectors.lanes)
    tall = _DYNAMIC_ROWS if rows is None else divisor(rows, max(vectors.accumulators // registers, 1))
    column_outer, column_middle, column_inner = schedule.split(column, [None, wide, lanes])
    row_outer, row_inner = schedule.split(row, [None, tall])
    schedule.reorder(*batch, column_outer, row_outer, row_inner, column_middle, column_inner)
    schedule.parallel(schedule.fuse(*batch, column_outer))
    schedule.vectorize(column_inner)
    (*batch, row, column), depth = loops_of_tile(schedule, anchor, row_outer, axes)
    sum_in_registers(schedule, anchor, batch, depth, [row, *schedule.split(column, [None, lanes])])
    schedule_blocks(schedule, vectors, before)
    return Factors(
        tile={"y": tall, "x": wide * lanes}, fuse=len(batch) + 1, vectorize=lanes, unroll="y x", parallel="b x"
    )


def _block_of_columns(schedule: Any, anchor: Any) -> int | None:
    """Columns that lie beside each other in a weight that `relax.dense` packed; None in others."""
    if "packed" not in name_of(schedule, anchor):
        return None
    *_, weight = schedule.get(anchor).reads
    return int(weight.source.shape[-1])
