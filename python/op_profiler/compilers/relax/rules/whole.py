"""Reductions of a whole tensor to one value: parts of the tensor in parallel, each summed as a vector."""

from __future__ import annotations

import math
from typing import Any

from op_profiler.compilers.relax.rules.blocks import (
    RuleMismatch,
    anchor_of,
    blocks_of,
    extent,
    has_bool,
    inline,
    spatial_count,
)
from op_profiler.compilers.relax.rules.elementwise import FEWEST_LANES, PARTS, schedule_blocks
from op_profiler.compilers.relax.rules.rows import sum_in_vectors
from op_profiler.compilers.relax.vectors import divisor
from op_profiler.compilers.vectors import Vectors
from op_profiler.schedules.factors import Factors

_FEWEST_VALUES = 1 << 14  # of fewer, one thread has the sum before others have begun


def whole(schedule: Any, vectors: Vectors) -> Factors:
    """Schedule one reduction of one tensor over all of its axes; return the schedule factors.

    Raises:
        RuleMismatch: the function is not of this kind, or has too few values for several threads.
    """
    before, anchor, after = anchor_of(schedule)
    count = spatial_count(schedule, anchor)
    sizes = [extent(schedule, loop) or 0 for loop in schedule.get_loops(anchor)]
    length = math.prod(sizes)
    if any(size != 1 for size in sizes[:count]) or length < _FEWEST_VALUES:
        raise RuleMismatch("several values, or too few to sum")
    lanes = divisor(length, vectors.lanes)
    parts = divisor(length // lanes, PARTS)
    if lanes < FEWEST_LANES or parts == 1:
        raise RuleMismatch("no vectors, or one part")
    if len(schedule.get(anchor).writes) != 1 or any(has_bool(schedule, block) for block in blocks_of(schedule)):
        raise RuleMismatch("several results, or truth values")
    feeding = inline(schedule, before)
    part, _, _ = schedule.split(schedule.fuse(*schedule.get_loops(anchor)[count:]), [parts, None, lanes])
    of_parts = schedule.rfactor(part, 0)
    of_lanes = schedule.rfactor(schedule.get_loops(of_parts)[-1], -1)
    part = schedule.get_loops(of_parts)[0]
    schedule.compute_at(of_lanes, part, preserve_unit_loops=True)
    schedule.parallel(part)
    sum_in_vectors(schedule, of_lanes, {"vectorize": lanes, "unroll": 1})
    schedule_blocks(schedule, vectors, [*feeding, *after])
    return Factors(split={"k": length // parts}, vectorize=lanes, parallel="k")
