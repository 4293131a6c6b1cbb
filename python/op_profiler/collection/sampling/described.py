"""Points as operators, without a compiler: what TVM makes of common layers, by the rules that it follows.

An architecture search asks about thousands of networks that differ in widths and depths. Lowering each takes a second;
this takes microseconds a layer. A test holds every rule against what TVM says.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from op_profiler.collection.sampling.kinds import BatchMatmul, Conv2d, Dense, Elementwise, Pool2d, Softmax
from op_profiler.collection.sampling.point import Point
from op_profiler.errors import UsageError
from op_profiler.operators import cost
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.predict.latency.default_schedule import largest_divisor

_SIMPLE = {"relu": "nn.relu", "sigmoid": "sigmoid", "tanh": "tanh", "sqrt": "sqrt", "exp": "exp"}
_LARGEST_DENSE_BLOCKS = 2
"""A dense layer's columns are packed in blocks of up to so many vectors."""


@functools.lru_cache(maxsize=1 << 17)
def described(point: Point, lanes: int = 16) -> Operator:
    """The operator that a point becomes as a layer of a network, between layers of blocked channels.

    Args:
        lanes: values of 32 bits in a vector register: 16 with AVX-512, 8 with AVX2.

    Raises:
        UsageError: its kind, or what follows it, becomes several operators or is not described here.
    """
    for kind, describe in _DESCRIBED.items():
        if isinstance(point, kind):
            operator: Operator = describe(point, lanes)
            return operator
    raise UsageError(
        f"{type(point).__name__} is not described without a compiler; there are: "
        f"{', '.join(kind.__name__ for kind in _DESCRIBED)}"
    )


class _Fused:
    """An operator that is being put together, op by op."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._attrs: list[dict[str, Any]] = []
        self._edges: list[str] = []
        self._flops = 0
        self._tensors: list[tuple[str, TensorSpec]] = []
        self._shapes: dict[str, TensorSpec] = {}

    def tensor(self, letter: str, *shape: int) -> str:
        """An input (``i``) or a weight (``p``)."""
        name = f"{letter}{len(self._tensors)}"
        self._tensors.append((letter, TensorSpec(shape, "float32")))
        self._shapes[name] = self._tensors[-1][1]
        return name

    def op(
        self, name: str, arguments: Sequence[str], out: Sequence[int], attrs: Mapping[str, Any] | None = None
    ) -> str:
        """One op; returns what it is called in the structure."""
        spec = TensorSpec(tuple(out), "float32")
        inputs = [self._shapes.get(argument, TensorSpec((), "float32")) for argument in arguments]
        self._flops += cost.flops(name, dict(attrs or {}), inputs, (spec,))
        self._edges.append(f"{name}({','.join(arguments)})")
        self._names.append(name)
        self._attrs.append(dict(attrs or {}))
        value = f"%{len(self._edges) - 1}"
        self._shapes[value] = spec
        return value

    def operator(self) -> Operator:
        """All of it; the first op is the anchor."""
        inputs, params = ([t for letter, t in self._tensors if letter == wanted] for wanted in "ip")
        out = list(self._shapes.values())[-1]
        return Operator(
            name="fused_" + "_".join(name.replace(".", "_") for name in self._names),
            anchor=self._names[0],
            op_names=tuple(self._names),
            inputs=tuple(inputs),
            params=tuple(params),
            outputs=(out,),
            attrs=tuple(self._attrs),
            layouts={k: str(v) for k, v in self._attrs[0].items() if k.endswith("layout")},
            structure=";".join(self._edges),
            flops=self._flops,
            bytes_read=sum(cost.size_bytes(t) for _, t in self._tensors),
            bytes_written=cost.size_bytes(out),
        )


def _conv2d(point: Conv2d, lanes: int) -> Operator:
    depthwise = point.groups == point.in_channels == point.out_channels
    if point.groups > 1 and not depthwise:
        return _conv2d_in_groups(point)
    block = largest_divisor(point.out_channels, lanes)
    block_in = largest_divisor(point.in_channels, block)
    name = "nn.contrib_depthwise_conv2d_NCHWc" if depthwise else "nn.contrib_conv2d_NCHWc"
    kernel = f"OIHW1i{block}o" if depthwise else f"OIHW{block_in}i{block}o"
    size = point.kernel
    fused = _Fused()
    data = fused.tensor("i", point.batch, point.in_channels // block_in, point.height, point.width, block_in)
    inner = (1, size, size, 1, block) if depthwise else (point.in_channels // block_in, size, size, block_in, block)
    weight = fused.tensor("p", point.out_channels // block, *inner)
    out = (point.batch, point.out_channels // block, *point.out_size, block)
    layouts = {"data_layout": f"NCHW{block_in}c", "kernel_layout": kernel, "out_layout": f"NCHW{block}c"}
    value = fused.op(name, (data, weight), out, _conv2d_attrs(point) | layouts)
    _epilogue(fused, value, point.epilogue, out, (1, point.out_channels // block, 1, 1, block))
    return fused.operator()


def _conv2d_in_groups(point: Conv2d) -> Operator:
    """TVM does not block the channels of these."""
    fused = _Fused()
    data = fused.tensor("i", point.batch, point.in_channels, point.height, point.width)
    weight = fused.tensor("p", point.out_channels, point.in_channels // point.groups, point.kernel, point.kernel)
    out = (point.batch, point.out_channels, *point.out_size)
    layouts = {"data_layout": "NCHW", "kernel_layout": "OIHW"}
    value = fused.op("nn.conv2d", (data, weight), out, _conv2d_attrs(point) | layouts)
    _epilogue(fused, value, point.epilogue, out, (point.out_channels, 1, 1))
    return fused.operator()


def _conv2d_attrs(point: Conv2d) -> dict[str, Any]:
    """All but the layouts, in TVM's order."""
    return {
        "strides": [point.stride, point.stride],
        "padding": [point.kernel // 2] * 4,
        "dilation": [1, 1],
        "groups": point.groups,
        "channels": point.out_channels,
        "kernel_size": [point.kernel, point.kernel],
    }


def _dense(point: Dense, lanes: int) -> Operator:
    block = largest_divisor(point.out_features, _LARGEST_DENSE_BLOCKS * lanes)
    fused = _Fused()
    data = fused.tensor("i", point.rows, point.in_features)
    weight = fused.tensor("p", point.out_features // block, point.in_features, block)
    out = (point.rows, point.out_features)
    attrs = {"out_dtype": "float32", "weight_layout": f"NC{block}n"}
    value = fused.op("nn.contrib_dense_pack", (data, weight), out, attrs)
    _epilogue(fused, value, point.epilogue, out, (1, point.out_features))
    return fused.operator()


def _pool2d(point: Pool2d, lanes: int) -> Operator:
    block = largest_divisor(point.channels, lanes)
    fused = _Fused()
    data = fused.tensor("i", point.batch, point.channels // block, point.height, point.width, block)
    layout = f"NCHW{block}c"
    if point.mode == "global_avg":
        out = (point.batch, point.channels // block, 1, 1, block)
        fused.op("nn.global_avg_pool2d", (data,), out, {"layout": layout})
        return fused.operator()
    padding = point.window // 2
    rows, columns = ((n + 2 * padding - point.window) // point.stride + 1 for n in (point.height, point.width))
    attrs = {
        "pool_size": [point.window, point.window],
        "strides": [point.stride, point.stride],
        "dilation": [1, 1],
        "padding": [padding] * 4,
        "layout": layout,
        "ceil_mode": 0,
    }
    if point.mode == "avg":
        attrs["count_include_pad"] = 0
    out = (point.batch, point.channels // block, rows, columns, block)
    fused.op(f"nn.{point.mode}_pool2d", (data,), out, attrs)
    return fused.operator()


def _softmax(point: Softmax, lanes: int) -> Operator:
    fused = _Fused()
    shape = (point.outer, point.rows, point.columns)
    fused.op("nn.softmax", (fused.tensor("i", *shape),), shape, {"axis": -1})
    return fused.operator()


def _batch_matmul(point: BatchMatmul, lanes: int) -> Operator:
    fused = _Fused()
    left = fused.tensor("i", point.batch, point.rows, point.inner)
    shape = (point.columns, point.inner) if point.transposed else (point.inner, point.columns)
    right = fused.tensor("i", point.batch, *shape)
    attrs = {"transpose_a": 0, "transpose_b": int(point.transposed)}
    fused.op("nn.batch_matmul", (left, right), (point.batch, point.rows, point.columns), attrs)
    return fused.operator()


def _elementwise(point: Elementwise, lanes: int) -> Operator:
    fused = _Fused()
    data = fused.tensor("i", *point.shape)
    if point.op in ("add", "multiply", "subtract", "add_relu"):
        value = fused.op(point.op.partition("_")[0], (data, fused.tensor("i", *point.shape)), point.shape)
        if point.op == "add_relu":
            fused.op("nn.relu", (value,), point.shape)
    else:
        _activate(fused, data, point.op, point.shape)
    return fused.operator()


def _epilogue(fused: _Fused, value: str, name: str, out: tuple[int, ...], bias: tuple[int, ...]) -> None:
    if name == "none":
        return
    value = fused.op("add", (value, fused.tensor("p", *bias)), out)
    activation = name.partition("_")[2]
    if name == "residual_relu":
        value = fused.op("add", (value, fused.tensor("i", *out)), out)
        activation = "relu"
    if activation:
        _activate(fused, value, activation, out)


def _activate(fused: _Fused, value: str, name: str, out: tuple[int, ...]) -> None:
    constant = "const:float32[]"
    if name == "swish":
        gate = fused.op("sigmoid", (value,), out)
        fused.op("multiply", (value, gate), out)
    elif name == "relu6":
        fused.op("clip", (value,), out, {"a_min": 0.0, "a_max": 6.0})
    elif name == "hardswish":
        gate = fused.op("add", (value, constant), out)
        gate = fused.op("clip", (gate,), out, {"a_min": 0.0, "a_max": 6.0})
        fused.op("multiply", (value, fused.op("divide", (gate, constant), out)), out)
    elif name == "gelu_tanh":
        half = fused.op("multiply", (value, constant), out)
        cube = fused.op("multiply", (fused.op("power", (value, constant), out), constant), out)
        scaled = fused.op("multiply", (fused.op("add", (value, cube), out), constant), out)
        fused.op("multiply", (half, fused.op("add", (fused.op("tanh", (scaled,), out), constant), out)), out)
    elif name == "gelu":
        half = fused.op("multiply", (value, constant), out)
        scaled = fused.op("multiply", (value, constant), out)
        shifted = fused.op("add", (fused.op("erf", (scaled,), out), constant), out)
        fused.op("multiply", (half, shifted), out)
    else:
        fused.op(_SIMPLE[name], (value,), out)


_DESCRIBED: dict[type[Point], Any] = {
    Conv2d: _conv2d,
    Dense: _dense,
    Pool2d: _pool2d,
    Softmax: _softmax,
    BatchMatmul: _batch_matmul,
    Elementwise: _elementwise,
}
