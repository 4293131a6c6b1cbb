"""Operators of current torch that TVM 0.19 does not support, or only in part.

A converter gets an operator's inputs, which are Relay expressions or plain values, and their types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends.importers.relay_values import name_of_dtype, number_of, shape_of, sizes_of, tvm_converters
from op_profiler.operators.kinds.sizes import windows

_Inputs = Sequence[Any]
_Types = Sequence[str]


def _diff(inputs: _Inputs, _: _Types) -> Any:
    """aten::diff(data, n, dim, prepend, append)"""
    relay = load_tvm().relay
    data, times, axis, prepend, append = inputs
    rank = len(shape_of(data))
    parts = [part for part in (prepend, data, append) if part is not None]
    data = relay.concatenate(parts, axis=axis) if len(parts) > 1 else data
    axis %= rank
    for _step in range(times):
        size = shape_of(data)[axis]
        after = relay.strided_slice(data, begin=[1], end=[size], axes=[axis])
        data = relay.subtract(after, relay.strided_slice(data, begin=[0], end=[size - 1], axes=[axis]))
    return data


def _zero_(inputs: _Inputs, _: _Types) -> Any:
    """aten::zero_(data). TVM's own converter needs a static shape, which a slice that is computed while tracing lacks
    (swin_v2's bias)."""
    return load_tvm().relay.zeros_like(inputs[0])


def _linear(inputs: _Inputs, _: _Types) -> Any:
    """aten::linear(data, weight, bias): one dense over all leading dimensions.

    TVM's own converter creates a batched product for more than two dimensions, for which llvm has no good schedule:
    BERT then takes 18 s instead of a fraction of a second.
    """
    relay = load_tvm().relay
    data, weight, bias = inputs
    shape = shape_of(data)
    flat = data if len(shape) == 2 else relay.reshape(data, (-1, shape[-1]))
    out = relay.nn.dense(flat, weight)
    if bias is not None:
        out = relay.nn.bias_add(out, bias)
    if len(shape) == 2:
        return out
    return relay.reshape(out, (*(int(d) for d in shape[:-1]), -1))


def _layer_norm(inputs: _Inputs, types: _Types) -> Any:
    """aten::layer_norm(data, shape, weight, bias, eps, ...). TVM's own converter requires both weights and one axis."""
    relay = load_tvm().relay
    data, over, weight, bias, epsilon = inputs[:5]
    if len(over) == 1:
        gamma, beta = weight_or(1, weight, over, types), weight_or(0, bias, over, types)
        return relay.nn.layer_norm(data, gamma, beta, axis=-1, epsilon=float(epsilon), center=True, scale=True)
    out = _standardized(data, list(range(-len(over), 0)), epsilon)
    out = out if weight is None else relay.multiply(out, weight)
    return out if bias is None else relay.add(out, bias)


def _batch_norm(inputs: _Inputs, types: _Types) -> Any:
    """aten::batch_norm(data, weight, bias, mean, variance, training, momentum, eps, ...). TVM's own converter requires
    a learned mean. Without one, and in training, the mean is that of the data: some networks standardize weights so.
    """
    relay = load_tvm().relay
    data, weight, bias, mean, variance, training, _momentum, epsilon = inputs[:8]
    shape = shape_of(data)
    gamma, beta = weight_or(1, weight, shape[1:2], types), weight_or(0, bias, shape[1:2], types)
    if mean is None or training:
        data = _standardized(data, [axis for axis in range(len(shape)) if axis != 1], epsilon)
        wide = (-1, *[1] * (len(shape) - 2))
        return relay.add(relay.multiply(data, relay.reshape(gamma, wide)), relay.reshape(beta, wide))
    given = {"center": bias is not None, "scale": weight is not None}
    return relay.nn.batch_norm(data, gamma, beta, mean, variance, axis=1, epsilon=float(epsilon), **given)[0]


def _convolution_mode(inputs: _Inputs, _: _Types) -> Any:
    """aten::_convolution_mode(data, weight, bias, stride, padding, dilation, groups), where padding is a string."""
    data, weight, bias, strides, padding, dilation, groups = inputs
    channels, _inner, *kernel = sizes_of(weight)
    lost = [step * (size - 1) if padding == "same" else 0 for step, size in zip(dilation, kernel, strict=True)]
    around = (*(size // 2 for size in lost), *(size - size // 2 for size in lost))
    convolve = getattr(load_tvm().relay.nn, f"conv{len(kernel)}d")
    sizes = {"strides": strides, "padding": around, "dilation": dilation, "groups": groups}
    out = convolve(data, weight, **sizes, channels=channels, kernel_size=kernel)
    return out if bias is None else load_tvm().relay.nn.bias_add(out, bias)


def _full_like(inputs: _Inputs, types: _Types) -> Any:
    """aten::full_like(data, value, dtype, ...). Without a dtype, TVM's own converter turns integers into float32, which
    cannot index a table."""
    data, value, dtype = inputs[:3]
    return _filled(data, value, dtype, types)


def _type_as(inputs: _Inputs, types: _Types) -> Any:
    """aten::type_as(data, other). TVM's own converter does not accept numbers that were computed while tracing."""
    relay = load_tvm().relay
    data = inputs[0] if isinstance(inputs[0], relay.Expr) else relay.const(inputs[0])
    return relay.cast(data, str(types[1]))


def _bitwise(name: str) -> Any:
    """aten::bitwise_NAME(data, other), without `other` for `not`. TVM's own converter truncates integers to 32 bits."""

    def convert(inputs: _Inputs, types: _Types) -> Any:
        relay = load_tvm().relay
        kind = str(np.result_type(*map(str, types[: 1 if name == "not" else 2])))
        given = [relay.cast(one, kind) if isinstance(one, relay.Expr) else relay.const(one, kind) for one in inputs[:2]]
        return getattr(relay, f"{'logical' if kind == 'bool' else 'bitwise'}_{name}")(*given)

    return convert


def _whole(kind: str) -> Any:
    """Return a converter of an operator on 64-bit integers, which TVM's own converter reduces to 32 bits."""

    def convert(inputs: _Inputs, types: _Types) -> Any:
        cast, made = load_tvm().relay.cast, tvm_converters().convert_map[kind](inputs, types)
        return [cast(one, "int64") for one in made] if kind.endswith("_numpy") else cast(made, "int64")

    return convert


def _outer(inputs: _Inputs, _: _Types) -> Any:
    """aten::outer(rows, columns)"""
    relay = load_tvm().relay
    return relay.multiply(relay.expand_dims(inputs[0], 1), relay.expand_dims(inputs[1], 0))


def _linalg_norm(inputs: _Inputs, _: _Types) -> Any:
    """aten::linalg_norm(data, order, axes, keepdim, dtype)"""
    relay = load_tvm().relay
    data, order, axes, keep = inputs[:4]
    of_matrix = order is not None and len(shape_of(data) if axes is None else axes) > 1  # then 2 is the spectral one
    if order not in (None, 2) or of_matrix:
        raise NotImplementedError(f"aten::linalg_norm of order {order}{' of matrices' if of_matrix else ''}")
    return relay.sqrt(relay.sum(relay.multiply(data, data), axes, keepdims=bool(keep)))


def _linspace(inputs: _Inputs, _: _Types) -> Any:
    """aten::linspace(start, stop, count, dtype, ...). TVM's own converter does not accept numbers that were computed
    while tracing."""
    start, stop, count, dtype = inputs[:4]
    values = np.linspace(number_of(start), number_of(stop), int(number_of(count)))
    return load_tvm().relay.const(values.astype("float32" if dtype is None else name_of_dtype(dtype)))


def _upsample_linear1d(inputs: _Inputs, _: _Types) -> Any:
    """aten::upsample_linear1d(data, size, align_corners, scales)"""
    data, sizes, aligned, scales = inputs
    sizes = sizes or [int(float(shape_of(data)[-1]) * scales[0])]
    mode = "align_corners" if aligned else "half_pixel"
    return load_tvm().relay.image.resize1d(data, sizes, None, "NCW", "linear", mode)


def _im2col(inputs: _Inputs, _: _Types) -> Any:
    """aten::im2col(data, kernel, dilation, padding, stride): the windows of an image [n, c, h, w] as columns
    [n, c * window, count]."""
    relay = load_tvm().relay
    data, kernel, dilation, padding, strides = inputs
    batch, channels, *sizes = sizes_of(data)
    around = [(0, 0), (0, 0), *((more, more) for more in padding)]
    data = relay.nn.pad(data, around) if any(padding) else data
    counts = windows(sizes, kernel, strides, (*padding, *padding), dilation)
    sizes = [size + 2 * more for size, more in zip(sizes, padding)]
    if _meet(sizes, kernel, dilation, strides):
        places = relay.reshape(data, (batch, channels, counts[0], kernel[0], counts[1], kernel[1]))
        columns = relay.transpose(places, (0, 1, 3, 5, 2, 4))
    else:
        ends = [(count - 1) * s + 1 for count, s in zip(counts, strides)]
        begins = [[d * at for d, at in zip(dilation, place)] for place in np.ndindex(*kernel)]
        seen = [[begin + end for begin, end in zip(begin, ends)] for begin in begins]
        parts = [relay.strided_slice(data, b, e, list(strides), axes=[2, 3]) for b, e in zip(begins, seen)]
        columns = relay.stack(parts, axis=2)
    return relay.reshape(columns, (batch, channels * kernel[0] * kernel[1], counts[0] * counts[1]))


def _meet(sizes: _Inputs, kernel: _Inputs, dilation: _Inputs, strides: _Inputs) -> bool:
    """Return whether windows cover an image, each position once."""
    return all(s == k and d == 1 and n % k == 0 for n, k, d, s in zip(sizes, kernel, dilation, strides))


def _filled(data: Any, value: Any, dtype: int | None, types: _Types) -> Any:
    """Return a tensor of the data's shape filled with a value of the requested type, which may be a float even if the
    data are integers."""
    relay = load_tvm().relay
    wanted = str(types[0]) if dtype is None else name_of_dtype(dtype)
    value = relay.cast(value, wanted) if isinstance(value, relay.Expr) else relay.const(value, wanted)
    return relay.full_like(relay.cast(data, wanted), value)


def weight_or(value: int, weight: Any, shape: Sequence[int], types: _Types) -> Any:
    """Return the weight of a normalization; if it is missing (None), a constant of this shape filled with `value`."""
    same = np.full([int(size) for size in shape], value, str(types[0]))
    return load_tvm().relay.const(same) if weight is None else weight


def _standardized(data: Any, axes: list[int], epsilon: float) -> Any:
    relay = load_tvm().relay
    mean = relay.mean(data, axes, keepdims=True)
    variance = relay.variance(data, axes, keepdims=True)
    return relay.multiply(relay.subtract(data, mean), relay.rsqrt(relay.add(variance, relay.const(float(epsilon)))))


CONVERTERS = {
    "aten::diff": _diff,
    "aten::zero_": _zero_,
    "aten::linear": _linear,
    "aten::layer_norm": _layer_norm,
    "aten::batch_norm": _batch_norm,
    "aten::_convolution_mode": _convolution_mode,
    "aten::full_like": _full_like,
    "aten::zeros_like": lambda inputs, types: _filled(inputs[0], 0, inputs[1], types),
    "aten::ones_like": lambda inputs, types: _filled(inputs[0], 1, inputs[1], types),
    "aten::outer": _outer,
    "aten::linalg_norm": _linalg_norm,
    "aten::linspace": _linspace,
    "aten::upsample_linear1d": _upsample_linear1d,
    "aten::type_as": _type_as,
    **{f"aten::bitwise_{name}": _bitwise(name) for name in ("and", "or", "xor", "not")},
    **{f"aten::__{name}__": _bitwise(name) for name in ("and", "or", "xor")},
    **{kind: _whole(kind) for kind in ("aten::argsort", "aten::nonzero", "aten::nonzero_numpy", "aten::one_hot")},
    "aten::im2col": _im2col,
}
"""Converters by the name of the operator."""
