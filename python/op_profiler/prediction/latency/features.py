"""Features of an operator: numbers that determine its time, the same for operators of every kind.

Sizes are logarithms to base 2.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from op_profiler.operators import cost
from op_profiler.operators.describe import PLAIN_EXPONENTS, exponent_of
from op_profiler.operators.operator import Operator

LANES = 16
"""Number of 32-bit values in a vector register that the features assume."""

KINDS = (
    "conv2d",
    "depthwise",
    "grouped",
    "other_conv",
    "dense",
    "batch_matmul",
    "pool",
    "softmax",
    "reduce",
    "take",
    "layout",
    "elementwise",
    "other",
)
"""Kinds of operators, determined by their anchor."""

_TRANSCENDENTAL = {
    **dict.fromkeys(("exp", "erf", "tanh", "sigmoid", "log", "fast_exp", "fast_tanh", "fast_erf", "power"), 1),
    **dict.fromkeys(("log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan", "logsumexp"), 1),
    **dict.fromkeys(("sinh", "cosh", "asinh", "acosh", "atanh", "atan2", "mod"), 2),
}
"""Approximate number of function evaluations for one value."""
_ROOTS = frozenset({"sqrt", "rsqrt", "divide"})
_KEPT = 1 << 16
_USUAL_ITEM_BYTES = 4
_PAGE_BYTES = 4096
"""Reads at this distance are in one set of the first-level cache and evict each other."""

_SIZES = ("rows", "columns", "reduction", "batch", "window", "width", "height", "out_width", "last_in", "last_out")
NAMES: tuple[str, ...] = (
    *(f"is_{kind}" for kind in KINDS),
    "flops",
    "input_bytes",
    "weight_bytes",
    "output_bytes",
    "item_bytes",
    "intensity",
    *_SIZES,
    "stride",
    "in_block",
    "out_block",
    "padded",
    "transposed_a",
    "transposed_b",
    "averages",
    "lane_waste",
    "inner_run",
    "read_stride",
    "stride_aliasing",
    "rank",
    "inputs",
    "ops",
    "transcendental",
    "transcendental_work",
    "roots",
    "moves",
    "cheap",
)
"""Names of the columns that `operator_features` returns."""


def kind_of(operator: Operator) -> str:
    """Return the kind of an operator, one of `KINDS`."""
    anchor = operator.anchor
    if "conv" in anchor and anchor in cost.HEAVY:
        if "conv2d" not in anchor or "transpose" in anchor:
            return "other_conv"
        groups = _attribute(operator, "groups", 1.0)
        if groups > 1:
            return "depthwise" if _weights_per_output(operator) == 1 else "grouped"
        return "depthwise" if "depthwise" in anchor else "conv2d"
    if anchor in cost.HEAVY:
        return "batch_matmul" if "batch_matmul" in anchor else "dense"
    if "pool" in anchor:
        return "pool"
    if "softmax" in anchor:
        return "softmax"
    names = set(operator.op_names)
    if names & (cost.LOOKS_UP - {"strided_slice"}):
        return "take"
    if names & cost.REDUCES:
        return "reduce"
    if names <= cost.MOVES_DATA and not operator.flops:
        return "layout"
    return "elementwise" if operator.flops else "other"


@functools.lru_cache(maxsize=_KEPT)
def operator_features(operator: Operator) -> np.ndarray:
    """Return the columns `NAMES` of one operator, float32; they do not depend on threads, device or model.

    The result is cached, because the networks of an architecture search share most of their operators. Do not modify
    it.
    """
    kind = kind_of(operator)
    sizes = _sizes(operator, kind)
    out = operator.outputs[0].shape if operator.outputs else (1,)
    read = operator.inputs_read
    first = read[0].shape if read else out
    weight_bytes = sum(cost.size_bytes(t) for t in operator.params)
    stride = _read_stride(operator)
    # A look-up or a permutation copies the last dimension, if it keeps it, as one piece.
    last_in, last_out = (first or (1,))[-1], (out or (1,))[-1]
    values = {
        **{f"is_{name}": float(name == kind) for name in KINDS},
        "flops": _log(operator.flops),
        "input_bytes": _log(max(operator.bytes_read - weight_bytes, 0)),
        "weight_bytes": _log(weight_bytes),
        "output_bytes": _log(operator.bytes_written),
        "item_bytes": float(_item_bytes(operator)),
        "intensity": _log(operator.arithmetic_intensity),
        **{name: _log(sizes.get(name, 1.0)) for name in _SIZES},
        "last_in": _log(last_in),
        "last_out": _log(last_out),
        "stride": _attribute(operator, "strides", 1.0),
        "in_block": float(first[4]) if len(first) == 5 else float(last_in % LANES == 0),
        "out_block": float(out[4]) if len(out) == 5 else float(last_out % LANES == 0),
        "averages": float("avg" in operator.anchor),
        "transposed_a": _attribute(operator, "transpose_a", 0.0),
        "transposed_b": _attribute(operator, "transpose_b", 0.0),
        "padded": float(any(_list_attribute(operator, "padding"))),
        "lane_waste": _waste(int(sizes.get("columns", last_out))),
        "inner_run": _log(_kept_run(operator)),
        "read_stride": _log(stride),
        "stride_aliasing": _log(math.gcd(stride, _PAGE_BYTES)),
        "rank": float(len(out)),
        "inputs": float(len(read) + len(operator.params)),
        **_counts(operator),
        "transcendental_work": _log(transcendental_work(operator)),
    }
    return np.fromiter((values[name] for name in NAMES), dtype=np.float32, count=len(NAMES))


def work_of(operator: Operator) -> tuple[float, int, int]:
    """Return the least FLOPs, the bytes and the transcendental functions (`transcendental_work`) of one call."""
    return cost.least_flops(operator), operator.bytes_read + operator.bytes_written, transcendental_work(operator)


def transcendental_work(operator: Operator) -> int:
    """Return the number of evaluations of exp, erf, tanh and similar functions; one evaluation takes nanoseconds."""
    count = sum(_evaluations(operator)) + ("softmax" in operator.anchor)
    return count * (cost.elements(operator.outputs[0].shape) if operator.outputs else 0)


def _evaluations(operator: Operator) -> list[int]:
    """Return the number of function evaluations of each op for one value.

    It is 0 for powers that are computed as products, and for remainders of integers.
    """
    whole = bool(operator.outputs) and not operator.outputs[0].dtype.startswith(("float", "bfloat"))
    counts = _TRANSCENDENTAL | ({"mod": 0} if whole else {})
    edges = itertools.zip_longest(operator.op_names, operator.structure.split(";"), fillvalue="")
    return [0 if exponent_of(edge) in PLAIN_EXPONENTS else counts.get(name, 0) for name, edge in edges]


def matrix(operators: Sequence[Operator]) -> np.ndarray:
    """Return the features of operators, shape (operators, len(NAMES)), float32."""
    return np.stack([operator_features(o) for o in operators]) if operators else np.empty((0, len(NAMES)), np.float32)


def _item_bytes(operator: Operator) -> int:
    """Return the bytes of one element of the first input, which distinguish float16 and int8 from float32."""
    tensors = (*operator.inputs, *operator.params, *operator.outputs)
    return cost.size_bytes(dataclasses.replace(tensors[0], shape=(1,))) if tensors else _USUAL_ITEM_BYTES


def _read_stride(operator: Operator) -> int:
    """Return the bytes between two reads of the innermost loop, which runs over the last axis of the output.

    This is one element if nothing is permuted.
    """
    itemsize = _item_bytes(operator)
    if not operator.inputs_read:
        return itemsize
    shape = operator.inputs_read[0].shape
    for name, attrs in zip(operator.op_names, operator.attrs):
        axes = attrs.get("axes")
        if name == "transpose" and axes and len(axes) == len(shape):
            return itemsize * max(math.prod(shape[int(axes[-1]) % len(shape) + 1 :]), 1)
        source, last = str(attrs.get("src_layout", "")), str(attrs.get("dst_layout", ""))[-1:]
        if name == "layout_transform" and last:
            letters = [c for c in source if c.isalpha()]
            if last in letters and len(letters) == len(shape):
                return itemsize * max(math.prod(shape[letters.index(last) + 1 :]), 1)
            if last.upper() in letters and len(letters) == len(shape):
                return itemsize * max(math.prod(shape[letters.index(last.upper()) + 1 :]), 1)
    return itemsize


def _counts(operator: Operator) -> dict[str, float]:
    op_names = operator.op_names
    transcendental = sum(count > 0 for count in _evaluations(operator))
    roots = sum(name in _ROOTS for name in op_names)
    moves = sum(name in cost.MOVES_DATA for name in op_names)
    return {
        "ops": float(len(op_names)),
        "transcendental": float(transcendental),
        "roots": float(roots),
        "moves": float(moves),
        "cheap": float(len(op_names) - transcendental - roots - moves),
    }


def _sizes(operator: Operator, kind: str) -> dict[str, float]:
    """Return the extents of the loops; every kind has rows, columns and a reduction, so kinds learn from each other."""
    out = [float(max(d, 1)) for d in (operator.outputs[0].shape if operator.outputs else ())] or [1.0]
    data = [float(max(d, 1)) for d in (operator.inputs_read[0].shape if operator.inputs_read else ())] or [1.0]
    total = math.prod(out)
    if kind in ("conv2d", "depthwise", "grouped") and len(out) in (4, 5):
        channels_last = len(out) == 4 and operator.layouts.get("data_layout") == "NHWC"
        height, width = (out[1], out[2]) if channels_last else (out[2], out[3])
        channels = out[3] if channels_last else out[1] * (out[4] if len(out) == 5 else 1)
        rows = out[0] * height * width
        reduction = operator.flops / max(2.0 * total, 1.0)
        window = _weight_window(operator)
        return {
            "rows": rows,
            "columns": channels,
            "reduction": max(reduction, 1.0),
            "batch": out[0],
            "window": window,
            "width": data[3] if len(data) >= 4 and not channels_last else data[-2],
            "height": height,
            "out_width": width,
        }
    if kind == "other_conv" and len(out) >= 3 and len(data) >= 3:
        rows = total / out[1]
        return {
            "rows": rows,
            "columns": out[1],
            "reduction": max(operator.flops / (2.0 * total), 1.0),
            "batch": out[0],
            "window": _weight_window(operator),
            "width": data[-1],
            "height": out[-2],
            "out_width": out[-1],
        }
    if kind == "dense":
        return {"rows": out[0], "columns": total / out[0], "reduction": data[-1], "batch": 1.0}
    if kind == "batch_matmul":
        return {"rows": out[-2] if len(out) > 1 else 1, "columns": out[-1], "reduction": data[-1], "batch": out[0]}
    if kind == "pool" and len(out) in (4, 5):
        return {
            "rows": out[2] * out[3],
            "columns": total / (out[2] * out[3]),
            "reduction": max(operator.flops / total, 1.0),
            "batch": out[0],
            "window": _weight_window(operator),
            "width": data[3] if len(data) > 3 else 1.0,
            "height": out[2],
            "out_width": out[3],
        }
    return {
        "rows": total / out[-1],
        "columns": out[-1],
        "reduction": max(math.prod(data) / total, 1.0),
        "batch": out[0],
    }


def _weight_window(operator: Operator) -> float:
    """Return the number of elements of a convolution's or pooling's window."""
    for attrs in operator.attrs:
        size = attrs.get("kernel_size") or attrs.get("pool_size")
        if size:
            return float(math.prod(int(s) for s in size))
    return 1.0


def _weights_per_output(operator: Operator) -> int:
    """Return the number of input channels that one output channel of a convolution with groups reads."""
    for attrs in operator.attrs:
        if "groups" in attrs and operator.outputs:
            out = operator.outputs[0].shape
            window = _weight_window(operator)
            return max(round(operator.flops / max(2.0 * math.prod(out) * window, 1.0)), 1)
    return 1


def _attribute(operator: Operator, name: str, default: float) -> float:
    for attrs in operator.attrs:
        value = attrs.get(name)
        if value is not None:
            return float(value[0] if isinstance(value, (list, tuple)) and value else value)
    return default


def _list_attribute(operator: Operator, name: str) -> list[float]:
    for attrs in operator.attrs:
        if isinstance(attrs.get(name), (list, tuple)):
            return [float(value) for value in attrs[name] if isinstance(value, (int, float))]
    return []


def _kept_run(operator: Operator) -> float:
    """Return how many elements a permutation leaves next to each other; the last dimension without a permutation."""
    out = operator.outputs[0].shape if operator.outputs else ()
    for name, attrs in zip(operator.op_names, operator.attrs):
        axes = attrs.get("axes")
        if name == "transpose" and axes:
            return float(out[-1]) if int(axes[-1]) in (-1, len(axes) - 1) else 1.0
        if name == "layout_transform":
            before, after = str(attrs.get("src_layout", "")), str(attrs.get("dst_layout", ""))
            return float(out[-1]) if before[-1:] == after[-1:] else 1.0
    return float(out[-1]) if out else 1.0


def _waste(columns: int) -> float:
    """Return the ratio of the elements of whole vectors to the elements that are used."""
    columns = max(columns, 1)
    return math.ceil(columns / LANES) * LANES / columns


def _log(value: float) -> float:
    return math.log2(max(float(value), 1.0 / 16))
