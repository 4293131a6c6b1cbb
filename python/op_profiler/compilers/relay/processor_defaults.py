"""Schedules of matrix products without a record on processors: op_profiler's templates, with tiles chosen by a rule.

TVM's own schedules choose a row tile that divides the rows of a product. A product of 197 rows, a prime number, is
computed one row at a time (8 times as long as in other runtimes), and batched products read one of their matrices with
a stride (15 times as long).
"""

from __future__ import annotations

import dataclasses
import functools
from math import prod
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.relay.templates.batch_matmul import BATCH_MATMUL, PADDED_BATCH_MATMUL
from op_profiler.compilers.relay.templates.dense import DENSE, PADDED_DENSE
from op_profiler.compilers.tvm_build import load_tvm, replaced
from op_profiler.compilers.vectors import Vectors
from op_profiler.schedules.nest import ROOT, Knobs, Nest
from op_profiler.schedules.records import PADDED

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target

BY_RULE = 1e6
"""Least cost of the rule's choices. The costs of records are in seconds and lower, so any record has priority."""
_MULTIPLICATION, _OF_SECOND, _COPY = 3.0, 2.0, 16.0
"""Time of a multiplication, of a read of the second matrix and of a copied result, relative to a read of the first.
Fitted to 17 tiles of two products on an Intel family 6 model 167."""
_WIDEST = 4
"""Largest number of vectors in a row of a tile: products with 13 took 1.5 times as long as with 1."""
_UNROLLED = 4
"""Largest number of unrolled steps of a sum."""
_COPYING = (PADDED_DENSE, PADDED_BATCH_MATMUL)
_TEMPLATES = (DENSE, BATCH_MATMUL, *_COPYING)
_FAMILIES = {template.partition(".")[0] for template in (DENSE, BATCH_MATMUL)}


def may_choose(target: Target, workload: tuple[Any, ...]) -> bool:
    """Return whether the rule has, or may have, a schedule for a computation. TVM's own templates query it for each."""
    family, *tensors = workload[0].partition(".")[0], *workload[1:3]
    on_processor = "cpu" in target.keys and target.kind.name == "llvm"
    return on_processor and family.removesuffix(PADDED) in _FAMILIES and all("float" in tensor[2] for tensor in tensors)


def config_of(target: Target, workload: tuple[Any, ...]) -> Any | None:
    """Return the configuration that the rule chooses for a computation; None if it has none.

    Args:
        workload: AutoTVM's workload, which begins with the name of a template.
    """
    if workload[0] not in _TEMPLATES or not may_choose(target, workload):
        return None
    return _config(str(target), workload)


@functools.lru_cache(maxsize=1024)
def _config(target: str, workload: tuple[Any, ...]) -> Any | None:
    tvm = load_tvm()
    on = tvm.target.Target(target)
    with replaced(tvm.autotvm.GLOBAL_SCOPE, "silent", True):
        space = tvm.autotvm.task.create(workload[0], workload[1:], on).config_space
    tile = best_tile(space.nest, _vectors(on), copies=workload[0] in _COPYING)
    if tile is None:
        return None
    knobs = knobs_of(space.nest, tile)
    index, step = 0, 1
    for name, known in space.space_map.items():
        values = [int(entity.val) for entity in known.entities]
        index += step * values.index(knobs[name])
        step *= len(values)
    found = space.get(index)
    found.cost = BY_RULE + tile.cost
    return found


def _vectors(target: Target) -> Vectors:
    from tvm.target.x86 import get_simd_32bit_lanes

    with target:
        return Vectors.of(target, int(get_simd_32bit_lanes()))


@dataclasses.dataclass(frozen=True)
class Tile:
    """A tile of a product whose sums are in registers.

    Attributes:
        rows: number of rows.
        blocks: number of blocks of columns.
        width: number of columns of a block, or half of it.
        cost: relative to other tiles of the same product.
    """

    rows: int
    blocks: int
    width: int
    cost: float


def best_tile(nest: Nest, vectors: Vectors, *, copies: bool = False) -> Tile | None:
    """Return the tile with the lowest cost, or None if vectors would be half empty.

    For each vector of sums, the cost counts a multiplication, a vector of the second matrix (shared by the rows of the
    tile) and a value of the first matrix (shared by the vectors of a row).

    Args:
        copies: whether the product is copied out of its tiles.
    """
    width = max(nest.knobs["vectorize"])
    registers = -(-width // vectors.lanes)
    if 2 * width < registers * vectors.lanes:
        return None
    sums = prod(axis.extent or 1 for axis in nest.axes[:-1]) * registers
    copy = _COPY / prod(extent for _, extent in nest.reduction) if copies else 0.0

    def cost(rows: int, wide: int) -> float:
        return sums * (_MULTIPLICATION + _OF_SECOND / rows + 1 / wide + copy)

    tiles = [
        Tile(rows, blocks, width, cost(rows, blocks * registers))
        for rows in nest.knobs.get("tile_y", [1])
        for blocks in nest.knobs.get("tile_x", [1])
        if rows * blocks * registers <= vectors.accumulators and (blocks == 1 or blocks * registers <= _WIDEST)
    ]
    return min(tiles, key=lambda tile: (tile.cost, -tile.rows), default=None)


def knobs_of(nest: Nest, tile: Tile) -> Knobs:
    """Return the point of a nest with this tile. Blocks of columns are the outer loop, so that one block of the second
    matrix stays in the cache while all rows of the first are processed."""
    outer = next((i for i, order in enumerate(nest.outer_orders) if order.index("x") < order.index("y")), 0)
    chosen = {
        "tile_y": tile.rows,
        "tile_x": tile.blocks,
        "split_k": max(size for size in nest.knobs.get("split_k", [1]) if size <= _UNROLLED),
        "outer": outer,
        "fuse": max(nest.most_fused - 1, 1),
        "reorder": 0,
        "compute_at": ROOT,
        "vectorize": tile.width,
        "unroll": 2,
    }
    return {name: chosen[name] for name in nest.knobs}
