"""Converts between operators and the plain sizes in tables of other tools.

A table contains sizes; an `Operator` is a Relay function. `operator_of` creates the function that Relay would create
from the sizes, with the same workload key as if it had been compiled without blocked layouts. `shape_of` returns the
sizes of an operator, whatever layouts the compiler chose.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from op_profiler.operators.kinds.convolution import Convolution
from op_profiler.operators.kinds.described import operator_of_expression
from op_profiler.operators.kinds.point import Scope
from op_profiler.operators.operator import Operator, TensorSpec, axis_sizes

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Node
    from op_profiler.measure.measurement import Precision

Activation = Literal["", "nn.relu", "clip"]

_CONVOLUTIONS = {
    "nn.conv2d",
    "nn.contrib_conv2d_NCHWc",
    "nn.contrib_depthwise_conv2d_NCHWc",
    "nn.contrib_conv2d_NCHWc_int8",
    "nn.contrib_conv2d_winograd_without_weight_transform",
}
_DENSE = {"nn.dense", "nn.contrib_dense_pack"}
_EDGE = re.compile(r"^([\w.]+)\((.*)\)$")


class Unfit(ValueError):
    """Raised for an operator that a table's columns cannot describe; the message is the reason."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Conv:
    """A two-dimensional convolution in NCHW with weights OIHW, and the ops that are fused after it.

    Attributes:
        padding: rows and columns of zeros at the top, left, bottom, right.
        activation: activation after the bias; empty without an activation. ``clip`` limits values to 0 to 6.
        residual: whether a tensor of the output's shape is added.
        dtypes: dtypes of data (and output), weight and bias.
        extra: columns of the table that have no counterpart in Relay; part of the identity.
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
    def convolution(self) -> Convolution:
        """The sizes of the convolution, without the ops that are fused after it."""
        return Convolution(
            batch=self.batch,
            in_channels=self.in_channels,
            sizes=(self.height, self.width),
            out_channels=self.out_channels,
            kernel=self.kernel,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
        )

    @property
    def depthwise(self) -> bool:
        """Whether the convolution is depthwise: one filter per channel."""
        return self.groups > 1 and self.groups == self.in_channels == self.out_channels

    @property
    def keeps_size(self) -> bool:
        """Whether the output has the height and width of the input, divided by the strides and rounded up."""
        wanted = (-(-self.height // self.stride[0]), -(-self.width // self.stride[1]))
        return self.convolution.out_sizes == wanted

    def expression(self, scope: Scope) -> Node:
        """Return the Relay expression of the convolution and of the ops that are fused after it.

        Raises:
            ValueError: the sizes do not fit together.
        """
        sizes = (self.batch, self.in_channels, self.height, self.width, self.out_channels, self.groups)
        if min(*sizes, *self.kernel, *self.stride, *self.dilation) < 1 or min(self.padding) < 0:
            raise ValueError("sizes, kernel, stride, dilation and groups start at 1, padding at 0")
        if self.in_channels % self.groups or self.out_channels % self.groups:
            raise ValueError(f"{self.groups} groups do not divide {self.in_channels} and {self.out_channels} channels")
        conv = self.convolution
        if min(conv.out_sizes) < 1:
            raise ValueError(f"a kernel of {self.kernel} does not fit into {self.height} x {self.width}")
        data = scope.input(*conv.data_shape, dtype=self.dtypes[0])
        weight = scope.weight(*conv.weight_shape, dtype=self.dtypes[1])
        x = _followed(scope, conv.call(scope.relay, data, weight, **_extra(self)), self)
        return scope.relay.add(x, scope.input(*conv.out_shape, dtype=self.dtypes[0])) if self.residual else x


@dataclasses.dataclass(frozen=True, kw_only=True)
class DenseLayer:
    """A dense layer with a weight of shape (out_features, in_features); the other fields are as in `Conv`."""

    batch: int
    in_features: int
    out_features: int
    bias: bool = False
    activation: Activation = ""
    dtypes: tuple[str, str, str] = ("float32", "float32", "float32")
    extra: tuple[str, ...] = ()

    def expression(self, scope: Scope) -> Node:
        """Return the Relay expression of the layer; raises ValueError if a size is below 1."""
        if min(self.batch, self.in_features, self.out_features) < 1:
            raise ValueError("batch and features start at 1")
        data = scope.input(self.batch, self.in_features, dtype=self.dtypes[0])
        weight = scope.weight(self.out_features, self.in_features, dtype=self.dtypes[1])
        return _followed(scope, scope.relay.nn.dense(data, weight, **_extra(self)), self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plain:
    """A single op that is neither a convolution nor a dense layer, and reads activations only.

    Attributes:
        op: Relay's name.
        attrs: name and value of its attributes, lists as tuples.
        inputs: the tensors that the op reads, in NCHW if they have four dimensions.
    """

    op: str
    attrs: tuple[tuple[str, Any], ...]
    inputs: tuple[TensorSpec, ...]
    extra: tuple[str, ...] = ()

    def expression(self, scope: Scope) -> Node:
        """Return the Relay expression of the op; raises ValueError if the sizes do not fit together."""
        first, attrs = self.inputs[0], dict(self.attrs)
        if min(first.shape, default=0) < 1:
            raise ValueError("sizes start at 1")
        if window := attrs.get("pool_size"):
            if len(first.shape) != 4:
                raise ValueError("pooling is of four dimensions")
            top, left, bottom, right = attrs["padding"]
            if window[0] > first.shape[2] + top + bottom or window[1] > first.shape[3] + left + right:
                raise ValueError(f"a window of {window} does not fit into {first.shape[2]} x {first.shape[3]}")
        inputs = (scope.input(*tensor.shape, dtype=tensor.dtype) for tensor in self.inputs)
        return attrgetter(self.op)(scope.relay)(*inputs, **attrs, **_extra(self))


Shape = Conv | DenseLayer | Plain


def _extra(shape: Shape) -> dict[str, list[str]]:
    """Return the table's arguments that Relay does not have, as an attribute of the first op."""
    return {"op_args": list(shape.extra)} if shape.extra else {}


def _followed(scope: Scope, x: Node, shape: Conv | DenseLayer) -> Node:
    """Return the expression with bias and activation."""
    relay, channels = scope.relay, shape.out_channels if isinstance(shape, Conv) else shape.out_features
    if shape.bias:
        x = relay.nn.bias_add(x, scope.weight(channels, dtype=shape.dtypes[2]), axis=1)
    if shape.activation == "clip":
        return relay.clip(x, a_min=0.0, a_max=6.0)
    return relay.nn.relu(x) if shape.activation else x


def same_padding(kernel: int) -> tuple[int, int, int, int]:
    """Return the padding that keeps height and width at stride 1, for a square kernel."""
    before, after = (kernel - 1) // 2, kernel // 2
    return before, before, after, after


def precision_of(dtype: str) -> Precision:
    """Return the precision, as in `Settings`, for a dtype of the data.

    Raises:
        ValueError: no precision has this dtype.
    """
    known: dict[str, Precision] = {"float32": "float32", "float16": "float16", "int8": "int8", "uint8": "int8"}
    if dtype not in known:
        raise ValueError(f"data of {dtype} is of no precision that is known here ({', '.join(known)})")
    return known[dtype]


def dtype_of(shape: Shape) -> str:
    """Return the dtype of an operator's data, its first input."""
    return shape.inputs[0].dtype if isinstance(shape, Plain) else shape.dtypes[0]


def operator_of(shape: Shape) -> Operator:
    """Return the operator in plain layouts, with FLOPs and bytes as `operators/cost.py` counts them.

    Raises:
        ValueError: the sizes do not fit together.
    """
    made = operator_of_expression(shape.expression)
    return dataclasses.replace(made, name=made.name.removeprefix("fused_"))


def shape_of(operator: Operator) -> Shape:
    """Return the sizes of an operator as in the layouts NCHW and OIHW, whatever layouts the compiler chose.

    Raises:
        Unfit: no table can express the operator.
    """
    if any(-1 in tensor.shape for tensor in (*operator.inputs, *operator.params, *operator.outputs)):
        raise Unfit("a size is only known at run time")
    if operator.anchor in _CONVOLUTIONS or operator.anchor in _DENSE:
        return _heavy(operator)
    if len(operator.op_names) != 1:
        raise Unfit("several light ops fused")
    return _plain(operator)


def sizes(tensor: TensorSpec, layout: str) -> dict[str, int]:
    """Return the size of each axis of a tensor by the letter of the axis in the layout.

    Raises:
        Unfit: the layout has another number of axes.
    """
    found = axis_sizes(tensor.shape, layout)
    if not found and (tensor.shape or layout):
        raise Unfit(f"{len(tensor.shape)} dimensions in the layout {layout}")
    return found


def _heavy(operator: Operator) -> Conv | DenseLayer:
    edges = [_EDGE.match(edge) for edge in operator.structure.split(";")]
    place = operator.op_names.index(operator.anchor)
    edge = edges[place] if place < len(edges) else None
    if edge is None or len(edges) != len(operator.op_names):
        raise Unfit("a structure that is not known here")
    if place:
        raise Unfit("an op is fused before the heavy one")
    tensors = _by_name(operator)
    data, weight = (tensors.get(name) for name in (*edge[2].split(","), "")[:2])
    if data is None or weight is None:
        raise Unfit("data or weight are no plain tensors")
    arguments = [match[2].split(",") if match else [] for match in edges[1:]]
    after = _Followers(operator, arguments, tensors)
    common: dict[str, Any] = {
        "bias": after.bias is not None,
        "activation": after.activation,
        "dtypes": (data.dtype, weight.dtype, (after.bias or data).dtype),
        "extra": tuple(operator.attrs[0].get("op_args", ())),
    }
    if operator.anchor not in _DENSE:
        return _convolution(operator, data, weight, common | {"residual": after.residual})
    if after.residual:
        raise Unfit("a dense layer with a residual addition")
    features = weight.shape[0] if len(weight.shape) == 2 else weight.shape[0] * weight.shape[2]
    rows = math.prod(data.shape[:-1])
    return DenseLayer(batch=rows, in_features=data.shape[-1], out_features=features, **common)


class _Followers:
    """The ops that are fused after the heavy op.

    Raises:
        Unfit: anything but one bias, one activation and one residual addition.
    """

    def __init__(self, operator: Operator, arguments: Sequence[Sequence[str]], tensors: Mapping[str, TensorSpec]):
        self.bias: TensorSpec | None = None
        self.activation: Activation = ""
        self.residual = False
        for index, (op, attrs, names) in enumerate(zip(operator.op_names[1:], operator.attrs[1:], arguments)):
            others = [name for name in names if name != f"%{index}"]
            if len(others) != len(names) - 1:
                raise Unfit("ops fused in another way than one after the other")
            if op in ("add", "nn.bias_add") and len(others) == 1 and others[0] in tensors:
                self._add(others[0], tensors[others[0]], operator)
            elif op in ("nn.relu", "clip") and not self.activation and _is_relu(op, attrs):
                self.activation = "clip" if op == "clip" else "nn.relu"
            else:
                raise Unfit(f"fused with {op}")

    def _add(self, name: str, tensor: TensorSpec, operator: Operator) -> None:
        count, output = math.prod(tensor.shape), operator.outputs[0].shape
        if name.startswith("i") and count == math.prod(output) and not self.residual:
            self.residual = True
        elif name.startswith("p") and count == _channels(operator) and self.bias is None:
            self.bias = tensor
        else:
            raise Unfit("fused with an addition that is neither bias nor residual")


def _is_relu(op: str, attrs: Mapping[str, Any]) -> bool:
    return op == "nn.relu" or (attrs.get("a_min") == 0 and attrs.get("a_max") == 6)


def _channels(operator: Operator) -> int:
    layout = operator.attrs[0].get("out_layout") or operator.attrs[0].get("data_layout")
    output = operator.outputs[0]
    return output.shape[-1] if layout is None else sizes(output, str(layout)).get("C", 0)


def _by_name(operator: Operator) -> dict[str, TensorSpec]:
    """Return tensors by their names in the structure (``i0``, ``p1``), numbered over both kinds together."""
    names = sorted(set(re.findall(r"\b[ip]\d+\b", operator.structure)), key=lambda name: int(name[1:]))
    inputs = [name for name in names if name[0] == "i"]
    params = [name for name in names if name[0] == "p"]
    if len(inputs) != len(operator.inputs) or len(params) != len(operator.params):
        raise Unfit("a structure that is not known here")
    return dict(zip(inputs, operator.inputs)) | dict(zip(params, operator.params))


def _convolution(operator: Operator, data: TensorSpec, weight: TensorSpec, common: dict[str, Any]) -> Conv:
    attrs = operator.attrs[0]
    of_data = sizes(data, str(attrs.get("data_layout") or "NCHW"))
    kernel, channels = attrs.get("kernel_size"), attrs.get("channels")
    if not kernel or not channels:
        of_weight = sizes(weight, str(attrs.get("kernel_layout") or "OIHW"))
        kernel, channels = kernel or (of_weight["H"], of_weight["W"]), channels or _channels(operator)
    return Conv(
        batch=of_data["N"],
        in_channels=of_data["C"],
        height=of_data["H"],
        width=of_data["W"],
        out_channels=int(channels),
        kernel=_pair(kernel),
        stride=_pair(attrs.get("strides", (1, 1))),
        padding=_four(attrs.get("padding", (0, 0))),
        dilation=_pair(attrs.get("dilation", (1, 1))),
        groups=int(attrs.get("groups", 1)),
        **common,
    )


def _plain(operator: Operator) -> Plain:
    if operator.params:
        raise Unfit(f"{operator.anchor} with constants")
    attrs = dict(operator.attrs[0])
    extra = tuple(attrs.pop("op_args", ()))
    inputs = operator.inputs
    layout = str(attrs.get("layout", ""))
    if layout not in ("", "NCHW"):
        found = [sizes(tensor, layout) for tensor in inputs]
        inputs = tuple(TensorSpec(tuple(f[axis] for axis in "NCHW"), t.dtype) for f, t in zip(found, inputs))
        attrs |= {"layout": "NCHW"}
    elif any(len(tensor.shape) > 4 for tensor in inputs):
        raise Unfit("a light op in a blocked layout")
    values = tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in attrs.items())
    return Plain(op=operator.anchor, attrs=values, inputs=inputs, extra=extra)


def _pair(values: Sequence[int]) -> tuple[int, int]:
    if len(values) not in (1, 2):
        raise Unfit("a window that is not two-dimensional")
    return int(values[0]), int(values[-1])


def _four(values: Sequence[int]) -> tuple[int, int, int, int]:
    """Return top, left, bottom, right; of two values, the first is for top and bottom."""
    if len(values) == 4:
        top, left, bottom, right = (int(v) for v in values)
        return top, left, bottom, right
    height, width = _pair(values)
    return height, width, height, width
