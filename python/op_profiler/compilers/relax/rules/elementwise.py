"""Functions of loops that run over what they write: every block parallel over its outer loops, vectors inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.relax.rules.blocks import blocks_of, extent, has_bool, inline, kinds, reduces
from op_profiler.compilers.relax.vectors import Vectors, divisor
from op_profiler.schedules.factors import Factors

_SPATIAL = 0


def elementwise(schedule: Any, vectors: Vectors) -> Factors:
    """Each block by itself, but those that can be computed where they are read."""
    blocks = blocks_of(schedule)
    inline(schedule, [b for b in blocks[:-1] if not reduces(schedule, b)])
    lanes = schedule_blocks(schedule, vectors, blocks_of(schedule))
    return Factors(vectorize=lanes)


def schedule_blocks(schedule: Any, vectors: Vectors, blocks: Sequence[Any]) -> int | None:
    """These blocks, each by itself; the lanes of the last one's vectors."""
    lanes = None
    for block in blocks:
        lanes = _schedule(schedule, block, vectors)
    return lanes


def _schedule(schedule: Any, block: Any, vectors: Vectors) -> int | None:
    loops, found = schedule.get_loops(block), kinds(schedule, block)
    leading = next((i for i, kind in enumerate(found) if kind != _SPATIAL), len(found))
    spatial, rest = list(loops[:leading]), list(loops[leading:])
    if not spatial or len(loops) != len(found):
        return None
    lanes = None
    if not has_bool(schedule, block) and _SPATIAL not in found[leading:]:
        size = extent(schedule, spatial[-1])
        lanes = divisor(size, vectors.lanes) if size else None
    if not lanes or lanes < 2:
        schedule.parallel(schedule.fuse(*spatial))
        return None
    outer, inner = schedule.split(spatial[-1], [None, lanes])
    spatial[-1] = outer
    schedule.reorder(*spatial, *rest, inner)
    schedule.parallel(schedule.fuse(*spatial))
    schedule.vectorize(inner)
    if rest:
        init = schedule.decompose_reduction(block, rest[0])
        schedule.vectorize(schedule.get_loops(init)[-1])
    return lanes
