"""Ops that move or select values, or create tensors of one value."""

from __future__ import annotations

import math
from typing import Any

from op_profiler.compilers.relax.relay_ops.convert import Attrs, Convert, number, shape_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError

_PADDING = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}


def _to_shape(name: str) -> Convert:
    """Return a converter to the shape that Relay inferred; Relay's attributes may contain zeros or negative sizes."""
    return lambda op, a, x: x[0] if shape_of(x[0]) == a["shapes"][0] else getattr(op, name)(x[0], a["shapes"][0])


def _strided_slice(op: Any, a: Attrs, x: list[Any]) -> Any:
    shape = shape_of(x[0])
    axes = a.get("axes") or list(range(len(a["begin"])))
    strides = (a.get("strides") or [1]) * (1 if len(a.get("strides") or ()) > 1 else len(axes))
    ends = a["end"]
    if a.get("slice_mode") == "size":
        ends = [shape[i] if size < 0 else b + size for i, b, size in zip(axes, a["begin"], ends)]
    ends = [min(end, shape[i]) for i, end in zip(axes, ends)]
    return op.strided_slice(x[0], axes=axes, begin=a["begin"], end=ends, strides=strides)


def _take(op: Any, a: Attrs, x: list[Any]) -> Any:
    if a.get("batch_dims"):
        raise ModelError("it takes other rows for each sample of a batch")
    rows = op.reshape(x[0], [math.prod(shape_of(x[0]))]) if a.get("axis") is None else x[0]
    return op.take(rows, op.astype(x[1], "int64"), axis=a.get("axis", 0), mode=a.get("mode", "clip"))


def _gather_nd(op: Any, a: Attrs, x: list[Any]) -> Any:
    """Transpose the indices: Relay's are along the first axis, Relax's along the last."""
    axes = list(range(len(shape_of(x[1]))))
    indices = op.permute_dims(op.astype(x[1], "int64"), [*axes[1:], 0])
    return op.gather_nd(x[0], indices, batch_dims=int(a.get("batch_dims", 0)))


def _pad(op: Any, a: Attrs, x: list[Any]) -> Any:
    mode = a.get("pad_mode", "constant")
    value = float(number(x[1])) if mode == "constant" else 0.0
    widths = [side for pair in a["pad_width"] for side in pair]
    return op.nn.pad(x[0], widths, pad_mode=_PADDING[mode], pad_value=value)


def _filled(value: float) -> Convert:
    return lambda op, a, x: op.full(a["shapes"][0], load_tvm().relax.const(value, _dtype(a, x)), _dtype(a, x))


def _dtype(a: Attrs, x: list[Any]) -> str:
    return str(a.get("dtype") or x[0].ty.dtype)


def _one_hot(op: Any, a: Attrs, x: list[Any]) -> Any:
    on, off = (load_tvm().tirx.const(number(value), a["dtype"]) for value in x[1:])
    return op.one_hot(x[0], on, off, depth=a["depth"], axis=a["axis"])


def _depth_to_space(op: Any, a: Attrs, x: list[Any]) -> Any:
    """Convert data of shape (N, C, H, W) or (N, H, W, C)."""
    size, last, shape = int(a["block_size"]), a["layout"] == "NHWC", shape_of(x[0])
    batch, channels, height, width = [shape[i] for i in (0, 3, 1, 2)] if last else shape
    data = op.permute_dims(x[0], [0, 3, 1, 2]) if last else x[0]
    made = channels // size**2
    blocks = [made, size, size] if a["mode"] == "CRD" else [size, size, made]
    order = [0, 1, 4, 2, 5, 3] if a["mode"] == "CRD" else [0, 3, 4, 1, 5, 2]
    apart = op.permute_dims(op.reshape(data, [batch, *blocks, height, width]), order)
    whole = op.reshape(apart, [batch, made, height * size, width * size])
    return op.permute_dims(whole, [0, 2, 3, 1]) if last else whole


SHAPES: dict[str, Convert] = {
    **dict.fromkeys(("reshape", "squeeze", "expand_dims", "nn.batch_flatten"), _to_shape("reshape")),
    # of ``full`` the value is the first argument, of ``full_like`` the second
    **dict.fromkeys(("full", "full_like"), lambda op, a, x: _filled(number(x[-1]))(op, a, x)),
    **dict.fromkeys(("zeros", "zeros_like"), _filled(0)),
    **dict.fromkeys(("ones", "ones_like"), _filled(1)),
    "copy": lambda op, a, x: x[0],
    "transpose": lambda op, a, x: op.permute_dims(x[0], a.get("axes")),
    "concatenate": lambda op, a, x: op.concat(x[0], axis=a["axis"]),
    "stack": lambda op, a, x: op.stack(x[0], axis=a["axis"]),
    "split": lambda op, a, x: op.split(x[0], a["indices_or_sections"], axis=a["axis"]),
    "strided_slice": _strided_slice,
    "take": _take,
    "gather": lambda op, a, x: op.gather_elements(x[0], op.astype(x[1], "int64"), axis=a["axis"]),
    "gather_nd": _gather_nd,
    "repeat": lambda op, a, x: op.repeat(x[0], a["repeats"], axis=a["axis"]),
    "tile": lambda op, a, x: op.tile(x[0], a["reps"]),
    "reverse": lambda op, a, x: op.flip(x[0], axis=a["axis"]),
    "broadcast_to": _to_shape("broadcast_to"),
    "nn.pad": _pad,
    "one_hot": _one_hot,
    "nn.depth_to_space": _depth_to_space,
}
