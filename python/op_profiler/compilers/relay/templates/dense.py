"""Matrix products with a weight whose rows are packed in blocks (``NC32n``), as TVM's default packs them."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.relay.templates.conv2d import shape, static
from op_profiler.compilers.relay.templates.nest import apply, nest_of
from op_profiler.compilers.relay.templates.strategy import offer, registered
from op_profiler.compilers.relay.templates.template import Task, Template, output_dtype, two_float_tensors
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.operator import Operator
from op_profiler.schedules.nest import Axis

DENSE = "dense_pack.op_profiler"


def _dense(cfg: Any, data: Any, weight: Any, bias: Any = None, dtype: Any = None) -> Any:
    """data [m, k], weight [n / lanes, k, lanes]; the result [m, n]."""
    te = load_tvm().te
    rows, depth = shape(data)
    blocks, _, lanes = shape(weight)
    dtype = dtype or data.dtype
    k = te.reduce_axis((0, depth), name="k")

    def product(y: Any, x: Any) -> Any:
        return te.sum(data[y, k].astype(dtype) * weight[x // lanes, k, x % lanes].astype(dtype), axis=k)

    return te.compute((rows, blocks * lanes), product, name="dense", tag=DENSE)


def _schedule(s: Any, cfg: Any, op: Any, output: Any) -> None:
    rows, columns = shape(op.output(0))
    lanes = shape(op.input_tensors[1])[-1]
    depth = int(op.reduce_axis[0].dom.extent)
    spatial = (Axis("y", rows), Axis("x", columns // lanes))
    apply(nest_of(spatial, lanes, (("k", depth),), "k", inner_tile_orders=True), s, cfg, op.output(0), output)


def _applies(attrs: Any, inputs: Any) -> bool:
    return static(inputs) and "float" in str(inputs[0].dtype) and len(inputs[1].shape) == 3


def register() -> None:
    """Register the template with AutoTVM and offer it for Relay's packed dense."""
    load_tvm()
    from tvm.relay.op.strategy import generic, x86

    implementation = registered(DENSE, _dense, _schedule, generic.wrap_compute_dense)
    offer(generic.dense_pack_strategy, {"cpu": x86.dense_pack_strategy_cpu}, DENSE, implementation, _applies)


def tasks(anchor: Operator) -> list[Task]:
    """See `Template`."""
    tensors = two_float_tensors(anchor)
    if tensors is None or anchor.anchor != "nn.contrib_dense_pack" or len(tensors[1][1]) != 3:
        return []
    return [(DENSE, (*tensors, None, output_dtype(anchor)))]


TEMPLATE = Template(register, tasks)
