"""Products of batches of matrices; the second matrix of each pair is packed so that its columns are in vectors."""

from __future__ import annotations

import functools
from typing import Any

from op_profiler.compilers.relay.templates.conv2d import shape, static
from op_profiler.compilers.relay.templates.nest import apply, nest_of
from op_profiler.compilers.relay.templates.padded import apply_padded, copied_from, padded_rows, up_to
from op_profiler.compilers.relay.templates.strategy import offer, registered
from op_profiler.compilers.relay.templates.template import Task, Template, output_dtype, two_float_tensors
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.kinds.sizes import largest_divisor
from op_profiler.operators.operator import Operator
from op_profiler.schedules.nest import Axis, Nest

BATCH_MATMUL = "batch_matmul.op_profiler"
PADDED_BATCH_MATMUL = "batch_matmul_padded.op_profiler"
_PACKED = "packed_b"
_MOST_LANES = 16


def _padded_columns(columns: int) -> int:
    """Return the columns in full blocks of the widest size; unchanged for few columns."""
    return -(-columns // _MOST_LANES) * _MOST_LANES if columns > _MOST_LANES else columns


def _batch_matmul(
    cfg: Any, a: Any, b: Any, out_shape: Any, dtype: Any, transpose_a: bool = False, transpose_b: bool = True
) -> Any:
    """Compute products of a [batch, m, k] (or [batch, k, m]) and b [batch, n, k] (or [batch, k, n]); either batch may
    be 1."""
    _, rows, columns = _sizes(a, b, transpose_a, transpose_b)
    return _product(a, b, dtype, transpose_a, transpose_b, (rows, columns), BATCH_MATMUL)


def _padded(
    cfg: Any, a: Any, b: Any, out_shape: Any, dtype: Any, transpose_a: bool = False, transpose_b: bool = True
) -> Any:
    """Compute `_batch_matmul` by a product with additional rows and columns, which are not copied to the result."""
    batch, rows, columns = _sizes(a, b, transpose_a, transpose_b)
    padded = (padded_rows(rows), _padded_columns(columns))
    product = _product(a, b, dtype, transpose_a, transpose_b, padded, "")
    return copied_from(product, (batch, rows, columns), _MOST_LANES, PADDED_BATCH_MATMUL)


def _sizes(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> tuple[int, int, int]:
    """Return the number of matrices, and rows and columns of the product."""
    return max(shape(a)[0], shape(b)[0]), shape(a)[2 if transpose_a else 1], shape(b)[1 if transpose_b else 2]


def _product(
    a: Any, b: Any, dtype: Any, transpose_a: bool, transpose_b: bool, padded: tuple[int, int], tag: str
) -> Any:
    """Return products with the given numbers of rows and columns.

    Additional rows repeat the last row of the matrices; the last block of columns starts earlier, so that it ends with
    the last column.
    """
    te = load_tvm().te
    batch, rows, columns = _sizes(a, b, transpose_a, transpose_b)
    depth = shape(a)[1 if transpose_a else 2]
    lanes = largest_divisor(padded[1], _MOST_LANES)
    dtype = dtype or a.dtype
    k = te.reduce_axis((0, depth), name="k")
    b_batch = shape(b)[0]
    row_of, begin_of = up_to(rows - 1, padded[0] - 1), up_to(columns - lanes, padded[1] - lanes)

    def packed(z: Any, block: Any, row: Any, lane: Any) -> Any:
        column = begin_of(block * lanes) + lane
        return b[z, column, row] if transpose_b else b[z, row, column]

    blocks = te.compute((b_batch, padded[1] // lanes, depth, lanes), packed, name=_PACKED)

    def product(z: Any, y: Any, x: Any) -> Any:
        left, row = z if shape(a)[0] > 1 else 0, row_of(y)
        value = a[left, k, row] if transpose_a else a[left, row, k]
        weight = blocks[z if b_batch > 1 else 0, x // lanes, k, x % lanes]
        return te.sum(value.astype(dtype) * weight.astype(dtype), axis=k)

    return te.compute((batch, *padded), product, name="batch_matmul", tag=tag)


def _schedule(s: Any, cfg: Any, op: Any, output: Any) -> None:
    apply(_nest(op), s, cfg, op.output(0), output, _packed(op))


def _schedule_padded(s: Any, cfg: Any, op: Any, output: Any) -> None:
    (product,) = op.input_tensors
    apply_padded(_nest(product.op), s, cfg, op, output, _packed(product.op))


def _nest(product: Any) -> Nest:
    batch, rows, columns = shape(product.output(0))
    lanes = largest_divisor(columns, _MOST_LANES)
    depth = int(product.reduce_axis[0].dom.extent)
    spatial = (Axis("b", batch, tiled=False), Axis("y", rows), Axis("x", columns // lanes))
    return nest_of(spatial, lanes, (("k", depth),), "k", producers=bool(_packed(product)), inner_tile_orders=True)


def _packed(product: Any) -> list[Any]:
    return [t for t in product.input_tensors if t.op.name == _PACKED]


def _applies(attrs: Any, inputs: Any) -> bool:
    return static(inputs) and all("float" in str(t.dtype) for t in inputs)


def _pads(attrs: Any, inputs: Any) -> bool:
    if not _applies(attrs, inputs):
        return False
    a, b = inputs
    _, rows, columns = _sizes(a, b, bool(attrs.transpose_a), bool(attrs.transpose_b))
    return _are_added(rows, columns)


def _are_added(rows: int, columns: int) -> bool:
    return (padded_rows(rows), _padded_columns(columns)) != (rows, columns)


def register() -> None:
    """Register the template with AutoTVM and offer it for Relay's batch_matmul."""
    strategies = load_tvm().relay.op.strategy
    generic, x86 = strategies.generic, strategies.x86
    wrap = functools.partial(generic.wrap_compute_batch_matmul, need_out_dtype=True)
    implementations = {
        BATCH_MATMUL: (registered(BATCH_MATMUL, _batch_matmul, _schedule, wrap), _applies),
        PADDED_BATCH_MATMUL: (registered(PADDED_BATCH_MATMUL, _padded, _schedule_padded, wrap), _pads),
    }
    offer(generic.batch_matmul_strategy, {"cpu": x86.batch_matmul_strategy_cpu}, implementations)


def tasks(anchor: Operator) -> list[Task]:
    """See `Template.tasks`."""
    tensors = two_float_tensors(anchor)
    if tensors is None or anchor.anchor != "nn.batch_matmul":
        return []
    attrs = anchor.attrs[0]
    flags = (int(attrs.get("transpose_a", False)), int(attrs.get("transpose_b", True)))
    _, rows, columns = anchor.outputs[0].shape
    names = (BATCH_MATMUL, PADDED_BATCH_MATMUL) if _are_added(rows, columns) else (BATCH_MATMUL,)
    return [(name, (*tensors, anchor.outputs[0].shape, output_dtype(anchor), *flags)) for name in names]


TEMPLATE = Template(register, tasks)
