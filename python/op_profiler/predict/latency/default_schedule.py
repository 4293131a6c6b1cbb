"""What TVM's default x86 schedules decide about an operator, from its sizes alone.

Without records, TVM takes tiles from divisibility: a convolution of 113 columns, a prime, gets a register tile of one
column and takes several times as long as one of 112; a batched product of 79 rows is computed row by row. The rules are
those of `tvm.topi.x86` (conv2d_avx_common, conv2d_avx_1x1, depthwise_conv2d, dense, batch_matmul, injective, pooling,
nn, reduction) in TVM 0.19; on other targets they still tell how well sizes divide.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping

NAMES = ("tile_columns", "tile_rows", "registers", "parallel", "vector_rest", "inner_rest")
"""Names of what `tiles_of` returns."""

LANES = 16
"""Values of 32 bits in a vector register, as features count them."""

_LARGEST_WIDTH_TILE = 31
_LARGEST_1X1_TILE = 31
_MOST_PARALLEL_REDUCTION = 128

Tiles = tuple[float, float, float, float, float, float]


def tiles_of(kind: str, sizes: Mapping[str, float], out: tuple[int, ...], in_rest: float = 0.0) -> Tiles:
    """Tile of columns and rows, vector registers of the tile, log2 of the parallel loop's extent, and two remainders.

    Args:
        kind: one of `op_profiler.predict.latency.features.KINDS`.
        sizes: extents by name, as the features have them.
        out: shape of the output.
        in_rest: elements of the input's last axis beyond whole vectors.
    """
    if kind in ("conv2d", "depthwise", "grouped") and len(out) == 5:
        return _convolution(kind, sizes, out)
    if kind == "dense":
        return _dense(int(sizes["rows"]), int(sizes["columns"]))
    if kind == "batch_matmul":
        return _batch_matmul(int(sizes["batch"]), int(sizes["rows"]), int(sizes["columns"]), int(sizes["reduction"]))
    outer = math.prod(out[:-1]) if kind in ("softmax", "reduce") else _injective_parallel(out)
    if kind == "reduce":
        outer = min(math.prod(out), _MOST_PARALLEL_REDUCTION)
    return 0.0, 0.0, 0.0, math.log2(max(outer, 1)), float(out[-1] % LANES) if out else 0.0, in_rest


def _convolution(kind: str, sizes: Mapping[str, float], out: tuple[int, ...]) -> Tiles:
    batch, chunks, height, width, block = out
    rows, columns = 1, largest_divisor(width, _LARGEST_WIDTH_TILE)
    if kind == "conv2d" and sizes["window"] == 1:
        rows, columns = _tile_1x1(height, width)
    parallel = math.log2(max(batch * chunks * (height // rows), 1))  # an unknown size is -1
    registers = rows * columns * math.ceil(block / LANES)
    return float(block), float(rows * columns), float(registers), parallel, float(block % LANES), 0.0


@functools.cache
def _tile_1x1(height: int, width: int) -> tuple[int, int]:
    for columns in range(width, 0, -1):
        if width % columns == 0:
            for rows in range(height, 0, -1):
                if height % rows == 0 and rows * columns <= _LARGEST_1X1_TILE:
                    return rows, columns
    return 1, 1


def _dense(rows: int, columns: int) -> Tiles:
    x, y = largest_divisor(columns, 2 * LANES), _power_of_two(rows, 8)
    outer = _outer(columns // x) * _outer(rows // y)
    return float(x), float(y), float(y * math.ceil(x / LANES)), math.log2(outer), float(x % LANES), 0.0


def _outer(count: int) -> int:
    """Outermost part of TVM's three-way split: halved while it is even and above 4."""
    while count > 4 and count % 2 == 0:
        count //= 2
    return count


def _batch_matmul(batch: int, rows: int, columns: int, reduction: int) -> Tiles:
    x, y = _power_of_two(columns, 8), _power_of_two(rows, 8)
    parallel = batch * (rows // y) * (columns // x)
    return float(x), float(y), float(x * y), math.log2(max(parallel, 1)), 0.0, float(reduction % LANES)


def _injective_parallel(out: tuple[int, ...]) -> int:
    if len(out) >= 5:
        return math.prod(out[:3])
    if len(out) >= 3:
        return math.prod(out[:2])
    return math.ceil(out[0] / LANES) if len(out) == 1 else out[0] if out else 1


@functools.cache
def largest_divisor(number: int, limit: int) -> int:
    """The largest divisor up to a limit."""
    return max(divisor for divisor in range(1, limit + 1) if number % divisor == 0)


def _power_of_two(number: int, limit: int) -> int:
    return math.gcd(max(number, 1), limit)
