"""Products with more rows and columns than requested, so that tiles divide them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from op_profiler.compilers.relay.templates.nest import apply, defined, order_sum, place
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.kinds.sizes import largest_divisor
from op_profiler.schedules.nest import Nest

_TILES = range(6, 11)
_LARGEST = max(_TILES)


def padded_rows(rows: int) -> int:
    """Return the least padded number of rows that a tile of 6 to 10 rows divides.

    The result is `rows` itself if such a tile divides `rows`, or if all rows fit into one tile.
    """
    if rows <= _LARGEST or largest_divisor(rows, _LARGEST) >= min(_TILES):
        return rows
    return min(-(-rows // tile) * tile for tile in _TILES)


def up_to(last: int, padded: int) -> Callable[[Any], Any]:
    """Return a function that takes an index below `padded`, and returns the smaller of the index and `last`."""
    tir = load_tvm().tir
    return (lambda index: index) if last == padded else (lambda index: tir.min(index, last))


def copied_from(product: Any, wanted: tuple[int, ...], block: int, tag: str) -> Any:
    """Return the requested part of a padded product.

    Args:
        wanted: shape of the requested part.
        block: number of columns in a block of the product; the last block ends with the last requested column.
        tag: tag of the copying operation.
    """
    tvm = load_tvm()
    more = int(product.shape[-1]) - wanted[-1]

    def value(*at: Any) -> Any:
        *rest, column = at
        if more:
            last = column >= int(product.shape[-1]) - block
            column = tvm.tir.Select(last, column + more, column)
        return product(*rest, column)

    return tvm.te.compute(wanted, value, name="unpadded", tag=tag)


def apply_padded(loops: Nest, s: Any, cfg: Any, op: Any, output: Any, producers: Sequence[Any] = ()) -> None:
    """Schedule a product, and the copy of its requested part (`copied_from`), by the knobs of a nest.

    If only rows were added, the product is computed in the tiles of the output, the last of which is shorter. If
    columns were added, it is computed for all columns of a row of tiles and copied from there, because vectors that end
    before the last column could only be written one value at a time.

    Args:
        s, cfg, producers: as in `nest.apply`.
        op: the copying operation.
        output: the fused successor, or the operation's own tensor.
    """
    (product,), copy = op.input_tensors, op.output(0)
    if output.op != op:
        s[copy].compute_inline()
    if int(product.shape[-1]) == int(copy.shape[-1]) and len(output.op.axis) == len(op.axis):
        apply(loops, s, cfg, product, output, producers)
        return
    knobs = defined(loops, cfg)
    *outer, rows, columns = s[output].op.axis
    row, _ = s[output].split(rows, factor=knobs.get("tile_y", 1))
    parallel = s[output].fuse(*outer, row)
    s[output].parallel(parallel)
    accumulators = s.cache_write(product, "global")
    s[product].compute_at(s[output], parallel)
    *outer, rows, columns = s[product].op.axis
    tile, column = s[product].split(columns, factor=loops.block * knobs.get("tile_x", 1))
    s[product].reorder(*outer, tile, rows, column)
    s[product].vectorize(s[product].split(column, factor=knobs["vectorize"])[1])
    s[accumulators].compute_at(s[product], tile)
    order_sum(loops, s, accumulators, knobs)
    for producer in producers:
        place(s, knobs["compute_at"], producer, output, [parallel])
