"""From an operator as the compiler emits it back to sizes in plain layouts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from op_profiler.dataset.formats.shapes import Activation, Conv, Dense, Plain, Shape
from op_profiler.operators.operator import Operator, TensorSpec

_CONVOLUTIONS = {
    "nn.conv2d",
    "nn.contrib_conv2d_NCHWc",
    "nn.contrib_depthwise_conv2d_NCHWc",
    "nn.contrib_conv2d_NCHWc_int8",
    "nn.contrib_conv2d_winograd_without_weight_transform",
}
_DENSE = {"nn.dense", "nn.contrib_dense_pack"}
_EDGE = re.compile(r"^([\w.]+)\((.*)\)$")
_AXIS = re.compile(r"(\d*)([A-Za-z])")


class Unfit(ValueError):
    """An operator that cannot be said in a table's words; the text says why, the same for all of a kind."""


def shape_of(operator: Operator) -> Shape:
    """Sizes in N, C, H, W and OC, IC/groups, K, K, whatever layout the compiler chose.

    Raises:
        Unfit: no table has words for it.
    """
    if any(-1 in tensor.shape for tensor in (*operator.inputs, *operator.params, *operator.outputs)):
        raise Unfit("a size is only known at run time")
    if operator.anchor in _CONVOLUTIONS or operator.anchor in _DENSE:
        return _heavy(operator)
    if len(operator.op_names) != 1:
        raise Unfit("several light ops fused")
    return _plain(operator)


def sizes(tensor: TensorSpec, layout: str) -> dict[str, int]:
    """The size of each axis of a tensor, by its capital letter; blocks are multiplied into it.

    ``NCHW16c`` of shape (1, 4, 7, 7, 16) gives N 1, C 64, H 7, W 7; ``OIHW1i16o`` likewise.

    Raises:
        Unfit: the layout has another number of axes.
    """
    axes = [letter for _, letter in _AXIS.findall(layout)]
    if len(axes) != len(tensor.shape):
        raise Unfit(f"{len(tensor.shape)} dimensions in the layout {layout}")
    found: dict[str, int] = {}
    for letter, size in zip(axes, tensor.shape):
        found[letter.upper()] = found.get(letter.upper(), 1) * size
    return found


def _heavy(operator: Operator) -> Conv | Dense:
    edges = [_EDGE.match(edge) for edge in operator.structure.split(";")]
    place = operator.op_names.index(operator.anchor)
    edge = edges[place] if place < len(edges) else None
    if edge is None or len(edges) != len(operator.op_names):
        raise Unfit("a structure that is not known here")
    if place:
        raise Unfit("an op is fused before the heavy one")
    tensors = _by_name(operator)
    read = [tensors.get(name) for name in edge[2].split(",")]
    if len(read) < 2 or read[0] is None or read[1] is None:
        raise Unfit("data or weight are no plain tensors")
    make = _dense if operator.anchor in _DENSE else _convolution
    after = [match[2].split(",") if match else [] for match in edges[1:]]
    return make(operator, read[0], read[1], _Followers(operator, after, tensors))


class _Followers:
    """What is fused behind the heavy op.

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
    """Tensors by their names in the structure (``i0``, ``p1``), which count through both kinds together."""
    names = sorted(set(re.findall(r"\b[ip]\d+\b", operator.structure)), key=lambda name: int(name[1:]))
    inputs = [name for name in names if name[0] == "i"]
    params = [name for name in names if name[0] == "p"]
    if len(inputs) != len(operator.inputs) or len(params) != len(operator.params):
        raise Unfit("a structure that is not known here")
    return dict(zip(inputs, operator.inputs)) | dict(zip(params, operator.params))


def _convolution(operator: Operator, data: TensorSpec, weight: TensorSpec, after: _Followers) -> Conv:
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
        bias=after.bias is not None,
        activation=after.activation,
        residual=after.residual,
        dtypes=_dtypes(data, weight, after),
        extra=tuple(attrs.get("op_args", ())),
    )


def _dense(operator: Operator, data: TensorSpec, weight: TensorSpec, after: _Followers) -> Dense:
    if after.residual:
        raise Unfit("a dense layer with a residual addition")
    features = weight.shape[0] if len(weight.shape) == 2 else weight.shape[0] * weight.shape[2]
    return Dense(
        batch=math.prod(data.shape[:-1]),
        in_features=data.shape[-1],
        out_features=features,
        bias=after.bias is not None,
        activation=after.activation,
        dtypes=_dtypes(data, weight, after),
        extra=tuple(operator.attrs[0].get("op_args", ())),
    )


def _dtypes(data: TensorSpec, weight: TensorSpec, after: _Followers) -> tuple[str, str, str]:
    return data.dtype, weight.dtype, after.bias.dtype if after.bias is not None else data.dtype


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
    """Top, left, bottom, right; of two values the first is of top and bottom."""
    if len(values) == 4:
        top, left, bottom, right = (int(v) for v in values)
        return top, left, bottom, right
    height, width = _pair(values)
    return height, width, height, width
