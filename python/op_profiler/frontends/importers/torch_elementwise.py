"""Operators of torch that TVM's importer does not support and that are composed of simpler ones, per element or per
row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends.importers.relay_values import dtype_of, sizes_of, tvm_converters

_Converter = Callable[[Sequence[Any], Sequence[str]], Any]


def _like(value: Any, data: Any) -> Any:
    """Return a number or a tensor in the type of the data."""
    relay, kind = load_tvm().relay, dtype_of(data)
    if not isinstance(value, relay.Expr):
        return relay.const(value, kind)
    return value if dtype_of(value) == kind else relay.cast(value, kind)


def _rms_norm(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::rms_norm(data, shape, weight, epsilon); a missing epsilon is that of the type."""
    relay = load_tvm().relay
    data, over, weight, epsilon = inputs
    epsilon = float(np.finfo(dtype_of(data)).eps) if epsilon is None else epsilon
    square = relay.mean(data * data, list(range(-len(over), 0)), keepdims=True)
    out = data * relay.rsqrt(square + _like(float(epsilon), data))
    return out if weight is None else out * weight


def _mish(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::mish(data), ``x tanh(ln(1 + e^x))``, which is ``x n / (n + 2)`` of ``n = e^x (e^x + 2)``."""
    relay = load_tvm().relay
    data = inputs[0]
    power = relay.exp(relay.minimum(data, _like(20.0, data)))
    number = power * (power + _like(2.0, data))
    return data * (number / (number + _like(2.0, data)))


def _clamp(name: str, *places: int) -> _Converter:
    """aten::clamp(data, low, high) and similar operators, whose bounds may be tensors. TVM's own converter accepts
    numbers only.

    Args:
        places: positions of the lower and the upper bound among the inputs; 0 for none.
    """

    def bound(inputs: Sequence[Any], types: Sequence[str]) -> Any:
        relay = load_tvm().relay
        data, *bounds = inputs
        if not any(isinstance(one, relay.Expr) and relay.analysis.free_vars(one) for one in bounds):
            return getattr(tvm_converters(), name)(inputs, types)
        low, high = (inputs[place] if 0 < place < len(inputs) else None for place in places)
        data = data if low is None else relay.maximum(data, _like(low, data))
        return data if high is None else relay.minimum(data, _like(high, data))

    return bound


def _extreme(largest: bool) -> _Converter:
    """aten::max(data), aten::max(data, other), and aten::max(data, axis, keepdim), which also returns the position.
    TVM's own converter does not."""
    name = "max" if largest else "min"

    def reduce(inputs: Sequence[Any], types: Sequence[str]) -> Any:
        relay = load_tvm().relay
        if len(inputs) < 2 or isinstance(inputs[1], relay.Expr):
            return getattr(tvm_converters(), name)(inputs, types)
        data, axis, keep = [*inputs, False][:3]
        given = {"axis": [axis], "keepdims": bool(keep)}
        place = getattr(relay, f"arg{name}")(data, **given)
        return getattr(relay, name)(data, **given), relay.cast(place, "int64")

    return reduce


def _place(largest: bool) -> _Converter:
    """aten::argmax(data, axis, keepdim); without an axis, the place in the flattened data. TVM's own converter needs
    an axis, and returns 32-bit integers."""
    name = "argmax" if largest else "argmin"

    def find(inputs: Sequence[Any], types: Sequence[str]) -> Any:
        relay = load_tvm().relay
        data, axis, keep = inputs
        rank = len(sizes_of(data))
        if rank and axis is not None:
            return relay.cast(tvm_converters().convert_map[f"aten::{name}"](inputs, types), "int64")
        place = relay.cast(getattr(relay, name)(relay.reshape(data, (-1,)), axis=[0]), "int64")
        return relay.reshape(place, (1,) * rank) if keep else place

    return find


def _extent(largest: bool) -> _Converter:
    """aten::amax(data, axes, keepdim); no axes are all axes, for which TVM's own converter makes a wrong kernel."""

    def reduce(inputs: Sequence[Any], _: Sequence[str]) -> Any:
        relay = load_tvm().relay
        data, axes, keep = inputs
        if not sizes_of(data):
            return data
        return (relay.max if largest else relay.min)(data, axis=list(axes) or None, keepdims=bool(keep))

    return reduce


def _lerp(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::lerp(start, end, weight). TVM's own converter does not accept a number as weight."""
    start, end, weight = inputs
    return start + _like(weight, start) * (end - start)


def _shrink(soft: bool) -> _Converter:
    """aten::softshrink(data, limit) and aten::hardshrink(data, limit): 0 within the limit; softshrink also subtracts
    the limit outside of it."""

    def shrink(inputs: Sequence[Any], _: Sequence[str]) -> Any:
        relay = load_tvm().relay
        data = inputs[0]
        limit = _like(float(inputs[1]), data)
        outside = relay.greater(relay.abs(data), limit)
        return relay.where(outside, data - relay.sign(data) * limit if soft else data, relay.zeros_like(data))

    return shrink


def _cosine_similarity(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::cosine_similarity(left, right, axis, epsilon)"""
    relay = load_tvm().relay
    left, right, axis, epsilon = inputs
    wide = np.broadcast_shapes(*(tuple(sizes_of(one)) for one in (left, right)))
    left, right = (relay.broadcast_to(one, wide) for one in (left, right))
    norms = [relay.sum(one * one, axis) for one in (left, right)]
    norms = [relay.maximum(relay.sqrt(one), _like(float(epsilon), one)) for one in norms]
    return relay.sum(left * right, axis) / (norms[0] * norms[1])


def _times(factor: float) -> _Converter:
    return lambda inputs, _: inputs[0] * _like(factor, inputs[0])


ELEMENTWISE_CONVERTERS = {
    "aten::rms_norm": _rms_norm,
    "aten::mish": _mish,
    "aten::clamp": _clamp("clamp", 1, 2),
    "aten::clamp_min": _clamp("clamp_min", 1, 0),
    "aten::clamp_max": _clamp("clamp_max", 0, 1),
    "aten::max": _extreme(largest=True),
    "aten::min": _extreme(largest=False),
    "aten::argmax": _place(largest=True),
    "aten::argmin": _place(largest=False),
    "aten::amax": _extent(largest=True),
    "aten::amin": _extent(largest=False),
    "aten::lerp": _lerp,
    "aten::softshrink": _shrink(soft=True),
    "aten::hardshrink": _shrink(soft=False),
    "aten::cosine_similarity": _cosine_similarity,
    "aten::exp2": lambda inputs, types: load_tvm().relay.exp(_times(math.log(2))(inputs, types)),
    "aten::deg2rad": _times(math.pi / 180),
    "aten::rad2deg": _times(180 / math.pi),
    "aten::cumprod": lambda inputs, _: load_tvm().relay.cumprod(inputs[0], axis=inputs[1], exclusive=False),
    "aten::positive": lambda inputs, _: inputs[0],
}
"""Converters by the name of the operator."""
