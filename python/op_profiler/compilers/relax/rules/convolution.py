"""Convolutions: a tile of the output in registers, what follows applied to it while it is there."""

from __future__ import annotations

from collections.abc import Sequence
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
from op_profiler.compilers.relax.transposed import NAME as PACKED_PHASES
from op_profiler.compilers.relax.vectors import Vectors, divisor
from op_profiler.schedules.factors import Factors

_PADDED = ("pad", "dilate")
_PHASED_AXES = 7  # n, channels, row, phase, column, phase, lane
_ROWS_OF_DEPTHWISE = 2  # it reads as many vectors as it sums, so half of the registers hold operands


def blocked(schedule: Any, vectors: Vectors) -> Factors:
    """Over blocks of channels: output (n, channels, height, width, lanes).

    Raises:
        Unfit: it is none.
    """
    before, anchor, after = anchor_of(schedule)
    if "conv2d" not in name_of(schedule, anchor) or spatial_count(schedule, anchor) != len("NCHWc"):
        raise Unfit("no blocked convolution")
    padded = inline(schedule, before, _PADDED)
    last = epilogue(schedule, anchor, after)
    batch, channel, row, column, lane = _loops(schedule, last, len("NCHWc"))
    height, width, block = (_size(schedule, loop) for loop in (row, column, lane))
    reduction = schedule.get_loops(anchor)[len("NCHWc") :]
    registers = max(vectors.accumulators * vectors.lanes // max(block, vectors.lanes), 1)
    if len(reduction) == len("HW"):
        registers //= _ROWS_OF_DEPTHWISE
    columns = divisor(width, registers)
    rows = divisor(height, registers // columns) if columns == width else 1
    row_outer, row_inner = schedule.split(row, [None, rows])
    column_outer, column_inner = schedule.split(column, [None, columns])
    schedule.reorder(batch, channel, row_outer, column_outer, row_inner, column_inner, lane)
    schedule.parallel(schedule.fuse(batch, channel, row_outer))
    schedule.vectorize(lane)
    spatial, reduction = loops_of_tile(schedule, anchor, column_outer, len("NCHWc"))
    sum_in_registers(schedule, anchor, spatial[:2], reduction, spatial[2:])
    schedule_blocks(schedule, vectors, padded)
    return Factors(
        tile={"oc": block, "oh": rows, "ow": columns},
        fuse=3,
        compute_at="root" if padded else None,
        vectorize=block,
        unroll="oh ow",
        parallel="n oc oh",
    )


def transposed(schedule: Any, vectors: Vectors) -> Factors:
    """All phases of a transposed convolution: blocks of channels, then what follows it over the whole output.

    Raises:
        Unfit: it is none that `relax.transposed` packed.
    """
    before, anchor, after = anchor_of(schedule)
    if name_of(schedule, anchor) != PACKED_PHASES or inline(schedule, after[:-1]):
        raise Unfit("no packed transposed convolution")
    padded = inline(schedule, before, _PADDED)
    copied = schedule.cache_write(anchor, 0, "local")
    batch, channel, row, down, column, right, lane = schedule.get_loops(copied)
    height, width, block = (_size(schedule, loop) for loop in (row, column, lane))
    columns = divisor(width, vectors.accumulators)
    rows = divisor(height, vectors.accumulators // columns) if columns == width else 1
    row_outer, row_inner = schedule.split(row, [None, rows])
    column_outer, column_inner = schedule.split(column, [None, columns])
    schedule.reorder(batch, channel, down, right, row_outer, column_outer, row_inner, column_inner, lane)
    schedule.parallel(schedule.fuse(batch, channel, down, right, row_outer))
    schedule.vectorize(lane)
    spatial, reduction = loops_of_tile(schedule, anchor, column_outer, _PHASED_AXES)
    batch, channel, row, down, column, right, lane = spatial
    sum_in_registers(schedule, anchor, [batch, channel, down, right], reduction, [row, column, lane])
    schedule_blocks(schedule, vectors, [*padded, after[-1]])
    return Factors(
        tile={"oc": block, "oh": rows, "ow": columns},
        fuse=5,
        compute_at="root" if padded else None,
        vectorize=block,
        unroll="oh ow",
        parallel="n oc oh",
    )


def plain(schedule: Any, vectors: Vectors) -> Factors:
    """With the width as the innermost dimension: output (n, channels, width) to (n, channels, depth, height, width).

    Raises:
        Unfit: it is none.
    """
    before, anchor, after = anchor_of(schedule)
    axes = spatial_count(schedule, anchor)
    if "conv" not in name_of(schedule, anchor) and "compute" not in name_of(schedule, anchor):
        raise Unfit("no convolution")
    if not 3 <= axes <= 5 or len(schedule.get_loops(anchor)) == axes:
        raise Unfit("a convolution of other dimensions")
    padded = inline(schedule, before, _PADDED)
    last = epilogue(schedule, anchor, after)
    batch, channel, *rows, column = _loops(schedule, last, axes)
    lanes = divisor(_size(schedule, column), vectors.lanes)
    channels = divisor(_size(schedule, channel), vectors.accumulators // 2)
    channel_outer, channel_inner = schedule.split(channel, [None, channels])
    column_outer, column_inner = schedule.split(column, [None, lanes])
    schedule.reorder(batch, channel_outer, *rows, column_outer, channel_inner, column_inner)
    schedule.parallel(schedule.fuse(batch, channel_outer, *rows))
    schedule.vectorize(column_inner)
    spatial, reduction = loops_of_tile(schedule, anchor, column_outer, axes)
    batch, channel, *rows, column = spatial
    sum_in_registers(schedule, anchor, [batch, *rows], reduction, [channel, column])
    schedule_blocks(schedule, vectors, padded)
    return Factors(
        tile={"oc": channels, "ow": lanes},
        fuse=2 + len(rows),
        compute_at="root" if padded else None,
        vectorize=lanes,
        unroll="oc",
        parallel="n oc oh",
    )


def _loops(schedule: Any, block: Any, count: int) -> Sequence[Any]:
    loops = schedule.get_loops(block)
    if len(loops) != count:
        raise Unfit("what follows has other dimensions")
    return list(loops)


def _size(schedule: Any, loop: Any) -> int:
    size = extent(schedule, loop)
    if size is None:
        raise Unfit("a size that only run time tells")
    return size
