"""Rewrites ops that other passes do not support, in the forms that importers write, into simpler ops."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from op_profiler.compilers.relax.rewrite import Constant, Rewrite, call_of
from op_profiler.compilers.tvm_build import load_tvm


def _clip(builder: Any, constant: Constant, call: Any) -> Any:
    """Replace ``clip``, because ConvertLayout does not support it and would put layout transforms around it."""
    relax = load_tvm().relax
    data, *bounds = call.args
    low, high = (float(bound.value) for bound in bounds)
    if low > high:  # TVM then returns `low`, but a minimum of a maximum is `high`
        return call
    raised = relax.op.maximum(data, relax.const(low, data.ty.dtype))
    return relax.op.minimum(raised, relax.const(high, data.ty.dtype))


def _clip_again(builder: Any, constant: Constant, call: Any) -> Any:
    """Restore the ``clip`` that `_clip` replaced."""
    op, inner = load_tvm().relax.op, call_of(builder, call.args[0], "relax.maximum")
    if inner is None:
        return call
    low, high = (_scalar(constant, each.args[1]) for each in (inner, call))
    known = low is not None and high is not None and low <= high
    return op.clip(inner.args[0], low, high) if known else call


def _leaky_relu(builder: Any, constant: Constant, call: Any) -> Any:
    """Replace ``leakyrelu``, because ConvertLayout does not support it."""
    relax, alpha = load_tvm().relax, float(call.attrs.alpha)
    if not 0 <= alpha <= 1:
        return call
    data = call.args[0]
    return relax.op.maximum(data, relax.op.multiply(data, relax.const(alpha, data.ty.dtype)))


def _leaky_relu_again(builder: Any, constant: Constant, call: Any) -> Any:
    """Restore the ``leakyrelu`` that `_leaky_relu` replaced."""
    inner = call_of(builder, call.args[1], "relax.multiply")
    if inner is None or not call.args[0].same_as(inner.args[0]):
        return call
    alpha = _scalar(constant, inner.args[1])
    known = alpha is not None and 0 <= alpha <= 1
    return load_tvm().relax.op.nn.leakyrelu(call.args[0], alpha) if known else call


def _scalar(constant: Constant, value: Any) -> float | None:
    """Return a floating-point constant without dimensions as its shortest decimal number; None for other values."""
    known = constant(value)
    if known is None or known.ndim or known.dtype.kind != "f":
        return None
    return float(str(known[()]))


def _cumsum(builder: Any, constant: Constant, call: Any) -> Any:
    """Cast Booleans before a cumulative sum (as in masks of language models): LLVM rejects TVM's sum of Booleans."""
    relax = load_tvm().relax
    (data,), attrs = call.args, call.attrs
    if str(data.ty.dtype) != "bool":
        return call
    made = str(call.ty.dtype)
    counted = relax.op.astype(data, "int64" if made == "bool" else made)
    return relax.op.cumsum(counted, attrs.axis, str(counted.attrs.dtype), attrs.exclusive)


def _sinh(builder: Any, constant: Constant, call: Any) -> Any:
    """Replace ``sinh``, for which this TVM generates no code on processors."""
    op, half, x = load_tvm().relax.op, load_tvm().relax.const(0.5, call.ty.dtype), call.args[0]
    return op.multiply(op.subtract(op.exp(x), op.exp(op.negative(x))), half)


def _cosh(builder: Any, constant: Constant, call: Any) -> Any:
    op, half, x = load_tvm().relax.op, load_tvm().relax.const(0.5, call.ty.dtype), call.args[0]
    return op.multiply(op.add(op.exp(x), op.exp(op.negative(x))), half)


def _stack(builder: Any, constant: Constant, call: Any) -> Any:
    """Replace ``stack``, because ConvertLayout rejects models that stack along a new last axis."""
    op, axis = load_tvm().relax.op, int(call.attrs.axis or 0) % len(call.ty.shape)
    return op.concat([op.expand_dims(each, axis) for each in _fields(builder, call.args[0])], axis)


def _fields(builder: Any, value: Any) -> list[Any]:
    """Return the fields of a tuple."""
    relax = load_tvm().relax
    known = builder.lookup_binding(value) if isinstance(value, relax.Var) else value
    if isinstance(known, relax.Tuple):
        return list(known.fields)
    return [relax.TupleGetItem(value, at) for at in range(len(value.ty.fields))]


def _permute_dims(builder: Any, constant: Constant, call: Any) -> Any:
    """Count axes from the first one, because ConvertLayout rejects axes that are counted from the last one."""
    op, axes = load_tvm().relax.op, [int(axis) for axis in call.attrs.axes or ()]
    below = any(axis < 0 for axis in axes)
    return op.permute_dims(call.args[0], [axis % len(axes) for axis in axes]) if below else call


def _batch_norm(builder: Any, constant: Constant, call: Any) -> Any:
    """Replace a batch norm that was not folded into a convolution by one product and one sum."""
    relax = load_tvm().relax
    data, *statistics = call.args
    values = [value for value in map(constant, statistics) if value is not None]
    if call.attrs.training or len(values) != len(statistics):
        return call
    gamma, beta, mean, variance = values
    scale = (gamma if call.attrs.scale else 1.0) / np.sqrt(variance + call.attrs.epsilon)
    shift = (beta if call.attrs.center else 0.0) - mean * scale
    rank = len(data.ty.shape)
    shape = [-1 if i == int(call.attrs.axis) % rank else 1 for i in range(rank)]
    factor, summand = (relax.const(one.reshape(shape).astype(gamma.dtype)) for one in (scale, shift))
    return relax.Tuple([relax.op.add(relax.op.multiply(data, factor), summand), *statistics[2:]])


def _dropout(builder: Any, constant: Constant, call: Any) -> Any:
    """Remove a dropout, which does nothing in a trained model, because ConvertLayout rejects models with dropouts."""
    relax = load_tvm().relax
    return relax.Tuple([call.args[0], relax.op.ones_like(call.args[0])])


def _broadcast_to(builder: Any, constant: Constant, call: Any) -> Any:
    """Remove a broadcast to an equal shape, as the ONNX importer writes it for sums: ConvertLayout rejects it."""
    load_tvm()
    import tvm_ffi

    data = call.args[0]
    return data if tvm_ffi.structural_equal(data.ty, call.ty) else call


def _whole_rank(builder: Any, constant: Constant, call: Any) -> Any:
    """Give constants the full rank, because ConvertLayout does not convert constants of a lower rank."""
    relax, rank = load_tvm().relax, len(call.ty.shape)
    for place, value in enumerate(map(constant, call.args)):
        if value is not None and 0 < value.ndim < rank:
            whole = relax.const(value.reshape((1,) * (rank - value.ndim) + value.shape))
            arguments = [*call.args[:place], whole, *call.args[place + 1 :]]
            return relax.Call(call.op, arguments, call.attrs, call.ty_args)
    return call


def plain_sum(builder: Any, constant: Constant, call: Any) -> Any:
    """Return the replacement of a sum over a stack of tensors, as the ONNX importer writes a Sum: successive additions.
    Other calls are returned unchanged."""
    relax = load_tvm().relax
    stacked = call.args[0]
    stacked = builder.lookup_binding(stacked) if isinstance(stacked, relax.Var) else stacked
    if getattr(getattr(stacked, "op", None), "name", "") != "relax.stack" or call.attrs.keepdims:
        return call
    if [int(axis) for axis in call.attrs.axis or ()] != [int(stacked.attrs.axis or 0)]:
        return call
    return functools.reduce(relax.op.add, _fields(builder, stacked.args[0]))


SIMPLER_OPS: dict[str, Rewrite] = {
    "relax.clip": _clip,
    "relax.cumsum": _cumsum,
    "relax.cosh": _cosh,
    "relax.nn.leakyrelu": _leaky_relu,
    "relax.sinh": _sinh,
    "relax.stack": _stack,
    "relax.permute_dims": _permute_dims,
    "relax.nn.batch_norm": _batch_norm,
    "relax.nn.dropout": _dropout,
    "relax.broadcast_to": _broadcast_to,
}
"""Rewrites by the name of the op."""
WHOLE_RANKS: dict[str, Rewrite] = {
    f"relax.{name}": _whole_rank for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
}
"""Rewrites before axes are permuted."""
WHOLE_OPS: dict[str, Rewrite] = {"relax.minimum": _clip_again, "relax.maximum": _leaky_relu_again}
"""Rewrites after layouts are chosen, into the single ops that Relay has, so that operators have the same key."""
