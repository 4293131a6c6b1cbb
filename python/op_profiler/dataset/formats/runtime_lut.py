"""Operator look-up tables (runtime_lut): JSON lines, operators of Caffe2, percentiles in microseconds.

Shapes are NHWC with weights (OC, K, K, IC/groups) unless the argument ``order`` is NCHW; they are written as NHWC. The
latency is the 50th percentile. Arguments that do not affect the time (`caffe2.IGNORED`) are dropped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler import json_text
from op_profiler.dataset.formats import caffe2
from op_profiler.dataset.formats.format import (
    ReadTable,
    TableRow,
    UnknownKindError,
    latency,
    numbered_lines,
    read_entries,
)
from op_profiler.dataset.formats.line_format import TableFormat
from op_profiler.operators.kinds.shapes import Activation, Conv, DenseLayer, Plain, Shape, Unfit, operator_of
from op_profiler.operators.operator import TensorSpec

if TYPE_CHECKING:
    from op_profiler.measure.measurement import Precision

PERCENTILES = (0, 10, 50, 90, 100)
MECHANISM = "percentiles 0, 10, 50, 90, 100 of a runtime_lut table"

_CONVOLUTIONS: dict[str, Activation] = {"Conv": "", "ConvRelu": "nn.relu", "Int8Conv": "", "Int8ConvRelu": "nn.relu"}
_DENSE: dict[str, Activation] = {"FC": "", "Int8FC": "", "Int8FCRelu": "nn.relu"}
_PLAIN = {
    "Relu": "nn.relu",
    "Sigmoid": "sigmoid",
    "Softmax": "nn.softmax",
    "Add": "add",
    "Mul": "multiply",
    "MaxPool": "nn.max_pool2d",
    "AveragePool": "nn.avg_pool2d",
}
_POOLS = {"nn.max_pool2d", "nn.avg_pool2d"}
_OP_TYPES = {op: name for name, op in _PLAIN.items()}
_US = 1.0  # microseconds in the table's unit


def parse_row(line: str) -> TableRow:
    """Parse one JSON line.

    Raises:
        UnknownKindError: this op_type is not supported.
        ValueError: the line is not a valid row, or has no latency.
    """
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    missing = {"op_type", "op_args", "input_shapes", "input_dtypes", "runtime_us_p50"} - set(row)
    if missing:
        raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    try:
        shape = _shape(row)
    except UnknownKindError:
        raise
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"fields of other types than a look-up table has: {error}") from error
    median = latency(str(row["runtime_us_p50"]), us=_US)
    if median is None:
        return TableRow.of(shape, None, device=row.get("device") or None)
    times = (latency(str(row.get(f"runtime_us_p{p}", row["runtime_us_p50"])), us=_US) for p in PERCENTILES)
    samples = tuple(median if time is None else time for time in times)
    return TableRow(shape=shape, samples_us=samples, median_us=median, device=row.get("device") or None)


def format_row(shape: Shape, percentiles_us: Sequence[float], device: str) -> str:
    """Return the JSON line of an operator.

    Args:
        percentiles_us: times in the order of `PERCENTILES`, microseconds.

    Raises:
        Unfit: the format cannot express the operator.
    """
    if isinstance(shape, Conv):
        op_type, arguments = _conv_fields(shape)
    else:
        op_type, arguments = _dense_fields(shape) if isinstance(shape, DenseLayer) else _plain_fields(shape)
    made = operator_of(shape)
    tensors = [_nhwc(tensor) for tensor in (*made.inputs, *made.params)]
    if any(tensor.dtype not in caffe2.CODES for tensor in tensors):
        raise Unfit("a dtype that Caffe2 has no code for")
    times = {f"runtime_us_p{p}": time / _US for p, time in zip(PERCENTILES, percentiles_us)}
    row = {
        "op_type": op_type,
        "op_args": sorted([*arguments, *shape.extra], key=lambda text: caffe2.parse_argument(text)[0]),
        "input_shapes": [list(tensor.shape) for tensor in tensors],
        "input_dtypes": [caffe2.CODES[tensor.dtype] for tensor in tensors],
    }
    return json_text.dumps(row | times | {"device": device})


def _shape(row: Mapping[str, Any]) -> Shape:
    op, shapes, codes = row["op_type"], row["input_shapes"], row["input_dtypes"]
    if op not in _CONVOLUTIONS and op not in _DENSE and op.removeprefix("Int8") not in _PLAIN:
        raise UnknownKindError(op)
    if len(shapes) != len(codes) or not shapes:
        raise ValueError(f"{len(shapes)} shapes and {len(codes)} dtypes")
    if not all(isinstance(size, int) and size > 0 for one in shapes for size in one):
        raise ValueError("sizes are whole numbers from 1 up")
    values, texts = caffe2.arguments(row["op_args"])
    order = values.get("order", "NHWC")
    if order not in ("NHWC", "NCHW"):
        raise ValueError(f"order is NHWC or NCHW, not {order!r}")
    tensors = [TensorSpec(tuple(shape), caffe2.dtype(code)) for shape, code in zip(shapes, codes)]
    if op in _CONVOLUTIONS:
        return _conv(op, tensors, values, texts, str(order))
    if op in _DENSE:
        return _dense(op, tensors, texts)
    return _plain(_PLAIN[op.removeprefix("Int8")], tensors, values, texts, str(order))


def _conv(
    op: str, tensors: Sequence[TensorSpec], values: Mapping[str, caffe2.Value], texts: Mapping[str, str], order: str
) -> Conv:
    if len(tensors) not in (2, 3) or len(tensors[0].shape) != 4 or len(tensors[1].shape) != 4:
        raise ValueError("a convolution reads data and weight of four dimensions, and perhaps a bias")
    batch, channels, height, width = _nchw(tensors[0].shape, order)
    out_channels, per_group, *kernel = _nchw(tensors[1].shape, order)
    groups = values.get("group", 1)
    if not isinstance(groups, int) or per_group * groups != channels:
        raise ValueError(f"{channels} channels, {groups} groups and a weight for {per_group} channels")
    named = caffe2.pair(values, "kernel", kernel[0]) if {"kernel", "kernels", "kernel_h"} & set(values) else None
    if named is not None and list(named) != kernel:
        raise ValueError(f"kernel {named} with a weight of {tensors[1].shape}")
    known = caffe2.window_names() | {"group", "order"}
    return Conv(
        batch=batch,
        in_channels=channels,
        height=height,
        width=width,
        out_channels=out_channels,
        kernel=(kernel[0], kernel[1]),
        stride=caffe2.pair(values, "stride", 1),
        padding=caffe2.pads(values),
        dilation=caffe2.pair(values, "dilation", 1),
        groups=groups,
        bias=len(tensors) == 3,
        activation=_CONVOLUTIONS[op],
        dtypes=_dtypes(tensors),
        extra=_extra(texts, known),
    )


def _dense(op: str, tensors: Sequence[TensorSpec], texts: Mapping[str, str]) -> DenseLayer:
    if len(tensors) not in (2, 3) or len(tensors[1].shape) != 2:
        raise ValueError("a fully connected layer reads data and a weight of two dimensions, and perhaps a bias")
    data, weight = tensors[0], tensors[1]
    if math.prod(data.shape[1:]) != weight.shape[1]:
        raise ValueError(f"data of {data.shape} and a weight of {weight.shape}")
    return DenseLayer(
        batch=data.shape[0],
        in_features=weight.shape[1],
        out_features=weight.shape[0],
        bias=len(tensors) == 3,
        activation=_DENSE[op],
        dtypes=_dtypes(tensors),
        extra=_extra(texts, {"order"}),
    )


def _dtypes(tensors: Sequence[TensorSpec]) -> tuple[str, str, str]:
    """Return the dtypes of data, weight and bias; without a bias, the dtype of data in its place."""
    data, weight, *bias = (tensor.dtype for tensor in tensors)
    return data, weight, bias[0] if bias else data


def _plain(
    op: str, tensors: Sequence[TensorSpec], values: Mapping[str, caffe2.Value], texts: Mapping[str, str], order: str
) -> Plain:
    inputs = tuple(TensorSpec(_nchw(t.shape, order), t.dtype) if len(t.shape) == 4 else t for t in tensors)
    wanted = 2 if op in ("add", "multiply") else 1
    if len(inputs) != wanted:
        raise ValueError(f"{op} reads {wanted} tensors, not {len(inputs)}")
    if wanted == 2 and math.prod(inputs[1].shape) > math.prod(inputs[0].shape):
        inputs = inputs[::-1]  # the output has the shape of the larger one, which stands first here
    if op not in _POOLS:
        axis = (("axis", -1),) if op == "nn.softmax" else ()
        return Plain(op=op, attrs=axis, inputs=inputs, extra=_extra(texts, {"order"}))
    window = (inputs[0].shape[2], inputs[0].shape[3]) if values.get("global_pooling") else None
    attrs: list[tuple[str, Any]] = [
        ("pool_size", window or caffe2.pair(values, "kernel", 1)),
        ("strides", caffe2.pair(values, "stride", 1)),
        ("dilation", (1, 1)),
        ("padding", caffe2.pads(values)),
        ("layout", "NCHW"),
        ("ceil_mode", 0),
    ]
    if op == "nn.avg_pool2d":
        attrs.append(("count_include_pad", 0))
    known = caffe2.window_names() | {"order", "global_pooling"}
    return Plain(op=op, attrs=tuple(attrs), inputs=inputs, extra=_extra(texts, known))


def _extra(texts: Mapping[str, str], known: frozenset[str] | set[str]) -> tuple[str, ...]:
    return tuple(texts[name] for name in sorted(texts) if name not in known)


def _nchw(shape: Sequence[int], order: str) -> tuple[int, ...]:
    if order == "NCHW" or len(shape) != 4:
        return tuple(shape)
    return shape[0], shape[3], shape[1], shape[2]


def _nhwc(tensor: TensorSpec) -> TensorSpec:
    if len(tensor.shape) != 4:
        return tensor
    n, c, h, w = tensor.shape
    return TensorSpec((n, h, w, c), tensor.dtype)


def _conv_fields(conv: Conv) -> tuple[str, list[str]]:
    if conv.residual or conv.activation == "clip":
        raise Unfit("fused with more than bias and ReLU")
    arguments = caffe2.write_pair("kernel", conv.kernel) + caffe2.write_pair("stride", conv.stride)
    arguments += caffe2.write_pads(conv.padding) + caffe2.write_pair("dilation", conv.dilation, 1)
    arguments += [caffe2.format_argument("group", conv.groups)] if conv.groups != 1 else []
    name = "ConvRelu" if conv.activation else "Conv"
    return _quantized(name, conv.dtypes[0]), [*arguments, caffe2.format_argument("order", "NHWC")]


def _dense_fields(dense: DenseLayer) -> tuple[str, list[str]]:
    name = _quantized("FCRelu" if dense.activation else "FC", dense.dtypes[0])
    if dense.activation == "clip" or name not in _DENSE:
        raise Unfit("a dense layer fused with an activation")
    return name, []


def _plain_fields(plain: Plain) -> tuple[str, list[str]]:
    if plain.op not in _OP_TYPES:
        raise Unfit(f"{plain.op} has no op_type")
    attrs = dict(plain.attrs)
    arguments = []
    if plain.op in _POOLS:
        if attrs.get("ceil_mode") or tuple(attrs.get("dilation", (1, 1))) != (1, 1) or len(attrs["padding"]) != 4:
            raise Unfit("pooling that is dilated or rounds up")
        arguments = caffe2.write_pair("kernel", attrs["pool_size"]) + caffe2.write_pair("stride", attrs["strides"])
        arguments += caffe2.write_pads(attrs["padding"])
    elif plain.op == "nn.softmax" and attrs.get("axis") not in (-1, len(plain.inputs[0].shape) - 1):
        raise Unfit("softmax over another axis than the last")
    if any(len(tensor.shape) == 4 for tensor in plain.inputs):
        arguments = [*arguments, caffe2.format_argument("order", "NHWC")]
    return _quantized(_OP_TYPES[plain.op], plain.inputs[0].dtype), arguments


def _quantized(name: str, dtype: str) -> str:
    return f"Int8{name}" if dtype in ("int8", "uint8") else name


def _percentiles(row: Mapping[str, Any]) -> Sequence[float]:
    """Return the `PERCENTILES` over the rounds, microseconds; for a row imported from this format, its samples."""
    rounds = [sum(sample) / len(sample) for sample in row["samples_us"] if sample]
    if row["cache_mechanism"] == MECHANISM and len(rounds) == len(PERCENTILES):
        return rounds
    found = [float(value) for value in np.percentile(rounds or [row["median_us"]], PERCENTILES)]
    found[PERCENTILES.index(50)] = row["median_us"]
    return found


class RuntimeLut(TableFormat):
    """The format ``runtime_lut``: look-up tables of Caffe2 operators as JSON lines."""

    told = frozenset(("processor", "precision"))

    def read(self, path: Path, precision: Precision) -> ReadTable:
        """Read JSON lines; `precision` is ignored, because each line contains the dtypes."""
        return read_entries(numbered_lines(path), parse_row, mechanism=MECHANISM)

    def shape_line(self, shape: Shape, row: Mapping[str, Any]) -> str:
        """Return a JSON line with the percentiles `PERCENTILES` of the rounds in microseconds."""
        return format_row(shape, _percentiles(row), row["processor"])


FORMAT = RuntimeLut()
