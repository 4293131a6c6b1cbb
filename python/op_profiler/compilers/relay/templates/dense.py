"""Matrix products with a weight whose rows are packed in blocks (``NC32n``), as TVM's default packs them."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.relay.templates.conv2d import shape, static
from op_profiler.compilers.relay.templates.nest import apply, nest_of
from op_profiler.compilers.relay.templates.padded import apply_padded, copied_from, padded_rows, up_to
from op_profiler.compilers.relay.templates.strategy import offer, registered
from op_profiler.compilers.relay.templates.template import Task, Template, output_dtype, two_float_tensors
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.operator import Operator
from op_profiler.schedules.nest import Axis, Nest

DENSE = "dense_pack.op_profiler"
PADDED_DENSE = "dense_pack_padded.op_profiler"


def _dense(cfg: Any, data: Any, weight: Any, bias: Any = None, dtype: Any = None) -> Any:
    """Compute the product [m, n] of data [m, k] and weight [n / lanes, k, lanes]."""
    return _product(data, weight, dtype, shape(data)[0], DENSE)


def _padded(cfg: Any, data: Any, weight: Any, bias: Any = None, dtype: Any = None) -> Any:
    """Compute `_dense` by a product with additional rows, which are not copied to the result."""
    rows, (blocks, _, lanes) = shape(data)[0], shape(weight)
    product = _product(data, weight, dtype, padded_rows(rows), "")
    return copied_from(product, (rows, blocks * lanes), lanes, PADDED_DENSE)


def _product(data: Any, weight: Any, dtype: Any, padded: int, tag: str) -> Any:
    """Return the product with `padded` rows; additional rows repeat the last row of the data."""
    te = load_tvm().te
    rows, depth = shape(data)
    blocks, _, lanes = shape(weight)
    dtype = dtype or data.dtype
    k = te.reduce_axis((0, depth), name="k")
    row_of = up_to(rows - 1, padded - 1)

    def product(y: Any, x: Any) -> Any:
        return te.sum(data[row_of(y), k].astype(dtype) * weight[x // lanes, k, x % lanes].astype(dtype), axis=k)

    return te.compute((padded, blocks * lanes), product, name="dense", tag=tag)


def _schedule(s: Any, cfg: Any, op: Any, output: Any) -> None:
    apply(_nest(op), s, cfg, op.output(0), output)


def _schedule_padded(s: Any, cfg: Any, op: Any, output: Any) -> None:
    (product,) = op.input_tensors
    apply_padded(_nest(product.op), s, cfg, op, output)


def _nest(product: Any) -> Nest:
    rows, columns = shape(product.output(0))
    lanes = shape(product.input_tensors[1])[-1]
    depth = int(product.reduce_axis[0].dom.extent)
    spatial = (Axis("y", rows), Axis("x", columns // lanes))
    return nest_of(spatial, lanes, (("k", depth),), "k", inner_tile_orders=True)


def _applies(attrs: Any, inputs: Any) -> bool:
    return static(inputs) and "float" in str(inputs[0].dtype) and len(inputs[1].shape) == 3


def _pads(attrs: Any, inputs: Any) -> bool:
    return _applies(attrs, inputs) and _are_added(shape(inputs[0])[0])


def _are_added(rows: int) -> bool:
    return padded_rows(rows) != rows


def register() -> None:
    """Register the template with AutoTVM and offer it for Relay's packed dense."""
    strategies = load_tvm().relay.op.strategy
    generic, x86 = strategies.generic, strategies.x86
    originals = {"cpu": x86.dense_pack_strategy_cpu}
    wrap = generic.wrap_compute_dense
    implementations = {
        DENSE: (registered(DENSE, _dense, _schedule, wrap), _applies),
        PADDED_DENSE: (registered(PADDED_DENSE, _padded, _schedule_padded, wrap), _pads),
    }
    offer(generic.dense_pack_strategy, originals, implementations)


def tasks(anchor: Operator) -> list[Task]:
    """See `Template.tasks`."""
    tensors = two_float_tensors(anchor)
    if tensors is None or anchor.anchor != "nn.contrib_dense_pack" or len(tensors[1][1]) != 3:
        return []
    names = (DENSE, PADDED_DENSE) if _are_added(tensors[0][1][0]) else (DENSE,)
    return [(name, (*tensors, None, output_dtype(anchor))) for name in names]


TEMPLATE = Template(register, tasks)
