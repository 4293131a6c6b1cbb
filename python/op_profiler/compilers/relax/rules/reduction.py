"""Pooling, and reductions over axes other than the last: neighbouring outputs are computed as a vector."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.relax.rules.blocks import (
    RuleMismatch,
    anchor_of,
    blocks_of,
    epilogue,
    extent,
    has_bool,
    inline,
    reads_across,
    spatial_count,
)
from op_profiler.compilers.relax.rules.elementwise import FEWEST_LANES
from op_profiler.compilers.relax.rules.nest import AnchoredFunction, in_parts, nest_of, reduction_of
from op_profiler.compilers.relax.vectors import divisor
from op_profiler.compilers.vectors import Vectors
from op_profiler.schedules.nest import INLINE, ROOT, Axis

_PADDED = ("pad",)
_MOST_PLACES, _MOST_VECTORS = 8, 4
"""Largest size of a tile: positions of a block of channels, or vectors of a row."""


def reduction(schedule: Any, vectors: Vectors) -> AnchoredFunction:
    """Return a function with one reduction of one tensor, over axes other than the last axis of the output, with the
    knobs of its schedule, which is not applied yet.

    Raises:
        RuleMismatch: the function is not of this kind, or has no vectors along its last axis.
    """
    before, anchor, after = anchor_of(schedule)
    count = spatial_count(schedule, anchor)
    if count == 0 or len(schedule.get(anchor).writes) != 1:
        raise RuleMismatch("no axis that stays, or several results")
    if any(has_bool(schedule, block) for block in blocks_of(schedule)):
        raise RuleMismatch("truth values")
    if reads_across(schedule, anchor):
        raise RuleMismatch("vectors that lie apart")
    padded = inline(schedule, before, _PADDED)
    last = epilogue(schedule, anchor, after)
    sizes = [extent(schedule, loop) for loop in schedule.get_loops(last)]
    known = [size for size in sizes if size is not None]
    if len(known) != count or len(sizes) != count:
        raise RuleMismatch("the next operator has other dimensions, or dimensions known only at run time")
    lanes = divisor(known[-1], vectors.lanes)
    if lanes < FEWEST_LANES:
        raise RuleMismatch("short vectors")
    axes = [Axis(f"ax{place}", size) for place, size in enumerate(known)]
    names = [axis.name for axis in axes]
    tile = {**dict.fromkeys(names, 1), names[-1]: lanes * divisor(known[-1] // lanes, _MOST_VECTORS)}
    of_blocks = count > 1 and known[-1] == lanes  # of channels, which stay whole
    if of_blocks:
        del tile[names.pop()]
        tile[names[-1]] = divisor(known[-2], _MOST_PLACES)
    over = reduction_of(schedule, anchor)
    longest, size = max(over, key=lambda one: one[1])
    if not all(one[1] for one in over):
        raise RuleMismatch("a length that is known only at run time")
    nest = nest_of(
        tuple(axes),
        tuple(names),
        tile,
        over,
        longest if size > 1 else None,
        lanes=vectors.lanes,
        block=known[-1],
        vectorize=lanes,
        compute_at=(INLINE if of_blocks else ROOT) if len(padded) == 1 else None,
    )
    return AnchoredFunction(schedule, in_parts(nest), anchor, last, padded)
