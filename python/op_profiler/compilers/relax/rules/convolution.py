"""Convolutions: a tile of the output stays in registers while the fused successors are applied."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.relax.convolution import registers_of
from op_profiler.compilers.relax.rules.blocks import (
    RuleMismatch,
    anchor_of,
    epilogue,
    extent,
    inline,
    name_of,
    spatial_count,
)
from op_profiler.compilers.relax.rules.nest import AnchoredFunction, nest_of, reduction_of
from op_profiler.compilers.relax.transposed import NAME as PACKED_PHASES
from op_profiler.compilers.relax.vectors import divisor
from op_profiler.compilers.vectors import Vectors
from op_profiler.schedules.nest import ROOT, Axis

_PADDED = ("pad", "dilate")
_LAYOUT = re.compile(r"conv\dd_(n[cdhw]+)$")
_CHANNELS_FIRST = {3: "ncw", 4: "nchw", 5: "ncdhw"}
_ROWS_OF_DEPTHWISE = 2  # it reads as many vectors as it sums, so half of the registers hold operands
_OPERANDS = 4  # registers that are left free where several blocks of channels are summed, each with a weight of its own


def blocked(schedule: Any, vectors: Vectors) -> AnchoredFunction:
    """Return a function that computes a convolution over blocks of channels, with the knobs of its schedule, which is
    not applied yet. The output is (n, channels, height, width, lanes).

    Raises:
        RuleMismatch: the function is not of this kind.
    """
    before, anchor, after = anchor_of(schedule)
    if "conv2d" not in name_of(schedule, anchor) or spatial_count(schedule, anchor) != len("NCHWc"):
        raise RuleMismatch("no blocked convolution")
    padded = inline(schedule, before, _PADDED)
    last = epilogue(schedule, anchor, after)
    _loops(schedule, last, len("NCHWc"))
    loops = schedule.get_loops(anchor)[: len("NCHWc")]
    batch, chunks, height, width, block = (_size(schedule, loop) for loop in loops)
    reduction = reduction_of(schedule, anchor)
    registers = registers_of(vectors, block)
    if len(reduction) == len("HW"):
        registers //= _ROWS_OF_DEPTHWISE
    columns = divisor(width, registers)
    rows = divisor(height, registers // columns) if columns == width else 1
    channels = divisor(chunks, (registers - _OPERANDS) // (rows * columns + 1))
    axes = (
        Axis("n", batch, tiled=False),
        Axis("oc", chunks),
        Axis("oh", height),
        Axis("ow", width),
        Axis("lane", block),
    )
    split = reduction[-1][0] if len(reduction) > len("HW") and reduction[-1][1] > 1 else None
    tile = {"oc": channels, "oh": rows, "ow": columns}
    order = ("n", "oc", "oh", "ow")
    feeds = ROOT if len(padded) == 1 else None
    nest = nest_of(
        axes, order, tile, reduction, split, lanes=vectors.lanes, block=block, vectorize=block, compute_at=feeds
    )
    return AnchoredFunction(schedule, nest, anchor, last, padded)


def transposed(schedule: Any, vectors: Vectors) -> AnchoredFunction:
    """Return a function that computes all phases of a transposed convolution, with the knobs of its schedule, which is
    not applied yet. The fused successors are scheduled separately, over the whole output.

    Raises:
        RuleMismatch: the function is not a convolution that `relax.transposed` packed.
    """
    before, anchor, after = anchor_of(schedule)
    if name_of(schedule, anchor) != PACKED_PHASES or inline(schedule, after[:-1]):
        raise RuleMismatch("no packed transposed convolution")
    padded = inline(schedule, before, _PADDED)
    copied = schedule.cache_write(anchor, 0, "local")
    batch, chunks, height, down, width, right, block = (_size(schedule, loop) for loop in schedule.get_loops(copied))
    columns = divisor(width, vectors.accumulators)
    rows = divisor(height, vectors.accumulators // columns) if columns == width else 1
    axes = (
        Axis("n", batch, tiled=False),
        Axis("oc", chunks),
        Axis("oh", height),
        Axis("ph", down, tiled=False, is_movable=False),
        Axis("ow", width),
        Axis("pw", right, tiled=False, is_movable=False),
        Axis("lane", block),
    )
    order = ("ph", "pw", "n", "oc", "oh", "ow")
    reduction = reduction_of(schedule, anchor)
    nest = nest_of(
        axes,
        order,
        {"oc": 1, "oh": rows, "ow": columns},
        reduction,
        reduction[0][0] if reduction[0][1] > 1 else None,
        lanes=vectors.lanes,
        block=block,
        vectorize=block,
        compute_at=ROOT if len(padded) == 1 else None,
    )
    return AnchoredFunction(schedule, nest, anchor, copied, padded, following=after[-1:])


def plain(schedule: Any, vectors: Vectors) -> AnchoredFunction:
    """Return a function that computes a convolution without blocks of channels, with the knobs of its schedule, which
    is not applied yet. The output has one to three spatial axes, and the channels first or last.

    Raises:
        RuleMismatch: the function is not of this kind.
    """
    before, anchor, after = anchor_of(schedule)
    count = spatial_count(schedule, anchor)
    if "conv" not in name_of(schedule, anchor) and "compute" not in name_of(schedule, anchor):
        raise RuleMismatch("no convolution")
    if not 3 <= count <= 5 or len(schedule.get_loops(anchor)) == count:
        raise RuleMismatch("a convolution of other dimensions")
    padded = inline(schedule, before, _PADDED)
    last = epilogue(schedule, anchor, after)
    names = _axes(name_of(schedule, anchor), count)
    sizes = [_size(schedule, loop) for loop in _loops(schedule, last, count)]
    lanes = divisor(sizes[-1], vectors.lanes)
    tile = {names[1]: divisor(sizes[1], vectors.accumulators // 2), names[-1]: lanes} | dict.fromkeys(names[2:-1], 1)
    axes = tuple(Axis(name, size, tiled=name != "n") for name, size in zip(names, sizes))
    reduction = reduction_of(schedule, anchor)
    split = reduction[0][0] if reduction[0][1] > 1 else None
    feeds = ROOT if len(padded) == 1 else None
    nest = nest_of(
        axes, names, tile, reduction, split, lanes=vectors.lanes, block=sizes[-1], vectorize=lanes, compute_at=feeds
    )
    return AnchoredFunction(schedule, nest, anchor, last, padded)


def _axes(name: str, count: int) -> tuple[str, ...]:
    """Return the names of an output's axes: TOPI writes the layout at the end of the name of a block that sums."""
    found = _LAYOUT.search(name)
    layout = found[1] if found and len(found[1]) == count else _CHANNELS_FIRST[count]
    return tuple(axis if axis == "n" else f"o{axis}" for axis in layout)


def _loops(schedule: Any, block: Any, count: int) -> Sequence[Any]:
    loops = schedule.get_loops(block)
    if len(loops) != count:
        raise RuleMismatch("what follows has other dimensions")
    return list(loops)


def _size(schedule: Any, loop: Any) -> int:
    size = extent(schedule, loop)
    if size is None:
        raise RuleMismatch("a size that is known only at run time")
    return size
