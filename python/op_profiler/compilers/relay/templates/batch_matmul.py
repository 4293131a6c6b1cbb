"""Products of batches of matrices; the second matrix of each pair is packed so that its columns are in vectors."""

from __future__ import annotations

import functools
from typing import Any

from op_profiler.compilers.relay.templates.conv2d import shape, static
from op_profiler.compilers.relay.templates.nest import apply, nest_of
from op_profiler.compilers.relay.templates.strategy import offer, registered
from op_profiler.compilers.relay.templates.template import Task, Template, output_dtype, two_float_tensors
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.operator import Operator
from op_profiler.schedules.nest import Axis

BATCH_MATMUL = "batch_matmul.op_profiler"
_PACKED = "packed_b"
_MOST_LANES = 16


def _lanes(columns: int) -> int:
    """The widest block of up to 16 columns that divides them."""
    return next(width for width in range(_MOST_LANES, 0, -1) if columns % width == 0)


def _batch_matmul(
    cfg: Any, a: Any, b: Any, out_shape: Any, dtype: Any, transpose_a: bool = False, transpose_b: bool = True
) -> Any:
    """a [batch, m, k] (or [batch, k, m]), b [batch, n, k] (or [batch, k, n]); either batch may be 1."""
    te = load_tvm().te
    batch = max(shape(a)[0], shape(b)[0])
    rows, depth = shape(a)[1:][:: -1 if transpose_a else 1]
    columns = shape(b)[1 if transpose_b else 2]
    lanes = _lanes(columns)
    dtype = dtype or a.dtype
    k = te.reduce_axis((0, depth), name="k")
    b_batch = shape(b)[0]

    def packed(z: Any, block: Any, row: Any, lane: Any) -> Any:
        column = block * lanes + lane
        return b[z, column, row] if transpose_b else b[z, row, column]

    blocks = te.compute((b_batch, columns // lanes, depth, lanes), packed, name=_PACKED)

    def product(z: Any, y: Any, x: Any) -> Any:
        left = z if shape(a)[0] > 1 else 0
        value = a[left, k, y] if transpose_a else a[left, y, k]
        weight = blocks[z if b_batch > 1 else 0, x // lanes, k, x % lanes]
        return te.sum(value.astype(dtype) * weight.astype(dtype), axis=k)

    return te.compute((batch, rows, columns), product, name="batch_matmul", tag=BATCH_MATMUL)


def _schedule(s: Any, cfg: Any, op: Any, output: Any) -> None:
    batch, rows, columns = shape(op.output(0))
    lanes = _lanes(columns)
    depth = int(op.reduce_axis[0].dom.extent)
    spatial = (Axis("b", batch, tiled=False), Axis("y", rows), Axis("x", columns // lanes))
    packed = [t for t in op.input_tensors if t.op.name == _PACKED]
    nest = nest_of(spatial, lanes, (("k", depth),), "k", producers=bool(packed), inner_tile_orders=True)
    apply(nest, s, cfg, op.output(0), output, packed)


def _applies(attrs: Any, inputs: Any) -> bool:
    return static(inputs) and all("float" in str(t.dtype) for t in inputs)


def register() -> None:
    """Register the template with AutoTVM and offer it for Relay's batch_matmul."""
    load_tvm()
    from tvm.relay.op.strategy import generic, x86

    wrap = functools.partial(generic.wrap_compute_batch_matmul, need_out_dtype=True)
    implementation = registered(BATCH_MATMUL, _batch_matmul, _schedule, wrap)
    originals = {"cpu": x86.batch_matmul_strategy_cpu}
    offer(generic.batch_matmul_strategy, originals, BATCH_MATMUL, implementation, _applies)


def tasks(anchor: Operator) -> list[Task]:
    """See `Template`."""
    tensors = two_float_tensors(anchor)
    if tensors is None or anchor.anchor != "nn.batch_matmul":
        return []
    attrs = anchor.attrs[0]
    flags = (int(attrs.get("transpose_a", False)), int(attrs.get("transpose_b", True)))
    return [(BATCH_MATMUL, (*tensors, anchor.outputs[0].shape, output_dtype(anchor), *flags))]


TEMPLATE = Template(register, tasks)
