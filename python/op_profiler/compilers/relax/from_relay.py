"""A module of Relax from a graph that a process with Relay wrote (`compilers.relay.plain_graph`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError

Attrs = dict[str, Any]
Convert = Callable[[Any, Attrs, list[Any]], Any]
"""From ``tvm.relax.op``, the attributes of Relay's op with the ``shapes`` of its outputs, and its arguments."""


def read_graph(folder: Path) -> Any:
    """The module: its weights are constants, its inputs those of the graph, in order.

    Raises:
        ModelError: an op that has no counterpart here; names it.
    """
    relax = load_tvm().relax
    graph = json.loads((folder / "graph.json").read_text())
    builder = relax.BlockBuilder()
    inputs = {i["name"]: relax.Var(_name(i["name"]), relax.TensorType(i["shape"], i["dtype"])) for i in graph["inputs"]}
    made: list[Any] = []
    with np.load(folder / "weights.npz") as weights:

        def value(argument: Sequence[Any]) -> Any:
            kind, what, *rest = argument
            if kind == "input":
                return inputs[what]
            if kind == "weight":
                return relax.const(weights[what])
            if kind == "tuple":
                return [value(field) for field in what]
            found = made[what] if kind == "node" else value(what)
            return found if kind == "node" else _field(found, rest[0])

        with builder.function("main", list(inputs.values())):
            with builder.dataflow():
                for node in graph["nodes"]:
                    made.append(_converted(builder, node, [value(argument) for argument in node["arguments"]]))
                output = value(graph["output"])
                output = builder.emit_output(relax.Tuple(output) if isinstance(output, list) else output)
            builder.emit_func_output(output)
    return builder.get()


def _name(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _field(value: Any, index: int) -> Any:
    relax = load_tvm().relax
    return value[index] if isinstance(value, list) else relax.TupleGetItem(value, index)


def _converted(builder: Any, node: dict[str, Any], arguments: list[Any]) -> Any:
    convert = _CONVERTERS.get(node["op"])
    if convert is None:
        raise ModelError(f"Relay's op {node['op']} is not taken over into Relax")
    made = convert(load_tvm().relax.op, node["attrs"] | {"shapes": node["shapes"]}, arguments)
    same = isinstance(made, list) or any(made is argument for argument in arguments)
    return made if same else builder.emit(made)


def _shape(value: Any) -> list[int]:
    return [int(d) for d in value.ty.shape]


def _convolution(op: Any, a: Attrs, x: list[Any]) -> Any:
    function = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[len(a["strides"])]
    layouts = {"data_layout": a["data_layout"], "kernel_layout": a["kernel_layout"]}
    if (a["data_layout"], a["kernel_layout"]) == ("NHWC", "HWOI"):  # Relay's name of a depthwise kernel
        layouts["kernel_layout"] = "HWIO"
        x = [x[0], op.permute_dims(x[1], [0, 1, 3, 2])]
    return function(
        *x, strides=a["strides"], padding=a["padding"], dilation=a["dilation"], groups=a["groups"], **layouts
    )


def _transposed_convolution(op: Any, a: Attrs, x: list[Any]) -> Any:
    function = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose}[len(a["strides"])]
    return function(
        *x,
        strides=a["strides"],
        padding=a["padding"],
        output_padding=a["output_padding"],
        dilation=a["dilation"],
        groups=a["groups"],
    )


def _pooling(kind: str, dimensions: int) -> Convert:
    def convert(op: Any, a: Attrs, x: list[Any]) -> Any:
        more = {"count_include_pad": a.get("count_include_pad", False)} if kind == "avg" else {}
        return getattr(op.nn, f"{kind}_pool{dimensions}d")(
            x[0],
            pool_size=a["pool_size"],
            strides=a["strides"],
            padding=a["padding"],
            dilation=a.get("dilation", [1] * dimensions),
            ceil_mode=a.get("ceil_mode", False),
            layout=a["layout"],
            **more,
        )

    return convert


def _global_average(op: Any, a: Attrs, x: list[Any]) -> Any:
    return op.mean(x[0], axis=[i for i, axis in enumerate(a.get("layout", "NCHW")) if axis in "DHW"], keepdims=True)


def _global_maximum(op: Any, a: Attrs, x: list[Any]) -> Any:
    return op.max(x[0], axis=[i for i, axis in enumerate(a.get("layout", "NCHW")) if axis in "DHW"], keepdims=True)


def _batch_norm(op: Any, a: Attrs, x: list[Any]) -> Any:
    return op.nn.batch_norm(
        *x, axis=a["axis"], epsilon=a["epsilon"], center=a["center"], scale=a["scale"], training=False
    )


def _dense(op: Any, a: Attrs, x: list[Any]) -> Any:
    return op.matmul(x[0], op.permute_dims(x[1]))


def _matmul(op: Any, a: Attrs, x: list[Any]) -> Any:
    def side(value: Any, transposed: bool) -> Any:
        axes = list(range(len(_shape(value))))
        return op.permute_dims(value, [*axes[:-2], axes[-1], axes[-2]]) if transposed else value

    return op.matmul(side(x[0], a.get("transpose_a", False)), side(x[1], a.get("transpose_b", False)))


def _bias_add(op: Any, a: Attrs, x: list[Any]) -> Any:
    rank, axis = len(_shape(x[0])), int(a["axis"])
    return op.add(x[0], op.reshape(x[1], [-1 if i == axis % rank else 1 for i in range(rank)]))


def _reduction(name: str) -> Convert:
    def convert(op: Any, a: Attrs, x: list[Any]) -> Any:
        axis = a.get("axis")
        axes = None if axis is None else [axis] if isinstance(axis, int) else list(axis)
        if a.get("exclude"):
            rank = len(_shape(x[0]))
            axes = [i for i in range(rank) if i not in {one % rank for one in axes or ()}]
        return getattr(op, name)(x[0], axis=axes, keepdims=a.get("keepdims", False))

    return convert


def _strided_slice(op: Any, a: Attrs, x: list[Any]) -> Any:
    shape = _shape(x[0])
    axes = a.get("axes") or list(range(len(a["begin"])))
    strides = (a.get("strides") or [1]) * (1 if len(a.get("strides") or ()) > 1 else len(axes))
    ends = a["end"]
    if a.get("slice_mode") == "size":
        ends = [shape[i] if size < 0 else b + size for i, b, size in zip(axes, a["begin"], ends)]
    ends = [min(end, shape[i]) for i, end in zip(axes, ends)]
    return op.strided_slice(x[0], axes=axes, begin=a["begin"], end=ends, strides=strides)


def _reshape(op: Any, a: Attrs, x: list[Any]) -> Any:
    """To the shape that Relay found: its attributes may say the same with zeros and below, or nothing."""
    (shape,) = a["shapes"]
    return x[0] if _shape(x[0]) == shape else op.reshape(x[0], shape)


def _split(op: Any, a: Attrs, x: list[Any]) -> Any:
    return op.split(x[0], a["indices_or_sections"], axis=a["axis"])


def _softmax(op: Any, a: Attrs, x: list[Any]) -> Any:
    return op.nn.softmax(x[0], axis=a.get("axis", -1))


def _layer_norm(op: Any, a: Attrs, x: list[Any]) -> Any:
    return op.nn.layer_norm(x[0], x[1], x[2], axes=[a["axis"]], epsilon=a["epsilon"])


def _clip(op: Any, a: Attrs, x: list[Any]) -> Any:
    return op.clip(x[0], a["a_min"], a["a_max"])


def _broadcast_to(op: Any, a: Attrs, x: list[Any]) -> Any:
    return x[0] if _shape(x[0]) == list(a["shape"]) else op.broadcast_to(x[0], a["shape"])


def _pad(op: Any, a: Attrs, x: list[Any]) -> Any:
    widths = [side for pair in a["pad_width"] for side in pair]
    return op.nn.pad(x[0], widths, pad_mode=a.get("pad_mode", "constant"), pad_value=0.0)


def _same(name: str) -> Convert:
    """An op of the same name and arguments, without attributes."""
    return lambda op, a, x: getattr(op, name)(*x)


_SAME = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "where"),
    *("tanh", "sigmoid", "exp", "log", "sqrt", "rsqrt", "erf", "negative", "abs", "floor", "ceil"),
    *("equal", "not_equal", "less", "greater"),
)
_CONVERTERS: dict[str, Convert] = {
    **dict.fromkeys(("nn.conv1d", "nn.conv2d", "nn.conv3d"), _convolution),
    **dict.fromkeys(("nn.conv1d_transpose", "nn.conv2d_transpose"), _transposed_convolution),
    **{f"nn.{kind}_pool{n}d": _pooling(kind, n) for kind in ("avg", "max") for n in (1, 2, 3)},
    **{name: _same(name) for name in _SAME},
    "nn.relu": lambda op, a, x: op.nn.relu(x[0]),
    **{name: _reduction(name) for name in ("mean", "sum", "max", "min", "prod", "variance")},
    "nn.global_avg_pool2d": _global_average,
    "nn.global_max_pool2d": _global_maximum,
    "nn.batch_norm": _batch_norm,
    "nn.dense": _dense,
    "nn.matmul": _matmul,
    "nn.batch_matmul": _matmul,
    "nn.bias_add": _bias_add,
    "nn.dropout": lambda op, a, x: [x[0]],
    "nn.softmax": _softmax,
    "nn.log_softmax": lambda op, a, x: op.nn.log_softmax(x[0], axis=a.get("axis", -1)),
    "nn.layer_norm": _layer_norm,
    "nn.leaky_relu": lambda op, a, x: op.nn.leakyrelu(x[0], a["alpha"]),
    "nn.pad": _pad,
    "clip": _clip,
    "concatenate": lambda op, a, x: op.concat(x[0], axis=a["axis"]),
    "stack": lambda op, a, x: op.stack(x[0], axis=a["axis"]),
    "split": _split,
    "strided_slice": _strided_slice,
    **dict.fromkeys(("reshape", "squeeze", "expand_dims", "nn.batch_flatten"), _reshape),
    "transpose": lambda op, a, x: op.permute_dims(x[0], a.get("axes")),
    "cast": lambda op, a, x: op.astype(x[0], a["dtype"]),
    "take": lambda op, a, x: op.take(x[0], op.astype(x[1], "int64"), axis=a.get("axis"), mode=a.get("mode", "clip")),
    "gather": lambda op, a, x: op.gather_elements(x[0], op.astype(x[1], "int64"), axis=a["axis"]),
    "repeat": lambda op, a, x: op.repeat(x[0], a["repeats"], axis=a["axis"]),
    "broadcast_to": _broadcast_to,
    "zeros": lambda op, a, x: op.zeros(a["shape"], a["dtype"]),
    "ones": lambda op, a, x: op.ones(a["shape"], a["dtype"]),
}
"""By Relay's name of the op."""
