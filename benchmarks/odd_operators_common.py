"""Single operators of ONNX with attributes off their defaults, at any size: a model for each seed."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from odd_graph_common import Graph
from odd_layouts_common import LAYOUTS

_MOST_OPERATIONS = 4e9


@dataclasses.dataclass(frozen=True)
class Drawn:
    """The operator of a seed; `name` says what is off its default, and its sizes."""

    seed: int
    operator: str
    name: str
    model: Any


def drawn(seed: int) -> Drawn:
    """The operator of a seed."""
    graph = Graph(seed)
    operator = graph.one_of(*sorted(DRAWS))
    DRAWS[operator](graph, operator)
    words = [operator, *graph.told, graph.shapes(), *([graph.dtype] if graph.dtype != "float32" else [])]
    return Drawn(seed, operator, " ".join(words), graph.model())


def _unary(graph: Graph, operator: str, **attributes: Any) -> None:
    graph.node(operator, [graph.input(graph.shape())], **attributes)


def _with(**choices: Sequence[Any]) -> Callable[[Graph, str], None]:
    """A unary operator whose attributes are each one of several values."""

    def draw(graph: Graph, operator: str) -> None:
        _unary(graph, operator, **{name: graph.one_of(*values) for name, values in choices.items()})

    return draw


def _whole(graph: Graph) -> str:
    return str(graph.one_of("int32", "int64", "int8"))


def _binary(graph: Graph, operator: str) -> None:
    """Of two tensors, with one value for each channel, or with a constant."""
    shape = graph.shape()
    form = graph.one_of("tensor", "channels", "constant")
    if operator in ("And", "Or", "Xor"):
        dtype = "bool"
    elif operator == "BitShift":
        dtype = "uint32"
    elif operator not in ("Pow", "PRelu") and graph.chance(0.2):
        dtype = _whole(graph) if operator != "Mod" else "int32"
    else:
        dtype = graph.dtype
    graph.told.append(f"{form}{'' if dtype == graph.dtype else f' {dtype}'}")
    first = graph.input(shape, dtype)
    if form == "tensor":
        second = graph.input(shape, dtype)
    elif form == "channels":
        second = graph.input([1] * (len(shape) - 1) + shape[-1:], dtype)
    elif operator == "Pow":
        exponent = graph.one_of(0.5, 2.0, 3.0, 4.0, -1.0, -1.5, 1.7, 0.25)
        graph.told.append(str(exponent))
        second = graph.constant(exponent)
    else:
        second = graph.constant(3 if dtype != "bool" else 1, dtype)
    attributes: dict[str, Any] = {}
    if operator == "Mod":
        attributes["fmod"] = int(dtype.startswith("float") or graph.chance(0.5))
    if operator == "BitShift":
        attributes["direction"] = graph.one_of("LEFT", "RIGHT")
    graph.node(operator, [first, second], **attributes)


def _several(graph: Graph, operator: str) -> None:
    shape = graph.shape()
    graph.node(operator, [graph.input(shape) for _ in range(graph.one_of(2, 3, 5))])


def _where(graph: Graph, operator: str) -> None:
    shape = graph.shape()
    condition = shape if graph.chance(0.5) else [*shape[:-1], 1]
    graph.node(operator, [graph.input(condition, "bool"), graph.input(shape), graph.input(shape)])


def _clip(graph: Graph, operator: str) -> None:
    graph.node(operator, [graph.input(graph.shape()), graph.constant(-0.5), graph.constant(0.5)])


def _cast(graph: Graph, operator: str) -> None:
    kinds = ("float32", "float16", "int32", "int64", "int8", "uint8", "bool")
    before, after = (graph.one_of(*kinds) for _ in range(2))
    from onnx import helper

    graph.told.append(f"{before} to {after}")
    graph.node(operator, [graph.input(graph.shape(), before)], to=helper.np_dtype_to_tensor_dtype(np.dtype(after)))


def _reduced(graph: Graph, operator: str) -> None:
    shape = graph.shape()
    axes = sorted(int(a) for a in graph.rng.choice(len(shape), graph.between(1, len(shape)), replace=False))
    keep = int(graph.chance(0.5))
    data = graph.input(shape)
    if operator == "ReduceSum":
        graph.told.append(f"axes={axes}")
        graph.node(operator, [data, graph.constant(axes, "int64")], keepdims=keep)
    else:
        graph.node(operator, [data], axes=axes, keepdims=keep)


def _along(graph: Graph, operator: str) -> None:
    """Softmax and its like, and places of extremes."""
    shape = graph.shape()
    attributes: dict[str, Any] = {"axis": graph.axis(shape)}
    if operator.startswith("Arg"):
        attributes |= {"keepdims": graph.one_of(0, 1), "select_last_index": graph.one_of(0, 1)}
    if operator == "LpNormalization":
        attributes["p"] = graph.one_of(1, 2)
    graph.node(operator, [graph.input(shape)], **attributes)


def _cumulated(graph: Graph, operator: str) -> None:
    shape = graph.shape()
    axis = graph.axis(shape)
    graph.told.append(f"axis={axis}")
    flags = {"exclusive": graph.one_of(0, 1), "reverse": graph.one_of(0, 1)}
    graph.node(operator, [graph.input(shape), graph.constant(axis, "int64")], **flags)


def _top(graph: Graph, operator: str) -> None:
    shape = graph.shape()
    axis = graph.axis(shape)
    k = min(graph.one_of(1, 5, 100), shape[axis])
    graph.told.append(f"k={k}")
    graph.node(operator, [graph.input(shape), graph.constant([k], "int64")], 2, axis=axis, largest=graph.one_of(0, 1))


def _normed(graph: Graph, operator: str) -> None:
    if operator == "LayerNormalization":
        shape = graph.shape(graph.one_of(2, 3, 4))
        scales = [graph.weight(shape[-1]), graph.weight(shape[-1])]
        graph.node(operator, [graph.input(shape), *scales], axis=-1, epsilon=1e-3)
        return
    shape = graph.image(graph.one_of(1, 2, 2, 3))
    data, channels = graph.input(shape), shape[1]
    if operator == "LRN":
        graph.node(operator, [data], size=graph.one_of(3, 5, 9), alpha=0.01, beta=graph.one_of(0.5, 0.6, 0.75))
    elif operator == "MeanVarianceNormalization":
        graph.node(operator, [data], axes=graph.one_of([0, 2], [2], [1]))
    elif operator == "InstanceNormalization":
        graph.node(operator, [data, graph.weight(channels), graph.weight(channels)], epsilon=1e-3)
    else:
        variance = graph.constant(np.abs(graph.rng.standard_normal(channels)) + 0.1)
        scales = [graph.weight(channels) for _ in range(3)]
        graph.node(operator, [data, *scales, variance], epsilon=1e-3)


def _pooled(graph: Graph, operator: str) -> None:
    axes = graph.one_of(1, 2, 2, 2, 3)
    shape = graph.image(axes)
    if operator.startswith("Global"):
        graph.node(operator, [graph.input(shape)])
        return
    window = min(graph.one_of(2, 3, 3, 5, 7, 13, 31), shape[2])
    stride = min(graph.one_of(1, 2, 3, window), window)
    margin = graph.one_of(0, window // 2)
    attributes: dict[str, Any] = {
        "kernel_shape": [window] * axes,
        "strides": [stride] * axes,
        "pads": [margin] * 2 * axes,
    }
    if operator == "AveragePool":
        attributes["count_include_pad"] = graph.one_of(0, 1)
    if operator == "LpPool":
        attributes["p"] = graph.one_of(1, 2, 3)
    graph.elements = min(graph.elements, _MOST_OPERATIONS / window**axes)
    graph.node(operator, [graph.input(shape)], **attributes)


def _convolved(graph: Graph, operator: str) -> None:
    axes = graph.one_of(1, 1, 2, 2, 2, 3)
    graph.elements = min(graph.elements, 2e6)
    shape = graph.image(axes)
    if axes == 1 and graph.chance(0.3):  # long rows
        channels = graph.one_of(1, 2, 4, 16)
        shape = [graph.batch, channels, max(round(graph.elements / graph.batch / channels), 8)]
    inside = shape[1]
    groups = graph.one_of(1, 1, 1, inside, *([2] if inside % 2 == 0 else []))
    window = min(graph.one_of(1, 2, 3, 3, 5, 7, 11), shape[2])
    places = math.prod(shape) / inside * window**axes * inside / groups * 2
    most = max(int(_MOST_OPERATIONS / places / groups), 1)
    outside = groups * min(graph.one_of(1, 2, 3, 8, 16, 32, 64, 100, 256), most)
    dilation = graph.one_of(1, 1, 1, 2, 3) if shape[2] > 3 * window else 1
    margin = graph.one_of(0, dilation * (window - 1) // 2)
    attributes: dict[str, Any] = {
        "strides": [graph.one_of(1, 1, 2, 3)] * axes,
        "pads": [margin] * 2 * axes,
        "dilations": [dilation] * axes,
        "group": groups,
    }
    if operator == "Conv":
        weight = [outside, inside // groups, *[window] * axes]
    else:
        attributes["dilations"] = [1] * axes
        attributes["pads"] = [0] * 2 * axes
        weight = [inside, outside // groups, *[window] * axes]
    graph.told += [f"weight {'x'.join(map(str, weight))}"]
    bias = [graph.weight(outside)] if graph.chance(0.5) else []
    graph.node(operator, [graph.input(shape), graph.weight(*weight), *bias], **attributes)


def _multiplied(graph: Graph, operator: str) -> None:
    rows, inner = graph.between(1, 2048), graph.between(1, 4096)
    columns = graph.one_of(1, 1, 2, 4, 8, graph.between(8, 4096))
    if graph.chance(0.3):
        rows = graph.one_of(1, 2, 4, 8)
    while 2.0 * rows * inner * columns > _MOST_OPERATIONS:
        rows = max(rows // 2, 1)
        inner = max(inner // 2, 1)
    graph.told.append(f"{rows}x{inner}x{columns}")
    if operator == "Gemm":
        a, b = (int(graph.chance(0.3)) for _ in range(2))
        data = graph.input([inner, rows] if a else [rows, inner])
        weight = graph.weight(*([columns, inner] if b else [inner, columns]))
        factors = {"alpha": graph.one_of(1.0, 0.5), "beta": graph.one_of(1.0, 0.25)}
        graph.node(operator, [data, weight, graph.weight(columns)], transA=a, transB=b, **factors)
        return
    several = graph.batch if 2.0 * graph.batch * rows * inner * columns < _MOST_OPERATIONS else 1
    if graph.chance(0.5):
        graph.node(operator, [graph.input([several, rows, inner]), graph.input([several, inner, columns])])
    else:
        graph.node(operator, [graph.input([several, rows, inner]), graph.weight(inner, columns)])


def _einsum(graph: Graph, operator: str) -> None:
    a, b, c = (graph.between(4, 128) for _ in range(3))
    n = graph.batch
    equation, shapes = graph.one_of(
        ("bij,bjk->bik", ([n, a, b], [n, b, c])),
        ("bhid,bhjd->bhij", ([n, 4, a, b], [n, 4, c, b])),
        ("bij,bij->bi", ([n, a * 16, b], [n, a * 16, b])),
        ("bij->bji", ([n, a * 4, b * 4],)),
    )
    graph.node(operator, [graph.input(shape) for shape in shapes], equation=equation)


def _recurrent(graph: Graph, operator: str) -> None:
    steps, features, hidden = graph.between(1, 16), graph.between(4, 256), graph.between(4, 256)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    data = graph.input([steps, graph.batch, features])
    weights = [graph.weight(1, gates * hidden, features), graph.weight(1, gates * hidden, hidden)]
    more = {"linear_before_reset": graph.one_of(0, 1)} if operator == "GRU" else {}
    graph.node(operator, [data, *weights], hidden_size=hidden, **more)


def _quantized(graph: Graph, operator: str) -> None:
    shape = graph.shape()
    data = graph.input(shape, "float32" if operator == "QuantizeLinear" else "int8")
    graph.dtype = "float32"
    graph.node(operator, [data, graph.constant(0.05), graph.constant(3, "int8")])


def _not(graph: Graph, operator: str) -> None:
    graph.node(operator, [graph.input(graph.shape(), "bool")])


def _newer(opset: int, draw: Callable[[Graph, str], None]) -> Callable[[Graph, str], None]:
    """An operator that earlier opsets do not have."""

    def of_opset(graph: Graph, operator: str) -> None:
        graph.opset = opset
        draw(graph, operator)

    return of_opset


_FUNCTIONS = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor"),
    *("HardSwish", "IsInf", "IsNaN", "Log", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign"),
    *("Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh"),
)
DRAWS: dict[str, Callable[[Graph, str], None]] = {
    **dict.fromkeys(_FUNCTIONS, _unary),
    "Celu": _with(alpha=(0.5, 2.0)),
    "Elu": _with(alpha=(0.5, 2.0)),
    "Gelu": _newer(20, _with(approximate=("none", "tanh"))),
    "HardSigmoid": _with(alpha=(0.2, 0.3), beta=(0.5, 0.4)),
    "LeakyRelu": _with(alpha=(0.01, 0.3)),
    "Mish": _newer(18, _unary),
    "ThresholdedRelu": _with(alpha=(0.5, 1.0)),
    "Clip": _clip,
    "Cast": _cast,
    "Not": _not,
    **dict.fromkeys(("Add", "Div", "Mod", "Mul", "PRelu", "Pow", "Sub"), _binary),
    **dict.fromkeys(("And", "BitShift", "Equal", "Greater", "Less", "LessOrEqual", "Or", "Xor"), _binary),
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), _several),
    "Where": _where,
    **dict.fromkeys((f"Reduce{what}" for what in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean")), _reduced),
    **dict.fromkeys((f"Reduce{what}" for what in ("Min", "Prod", "Sum", "SumSquare")), _reduced),
    **dict.fromkeys(("ArgMax", "ArgMin", "Hardmax", "LogSoftmax", "LpNormalization", "Softmax"), _along),
    "CumSum": _cumulated,
    "TopK": _top,
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "LRN", "LayerNormalization"), _normed),
    "MeanVarianceNormalization": _normed,
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "MaxPool"), _pooled),
    **dict.fromkeys(("Conv", "ConvTranspose"), _convolved),
    **dict.fromkeys(("Gemm", "MatMul"), _multiplied),
    "Einsum": _einsum,
    **LAYOUTS,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    **dict.fromkeys(("DequantizeLinear", "QuantizeLinear"), _quantized),
}
"""How each operator is drawn. Those that only name or reshape tensors, whose output's size depends on values, or that
have graphs inside are left out."""
