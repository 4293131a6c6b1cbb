"""Schedules without a record on processors: op_profiler's templates for products and convolutions, with tiles chosen by
a rule.

TVM's own schedules choose a row tile that divides the rows of a product. A product of 197 rows, a prime number, is
computed one row at a time (8 times as long as in other runtimes), and batched products read one of their matrices with
a stride (15 times as long). Convolutions sum one vector of output channels at a time and read a large image once for
each of them (up to 2.3 times as long as by the rule). Depthwise convolutions pad the whole image first (2 to 3 times).
Winograd's algorithm takes a third to two thirds of the time of a direct 3x3 convolution.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.relay.templates.batch_matmul import BATCH_MATMUL, PADDED_BATCH_MATMUL
from op_profiler.compilers.relay.templates.conv2d import CONV2D, DEPTHWISE
from op_profiler.compilers.relay.templates.dense import DENSE, PADDED_DENSE
from op_profiler.compilers.relay.templates.winograd import (
    ALPHA,
    BY_BLOCK,
    BY_STAGE,
    WINOGRAD,
    output_size,
    tiles_of,
)
from op_profiler.compilers.tvm_build import load_tvm, replaced
from op_profiler.compilers.vectors import Vectors
from op_profiler.schedules.nest import ROOT, Knobs, Nest
from op_profiler.schedules.records import PADDED

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target

BY_RULE = 1e6
"""Least cost of the rule's choices. The costs of records are in seconds and lower, so any record has priority."""
_MULTIPLICATION, _OF_WEIGHTS, _COPY = 3.0, 2.0, 16.0
"""Time of a multiplication, of a read of weights (the second matrix) and of a copied result, relative to a read of data
(the first matrix). Fitted to 17 tiles of two products on an Intel family 6 model 167."""
_STREAMED, _TRANSFORM = 3.0, 1250.0
"""`_STREAMED`: time of a value of weights that is read from memory. `_TRANSFORM`: time in which Winograd's algorithm
transforms a vector of input or output channels of one tile. Both are relative to a read of data. By hand, ten
convolutions on an AMD EPYC family 25 model 1 (2026-12-01)."""
_FEWEST_BLOCKS, _MOST_TRAFFIC = 4, 3
"""All blocks of rows pass through one of Winograd's stages after the other if there are fewer than `_FEWEST_BLOCKS`
blocks, or if the blocks read more than `_MOST_TRAFFIC` times as many values as the stages read and write. By hand, like
`_STREAMED`; not measured with more than two threads or with AVX-512."""
_WIDEST, _WIDEST_OF_ONE_ROW = 4, 8
"""Largest number of vectors in a row of a tile: products with 13 took 1.5 times as long as with 1. Products of one row
wait for their own sums with few vectors: 2.7 times as long with 1 as with 5, and 2 to 8 are alike (by hand)."""
_SUMS_OF_CONVOLUTION, _SUMS_OF_ONE_BLOCK = 16, 24
"""Largest numbers of vectors in the tile of a convolution, with several blocks of channels and with one. LLVM spills
28, which took up to 1.7 times as long; a tile of all 17 or 23 columns takes half the time of tiles of one column (by
hand)."""
_MOST_STEPS = 8
"""Largest inner part of Winograd's sum."""
_UNROLLED = 4
"""Largest number of unrolled steps of a product's sum."""
_SPILLING = ("znver4", "znver5")
"""Processors (``-mcpu``) for which LLVM 22 moves so many loads to the start of a long unrolled sum that it spills
registers: convolutions with 256 unrolled multiplications took 1.1 to 1.7 times as long as with 16 on AMD EPYC family 25
model 17 (by hand, 2026-12-01), where code for Rocket Lake and Sapphire Rapids takes the same time either way. Zen 5 was
not measured."""
_REREADS = 3
"""Largest number of passes over an image before the image becomes the outer loop."""
_ORDER_OF_SUM = (("ic.i", 1), ("ic.o", -1), ("kh", -1))
"""Input channels that are contiguous in memory are the innermost loop, the others the outermost one."""
_COPYING = (PADDED_DENSE, PADDED_BATCH_MATMUL)
_TEMPLATES = (DENSE, BATCH_MATMUL, CONV2D, DEPTHWISE, WINOGRAD, *_COPYING)
_FAMILIES = {template.partition(".")[0] for template in _TEMPLATES if template not in _COPYING}


def may_choose(target: Target, workload: tuple[Any, ...]) -> bool:
    """Return whether the rule may choose the schedule or the blocks (`whole_vectors`) of a computation; dtypes are not
    checked.

    Args:
        workload: AutoTVM's workload, which begins with the name of a template.
    """
    on_processor = "cpu" in target.keys and target.kind.name == "llvm"
    return on_processor and workload[0].partition(".")[0].removesuffix(PADDED) in _FAMILIES


def config_of(target: Target, workload: tuple[Any, ...]) -> Any | None:
    """Return the configuration that the rule chooses for a computation; None if the rule does not support it.

    Args:
        workload: AutoTVM's workload, which begins with the name of a template.
    """
    if workload[0] not in _TEMPLATES or not may_choose(target, workload) or _has_groups(workload):
        return None
    if not all("float" in tensor[2] for tensor in workload[1:3]):
        return None
    return _config(str(target), workload)


@functools.lru_cache(maxsize=1024)
def _config(target: str, workload: tuple[Any, ...]) -> Any | None:
    tvm = load_tvm()
    on = tvm.target.Target(target)
    with replaced(tvm.autotvm.GLOBAL_SCOPE, "silent", True):
        space = tvm.autotvm.task.create(workload[0], workload[1:], on).config_space
    values = {name: [int(entity.val) for entity in known.entities] for name, known in space.space_map.items()}
    chosen = _winograd(values, workload, _vectors(on)) if workload[0] == WINOGRAD else _nest(space.nest, workload, on)
    if chosen is None:
        return None
    knobs, cost = chosen
    index, step = 0, 1
    for name, known in values.items():
        index += step * known.index(knobs[name])
        step *= len(known)
    found = space.get(index)
    found.cost = BY_RULE + cost + _STREAMED * prod(workload[2][1])
    return found


def _nest(nest: Nest, workload: tuple[Any, ...], target: Target) -> tuple[Knobs, float] | None:
    """Return the knobs and the cost of the best tile of a nest, without the cost of weights from memory."""
    tile = best_tile(nest, _vectors(target), copies=workload[0] in _COPYING)
    if tile is None:
        return None
    knobs = knobs_of(nest, tile, _steps(workload))
    if _is_window(nest) and target.attrs.get("mcpu") in _SPILLING:
        knobs = {**knobs, "unroll": 1}
    return knobs, tile.cost * prod(extent for _, extent in nest.reduction)


@contextlib.contextmanager
def whole_vectors() -> Iterator[None]:
    """Inside this ``with`` block, pack channels and columns in blocks of whole or half vectors if such a block divides
    their number.

    TVM itself chooses the largest divisor as the block, for products up to two vectors: 208 columns are packed in
    blocks of 26. LLVM computes such a block in pieces, which is many times slower (`benchmarks/rule.py`).
    """
    tvm = load_tvm()
    SplitEntity = tvm.autotvm.task.space.SplitEntity
    conv2d_alter_op, dense_alter_op = tvm.topi.x86.conv2d_alter_op, tvm.topi.x86.dense_alter_op
    of_product, of_convolution = dense_alter_op._default_dense_pack_config, conv2d_alter_op._get_default_config

    def product(found: Any, rows: Any, columns: Any, depth: Any) -> None:
        of_product(found, rows, columns, depth)
        if block := _block(columns, 2):
            found["tile_x"] = SplitEntity([-1, 1, block])

    def convolution(found: Any, data: Any, kernel: Any, *rest: Any, **options: Any) -> None:
        of_convolution(found, data, kernel, *rest, **options)
        for name, channels in (("tile_ic", data.shape[1]), ("tile_oc", math.prod(found["tile_oc"].size))):
            if block := _block(channels, 1):
                found[name] = SplitEntity([int(channels) // block, block])

    with (
        replaced(dense_alter_op, "_default_dense_pack_config", product),
        replaced(conv2d_alter_op, "_get_default_config", convolution),
    ):
        yield


def _block(size: Any, vectors: int) -> int:
    """Return the widest block of so many vectors, of one or of half a vector that divides a size; 0 if none does."""
    get_simd_32bit_lanes = load_tvm().target.x86.get_simd_32bit_lanes
    lanes, known = int(get_simd_32bit_lanes()), getattr(size, "value", size)
    blocks = (vectors * lanes, lanes, lanes // 2)
    return next((block for block in blocks if isinstance(known, int) and known % block == 0), 0)


def _has_groups(workload: tuple[Any, ...]) -> bool:
    """Return whether this is a convolution in groups, whose lanes may read different channels."""
    (_, data, _), (_, weight, _) = workload[1:3]
    return workload[0] == CONV2D and data[1] * data[-1] != weight[1] * weight[4]


def _steps(workload: tuple[Any, ...]) -> int:
    """Return the contiguous input channels of a convolution; for products, the largest number of unrolled steps."""
    return math.gcd(workload[1][1][-1], workload[2][1][4]) if workload[0] == CONV2D else _UNROLLED


def _vectors(target: Target) -> Vectors:
    get_simd_32bit_lanes = load_tvm().target.x86.get_simd_32bit_lanes
    with target:
        return Vectors.of(target, int(get_simd_32bit_lanes()))


@dataclasses.dataclass(frozen=True)
class Tile:
    """A tile of an output whose sums are in registers.

    Attributes:
        sizes: values of the knobs ``tile_*``.
        rows: number of output positions that share a vector of weights.
        cost: cost relative to other tiles of the same output.
    """

    sizes: Knobs
    rows: int
    cost: float


def best_tile(nest: Nest, vectors: Vectors, *, copies: bool = False) -> Tile | None:
    """Return the tile with the lowest cost, or None if vectors would be less than half full.

    For each vector of sums, the cost counts a multiplication, a vector of weights (shared by the rows of the tile) and
    a value of the data (shared by the vectors of a row, except in depthwise convolutions).

    Args:
        copies: whether the output is copied out of its tiles.
    """
    width = max(nest.knobs["vectorize"])
    registers = -(-width // vectors.lanes)
    if 2 * width < registers * vectors.lanes:
        return None
    sums = prod(axis.extent or 1 for axis in nest.axes[:-1]) * registers
    copy = _COPY / prod(extent for _, extent in nest.reduction) if copies else 0.0
    window, depthwise = _is_window(nest), nest.split is None

    def tiles() -> Iterator[Tile]:
        names = [name for name in nest.knobs if name.startswith("tile_")]
        for sizes in itertools.product(*(nest.knobs[name] for name in names)):
            chosen = dict(zip(names, sizes))
            blocks = chosen.get("tile_oc" if window else "tile_x", 1)
            wide, rows = blocks * registers, prod(sizes) // blocks
            widest = _WIDEST_OF_ONE_ROW if rows == 1 and not window else _WIDEST
            most = (_SUMS_OF_CONVOLUTION if blocks > 1 else _SUMS_OF_ONE_BLOCK) if window else vectors.accumulators
            fits = rows * wide <= min(most, vectors.accumulators) and (
                blocks == 1 or (wide <= widest and not depthwise)
            )
            if fits and min(chosen.get("tile_oh", 1), chosen.get("tile_ow", 1)) == 1:
                reads = _OF_WEIGHTS / rows + (1 if depthwise else 1 / wide)
                yield Tile(chosen, rows, sums * (_MULTIPLICATION + reads + copy))

    return min(tiles(), key=lambda tile: (tile.cost, -tile.rows, tile.sizes.get("tile_oh", 1)), default=None)


def knobs_of(nest: Nest, tile: Tile, terms: int) -> Knobs:
    """Return the values of all knobs of a nest for this tile.

    Args:
        terms: limit on the unrolled steps of the sum. For convolutions, the number of steps also divides `terms`.
    """
    chosen: Knobs = {
        "reorder": 0,
        "compute_at": ROOT,
        "vectorize": max(nest.knobs["vectorize"]),
        "unroll": 2,
        "fuse": max(nest.most_fused - 1, 1),
        **(_window_knobs(nest, tile, terms) if _is_window(nest) else _product_knobs(nest, terms)),
        **tile.sizes,
    }
    return {name: chosen[name] for name in nest.knobs}


def _winograd(
    values: Mapping[str, list[int]], workload: tuple[Any, ...], vectors: Vectors
) -> tuple[Knobs, float] | None:
    """Return the knobs and the cost of Winograd's algorithm, without the cost of weights from memory; None if vectors
    would be less than half full, or if no tile fits into the registers.

    The cost of the products is that of `best_tile`. If many blocks of rows would each read large weights, all blocks
    pass through one stage after the other.
    """
    (_, data, _), (_, weight, _), _, padding = workload[1:5]
    (n, _, height, width, block), (*_, chunks, channels, lanes) = data, weight
    if 2 * min(block, lanes) < vectors.lanes:
        return None
    rows, columns = tiles_of(*output_size(height, width, padding))
    registers, tiles = -(-lanes // vectors.lanes), n * rows * columns

    def cost(sizes: tuple[int, int, int]) -> tuple[float, int]:
        oc, oh, ow = sizes
        return _MULTIPLICATION + _OF_WEIGHTS / (oh * ow) + 1 / (oc * registers), -ow

    most = min(_SUMS_OF_CONVOLUTION, vectors.accumulators)
    sizes = itertools.product(values["tile_oc"], values["tile_oh"], values["tile_ow"])
    fitting = (s for s in sizes if s[0] * registers <= _WIDEST and prod(s) * registers <= most)
    best = min(fitting, key=cost, default=None)
    if best is None:
        return None
    oc, oh, ow = best
    blocks, between = n * rows // oh, 2 * ALPHA**2 * tiles * (channels + chunks * lanes)
    by_stage = blocks < _FEWEST_BLOCKS or blocks * prod(weight) > _MOST_TRAFFIC * (prod(weight) + between)
    knobs = {
        "tile_rows": max(size for size in values["tile_rows"] if size % oh == 0) if by_stage else oh,
        "tile_oc": oc,
        "tile_oh": oh,
        "tile_ow": ow,
        "split_ic": max((s for s in values["split_ic"] if s <= _MOST_STEPS), default=min(values["split_ic"])),
        "compute_at": BY_STAGE if by_stage else BY_BLOCK,
        "unroll": 1,
    }
    transformed = channels // block * -(-block // vectors.lanes) + chunks * registers
    products = ALPHA**2 * chunks * registers * channels * cost(best)[0]
    return knobs, tiles * (products + transformed * _TRANSFORM)


def _product_knobs(nest: Nest, terms: int) -> Knobs:
    """Return the knobs of a product.

    Blocks of columns are the outer loop, so that a block of the second matrix stays in the cache for all rows of the
    first one.
    """
    outer = next((i for i, order in enumerate(nest.outer_orders) if order.index("x") < order.index("y")), 0)
    return {"outer": outer, "split_k": max(size for size in nest.knobs.get("split_k", [1]) if size <= terms)}


def _window_knobs(nest: Nest, tile: Tile, terms: int) -> Knobs:
    """Return the knobs of a convolution.

    Output channels are the outer loop, so that their weights stay in the cache for the whole image. The image is the
    outer loop if it is larger than all weights and would be read often. Depthwise convolutions pad the rows of one
    tile at a time, which stay in the cache.
    """
    if nest.split is None:
        return {"outer": 0, "compute_at": 1}
    reduction, extents = dict(nest.reduction), {axis.name: axis.extent or 1 for axis in nest.axes}
    image = extents["oh"] * extents["ow"] * reduction["ic"]
    weights = extents["oc"] * nest.block * prod(reduction.values())
    often = extents["oc"] // tile.sizes.get("tile_oc", 1) > _REREADS
    by_image = reduction["kh"] * reduction["kw"] == 1 and image > weights and often
    outer = next((i for i, order in enumerate(nest.outer_orders) if by_image and order[-3:] == ("oh", "ow", "oc")), 0)
    orders = nest.inner_orders
    inner = max(range(len(orders)), key=lambda i: tuple(s * orders[i].index(n) for n, s in _ORDER_OF_SUM))
    return {
        "outer": outer,
        "reorder": inner,
        "split_ic": max(size for size in nest.knobs.get("split_ic", [1]) if terms % size == 0),
    }


def _is_window(nest: Nest) -> bool:
    return any(name == "kh" for name, _ in nest.reduction)
