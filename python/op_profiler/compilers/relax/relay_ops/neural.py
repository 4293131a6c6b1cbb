"""Convolutions, products, normalizations and activations."""

from __future__ import annotations

import math
from typing import Any

from op_profiler.compilers.relax.relay_ops.convert import Attrs, Convert, along, shape_of
from op_profiler.compilers.tvm_build import load_tvm

_LAYOUTS = {1: ("NCW", "IOW"), 2: ("NCHW", "IOHW"), 3: ("NCDHW", "IODHW")}
"""Layouts of transposed convolutions, by number of dimensions, for which Relax has code."""


def _convolution(op: Any, a: Attrs, x: list[Any]) -> Any:
    function = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}[len(a["strides"])]
    layouts = {"data_layout": a["data_layout"], "kernel_layout": a["kernel_layout"]}
    if (a["data_layout"], a["kernel_layout"]) == ("NHWC", "HWOI"):  # a depthwise kernel: (height, width, C, multiplier)
        height, width, channels, multiplier = shape_of(x[1])
        layouts["kernel_layout"] = "HWIO"
        x = [x[0], op.reshape(x[1], [height, width, 1, channels * multiplier])]
    return function(
        *x, strides=a["strides"], padding=a["padding"], dilation=a["dilation"], groups=a["groups"], **layouts
    )


def _transposed_convolution(op: Any, a: Attrs, x: list[Any]) -> Any:
    data_layout, kernel_layout = _LAYOUTS[len(a["strides"])]
    function = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}[len(a["strides"])]
    made = function(
        _laid_out(op, x[0], a["data_layout"], data_layout),
        _laid_out(op, x[1], a["kernel_layout"], kernel_layout),
        strides=a["strides"],
        padding=a["padding"],
        output_padding=a["output_padding"],
        dilation=a["dilation"],
        groups=a["groups"],
    )
    return _laid_out(op, made, data_layout, a["data_layout"])


def _laid_out(op: Any, value: Any, layout: str, wanted: str) -> Any:
    return value if layout == wanted else op.permute_dims(value, [layout.index(axis) for axis in wanted])


def _matmul(op: Any, a: Attrs, x: list[Any]) -> Any:
    def side(value: Any, transposed: bool) -> Any:
        axes = list(range(len(shape_of(value))))
        return op.permute_dims(value, [*axes[:-2], axes[-1], axes[-2]]) if transposed else value

    return op.matmul(side(x[0], a.get("transpose_a", False)), side(x[1], a.get("transpose_b", False)))


def _batch_norm(op: Any, a: Attrs, x: list[Any]) -> Any:
    options = {"axis": a["axis"], "epsilon": a["epsilon"], "center": a["center"], "scale": a["scale"]}
    return op.nn.batch_norm(*x, **options, training=False)


def _used(op: Any, a: Attrs, x: list[Any]) -> list[Any]:
    """Return data, scale and shift of a norm; Relax ignores its attributes that leave one of them out."""
    data, scale, shift = x
    return [data, scale if a["scale"] else op.ones_like(scale), shift if a["center"] else op.zeros_like(shift)]


def _group_norm(op: Any, a: Attrs, x: list[Any]) -> Any:
    """Normalize over the channels of a group and all following axes."""
    rank = len(shape_of(x[0]))
    channel = int(a["axis"]) % rank
    options = {"channel_axis": channel, "axes": list(range(channel + 1, rank)), "epsilon": a["epsilon"]}
    return op.nn.group_norm(*_used(op, a, x), a["num_groups"], **options)


def _instance_norm(op: Any, a: Attrs, x: list[Any]) -> Any:
    """Normalize over all axes but samples and channels."""
    rank = len(shape_of(x[0]))
    channel = int(a["axis"]) % rank
    axes = [i for i in range(1, rank) if i != channel]
    return op.nn.instance_norm(*_used(op, a, x), channel_axis=channel, axes=axes, epsilon=a["epsilon"])


def _l2_normalize(op: Any, a: Attrs, x: list[Any]) -> Any:
    squares = op.sum(op.multiply(x[0], x[0]), axis=a.get("axis"), keepdims=True)
    return op.divide(x[0], op.sqrt(op.maximum(squares, _constant(a["eps"], x[0]))))


def _lrn(op: Any, a: Attrs, x: list[Any]) -> Any:
    """Divide values by a power of the sum of the squares of their neighbours along an axis."""
    shape, axis, size = shape_of(x[0]), int(a["axis"]), int(a["size"])
    rows = op.reshape(op.multiply(x[0], x[0]), [1, math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])])
    mean = op.nn.avg_pool2d(rows, pool_size=(size, 1), padding=(size // 2, 0), count_include_pad=True)
    base = op.add(op.multiply(op.reshape(mean, shape), _constant(a["alpha"], x[0])), _constant(a["bias"], x[0]))
    return op.divide(x[0], op.power(base, _constant(a["beta"], x[0])))


def _constant(value: float, like: Any) -> Any:
    return load_tvm().relax.const(value, like.ty.dtype)


NEURAL: dict[str, Convert] = {
    **dict.fromkeys(("nn.conv1d", "nn.conv2d", "nn.conv3d"), _convolution),
    **{f"nn.conv{n}d_transpose": _transposed_convolution for n in _LAYOUTS},
    "nn.dense": lambda op, a, x: op.matmul(x[0], op.permute_dims(x[1])),
    "nn.matmul": _matmul,
    "nn.batch_matmul": _matmul,
    "nn.bias_add": lambda op, a, x: op.add(x[0], along(x[1], int(a["axis"]), len(shape_of(x[0])))),
    "nn.batch_norm": _batch_norm,
    "nn.layer_norm": lambda op, a, x: op.nn.layer_norm(*_used(op, a, x), axes=[a["axis"]], epsilon=a["epsilon"]),
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.l2_normalize": _l2_normalize,
    "nn.lrn": _lrn,
    "nn.relu": lambda op, a, x: op.nn.relu(x[0]),
    "nn.leaky_relu": lambda op, a, x: op.nn.leakyrelu(x[0], a["alpha"]),
    "nn.prelu": lambda op, a, x: op.nn.prelu(x[0], x[1], axis=a["axis"]),
    "nn.softmax": lambda op, a, x: op.nn.softmax(x[0], axis=a.get("axis", -1)),
    "nn.log_softmax": lambda op, a, x: op.nn.log_softmax(x[0], axis=a.get("axis", -1)),
    "nn.dropout": lambda op, a, x: [x[0]],
}
