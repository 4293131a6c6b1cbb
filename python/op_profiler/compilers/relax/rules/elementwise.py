"""Functions whose loops run over their outputs: every block is parallel over its outer loops and vectorized inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.relax.rules.blocks import (
    blocks_of,
    extent,
    has_bool,
    inline,
    kinds,
    reads_across,
    reduces,
    uses,
)
from op_profiler.compilers.relax.vectors import divisor
from op_profiler.compilers.vectors import Vectors
from op_profiler.schedules.factors import Factors

FEWEST_LANES = 4
"""With fewer lanes, assembling a vector costs more than it saves."""
_SPATIAL = 0
_TILE = 16
PARTS = 64
"""Number of parallel iterations that is enough for the threads of a processor."""


def elementwise(schedule: Any, vectors: Vectors) -> Factors:
    """Schedule each block separately, except those that can be inlined; return the schedule factors."""
    blocks = blocks_of(schedule)
    inline(schedule, [b for b in blocks[:-1] if not reduces(schedule, b)])
    lanes = schedule_blocks(schedule, vectors, blocks_of(schedule))
    return Factors(vectorize=lanes)


def schedule_blocks(schedule: Any, vectors: Vectors, blocks: Sequence[Any]) -> int | None:
    """Schedule these blocks separately; return the lanes of the last block's vectors, None without vectors."""
    lanes = None
    for block in blocks:
        lanes = _schedule(schedule, block, vectors)
    return lanes


def _schedule(schedule: Any, block: Any, vectors: Vectors) -> int | None:
    found = kinds(schedule, block)
    across = _SPATIAL in found and reads_across(schedule, block)
    if across and len(schedule.get_loops(block)) == len(found) == found.count(_SPATIAL):
        _in_tiles(schedule, block)
        found = [_SPATIAL] * len(schedule.get_loops(block))
    loops = schedule.get_loops(block)
    leading = next((i for i, kind in enumerate(found) if kind != _SPATIAL), len(found))
    spatial, rest = list(loops[:leading]), list(loops[leading:])
    if not spatial or len(loops) != len(found):
        return None
    lanes = None
    if not has_bool(schedule, block) and _SPATIAL not in found[leading:] and not across:
        size = extent(schedule, spatial[-1])
        lanes = divisor(size, vectors.lanes) if size else None
    if not lanes or lanes < FEWEST_LANES:
        parallel_outer(schedule, spatial)
        return None
    outer, inner = schedule.split(spatial[-1], [None, lanes])
    spatial[-1] = outer
    schedule.reorder(*spatial, *rest, inner)
    parallel_outer(schedule, spatial)
    schedule.vectorize(inner)
    if rest:
        init = schedule.decompose_reduction(block, rest[0])
        schedule.vectorize(schedule.get_loops(init)[-1])
    return lanes


def _in_tiles(schedule: Any, block: Any) -> None:
    """Loop over what is read and what is written in tiles, so that both pass the cache once.

    For out[c, h, w] = data[c // 16, h, w, c % 16], the lanes and a row of the output become the inner loops.
    """
    node, loops = schedule.get(block), list(schedule.get_loops(block))
    if len(node.reads) != 1:
        return
    places = []
    for region in (node.reads[0], node.writes[0]):
        found = [i for i, v in enumerate(node.iter_vars) if uses(region.region[-1].min, v.var)]
        places += found if len(found) == 1 else []
    sizes = [extent(schedule, loops[place]) for place in places]
    if len(set(places)) != 2 or None in sizes:
        return
    widths = (_TILE, int(node.writes[0].source.shape[-1]))
    tiles = []
    for place, size, width in zip(places, sizes, widths):
        loops[place], tile = schedule.split(loops[place], [None, divisor(size or 1, width)])
        tiles.append(tile)
    schedule.reorder(*loops, *tiles)


def parallel_outer(schedule: Any, loops: Sequence[Any]) -> None:
    """Fuse outer loops and run them in parallel: only as many loops as are needed to give every thread work, because
    computing the loop variables from the fused index takes a division for each loop."""
    iterations, count = 1, 0
    while count < len(loops) and iterations < PARTS:
        size = extent(schedule, loops[count])
        iterations *= size or 1
        count += 1
    schedule.parallel(schedule.fuse(*loops[:count]))
