"""What tables of others can say about an operator, in plain layouts, and the operator that this is.

A table knows sizes; an `Operator` is a Relay function. `operator_of` makes the function that Relay would make of the
sizes, with the same workload key as if it had been compiled without blocked layouts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from op_profiler.measure.measurement import Precision
from op_profiler.operators import cost
from op_profiler.operators.operator import Operator, TensorSpec

Activation = Literal["", "nn.relu", "clip"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conv:
    """A two-dimensional convolution in NCHW with weights OIHW, and what is fused behind it.

    Attributes:
        padding: rows and columns of zeros at the top, left, bottom, right.
        activation: ``clip`` is from 0 to 6.
        residual: a tensor of the output's shape is added.
        dtypes: of data (and output), weight, bias.
        extra: arguments of the table's own that have no place in Relay; part of the identity.
    """

    batch: int
    in_channels: int
    height: int
    width: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    bias: bool = False
    activation: Activation = ""
    residual: bool = False
    dtypes: tuple[str, str, str] = ("float32", "float32", "float32")
    extra: tuple[str, ...] = ()

    @property
    def output_size(self) -> tuple[int, int]:
        """Height and width of the output."""
        top, left, bottom, right = self.padding
        extents = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation)]
        padded = (self.height + top + bottom, self.width + left + right)
        height, width = ((size - extent) // s + 1 for size, extent, s in zip(padded, extents, self.stride))
        return height, width

    @property
    def depthwise(self) -> bool:
        """One filter a channel."""
        return self.groups > 1 and self.groups == self.in_channels == self.out_channels

    @property
    def keeps_size(self) -> bool:
        """Whether the padding keeps height and width at stride 1, and their rounded-up parts at others."""
        wanted = (-(-self.height // self.stride[0]), -(-self.width // self.stride[1]))
        return self.output_size == wanted


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dense:
    """A product with a weight of shape (out_features, in_features); see `Conv`."""

    batch: int
    in_features: int
    out_features: int
    bias: bool = False
    activation: Activation = ""
    dtypes: tuple[str, str, str] = ("float32", "float32", "float32")
    extra: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plain:
    """Any other op alone, on activations only.

    Attributes:
        op: Relay's name.
        attrs: name and value of its attributes, lists as tuples.
        inputs: in NCHW where they have four dimensions.
    """

    op: str
    attrs: tuple[tuple[str, Any], ...]
    inputs: tuple[TensorSpec, ...]
    extra: tuple[str, ...] = ()


Shape = Conv | Dense | Plain


class _Step(NamedTuple):
    """One op of a chain; the first reads its operands, every other the one before it and then its operands."""

    op: str
    attrs: dict[str, Any]
    operands: tuple[tuple[str, TensorSpec], ...] = ()  # "i" for an activation, "p" for a constant


def same_padding(kernel: int) -> tuple[int, int, int, int]:
    """The padding that keeps height and width at stride 1, for a square kernel."""
    before, after = (kernel - 1) // 2, kernel // 2
    return before, before, after, after


def precision_of(dtype: str) -> Precision:
    """The precision in the words of `Settings` that a dtype of the data is.

    Raises:
        ValueError: none of them.
    """
    known: dict[str, Precision] = {"float32": "float32", "float16": "float16", "int8": "int8", "uint8": "int8"}
    if dtype not in known:
        raise ValueError(f"data of {dtype} is of no precision that is known here ({', '.join(known)})")
    return known[dtype]


def dtype_of(shape: Shape) -> str:
    """Of the data."""
    return shape.inputs[0].dtype if isinstance(shape, Plain) else shape.dtypes[0]


def operator_of(shape: Shape) -> Operator:
    """The operator in plain layouts, with FLOPs and bytes as `operators/cost.py` counts them.

    Raises:
        ValueError: sizes that do not go together.
    """
    if isinstance(shape, Conv):
        return _convolution(shape)
    if isinstance(shape, Dense):
        return _dense(shape)
    attrs = {name: list(value) if isinstance(value, tuple) else value for name, value in shape.attrs}
    step = _Step(shape.op, _with_extra(attrs, shape.extra), tuple(("i", tensor) for tensor in shape.inputs))
    return _chain([step], _output_of(shape))


def _convolution(conv: Conv) -> Operator:
    _check(conv)
    data_type, weight_type, _ = conv.dtypes
    data = TensorSpec((conv.batch, conv.in_channels, conv.height, conv.width), data_type)
    weight = TensorSpec((conv.out_channels, conv.in_channels // conv.groups, *conv.kernel), weight_type)
    output = TensorSpec((conv.batch, conv.out_channels, *conv.output_size), data_type)
    attrs = {
        "strides": list(conv.stride),
        "padding": list(conv.padding),
        "dilation": list(conv.dilation),
        "groups": conv.groups,
        "channels": conv.out_channels,
        "kernel_size": list(conv.kernel),
        "data_layout": "NCHW",
        "kernel_layout": "OIHW",
    }
    steps = [_Step("nn.conv2d", _with_extra(attrs, conv.extra), (("i", data), ("p", weight)))]
    steps += _followers(conv, conv.out_channels)
    if conv.residual:
        steps.append(_Step("add", {}, (("i", output),)))
    return _chain(steps, output)


def _check(conv: Conv) -> None:
    sizes = (conv.batch, conv.in_channels, conv.height, conv.width, conv.out_channels, conv.groups)
    if min(*sizes, *conv.kernel, *conv.stride, *conv.dilation) < 1 or min(conv.padding) < 0:
        raise ValueError("sizes, kernel, stride, dilation and groups start at 1, padding at 0")
    if conv.in_channels % conv.groups or conv.out_channels % conv.groups:
        raise ValueError(f"{conv.groups} groups do not divide {conv.in_channels} and {conv.out_channels} channels")
    if min(conv.output_size) < 1:
        raise ValueError(f"a kernel of {conv.kernel} does not fit into {conv.height} x {conv.width}")


def _dense(dense: Dense) -> Operator:
    if min(dense.batch, dense.in_features, dense.out_features) < 1:
        raise ValueError("batch and features start at 1")
    data_type, weight_type, _ = dense.dtypes
    data = TensorSpec((dense.batch, dense.in_features), data_type)
    weight = TensorSpec((dense.out_features, dense.in_features), weight_type)
    steps = [_Step("nn.dense", _with_extra({}, dense.extra), (("i", data), ("p", weight)))]
    steps += _followers(dense, dense.out_features)
    return _chain(steps, TensorSpec((dense.batch, dense.out_features), data_type))


def _followers(shape: Conv | Dense, channels: int) -> list[_Step]:
    steps = []
    if shape.bias:
        steps.append(_Step("nn.bias_add", {"axis": 1}, (("p", TensorSpec((channels,), shape.dtypes[2])),)))
    if shape.activation:
        attrs = {"a_min": 0.0, "a_max": 6.0} if shape.activation == "clip" else {}
        steps.append(_Step(shape.activation, attrs))
    return steps


def _with_extra(attrs: dict[str, Any], extra: Sequence[str]) -> dict[str, Any]:
    return attrs | {"op_args": list(extra)} if extra else attrs


def _output_of(shape: Plain) -> TensorSpec:
    first, attrs = shape.inputs[0], dict(shape.attrs)
    if min(first.shape, default=0) < 1:
        raise ValueError("sizes start at 1")
    if "pool_size" not in attrs:
        return first
    if len(first.shape) != 4:
        raise ValueError("pooling is of four dimensions")
    top, left, bottom, right = attrs["padding"]
    padded = (first.shape[2] + top + bottom, first.shape[3] + left + right)
    sizes = tuple((size - k) // s + 1 for size, k, s in zip(padded, attrs["pool_size"], attrs["strides"]))
    if min(sizes) < 1:
        raise ValueError(f"a window of {attrs['pool_size']} does not fit into {first.shape[2]} x {first.shape[3]}")
    return TensorSpec((*first.shape[:2], *sizes), first.dtype)


def _chain(steps: Sequence[_Step], output: TensorSpec) -> Operator:
    """As `compilers/relay/extract.py` describes a fused function: tensors are numbered in the order of reading."""
    tensors = [operand for step in steps for operand in step.operands]
    edges, flops, number = [], 0, 0
    for index, step in enumerate(steps):
        names = [f"{kind}{number + offset}" for offset, (kind, _) in enumerate(step.operands)]
        number += len(names)
        read = [tensor for _, tensor in step.operands]
        if index:
            names, read = [f"%{index - 1}", *names], [output, *read]
        edges.append(f"{step.op}({','.join(names)})")
        flops += cost.flops(step.op, step.attrs, read, (output,))
    anchor = steps[0]
    ops = tuple(step.op for step in steps)
    return Operator(
        name="_".join(op.replace(".", "_") for op in ops),
        anchor=anchor.op,
        op_names=ops,
        inputs=tuple(tensor for kind, tensor in tensors if kind == "i"),
        params=tuple(tensor for kind, tensor in tensors if kind == "p"),
        outputs=(output,),
        attrs=tuple(step.attrs for step in steps),
        layouts={name: str(value) for name, value in anchor.attrs.items() if name.endswith("layout")},
        structure=";".join(edges),
        flops=flops,
        bytes_read=sum(cost.size_bytes(tensor) for _, tensor in tensors),
        bytes_written=cost.size_bytes(output),
    )
