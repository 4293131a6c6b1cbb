"""What is done to a model's graph before it is lowered: batch norms folded, channels in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_profiler.compilers.relax import dense, transposed
from op_profiler.compilers.relax.convolution import blocked_layouts
from op_profiler.compilers.relax.fold import fold_with_numpy
from op_profiler.compilers.relax.gpu import is_gpu
from op_profiler.compilers.relax.rewrite import Constant, Rewrite, rewrite_calls
from op_profiler.compilers.relax.vectors import vectors_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule, Target

_CONV2D = "relax.nn.conv2d"
_UNCHANGED = ["NCHW", "OIHW"]


def prepared(module: IRModule, target: Target) -> Any:
    """A module of Relax as the default schedules want it.

    Args:
        module: ``tvm.IRModule`` whose ``main`` is one dataflow block, its weights constants.
        target: ``tvm.target.Target``.
    """
    tvm = load_tvm()
    transform = tvm.relax.transform
    passes = [
        transform.CanonicalizeBindings(),
        *([transform.FoldBatchnormToConv2D()] if _convolutions_are_read_once(module["main"]) else []),
        rewrite_calls("SimplerOps", _SIMPLER),
        transform.DecomposeOpsForInference(),
        transform.CanonicalizeBindings(),
        fold_with_numpy(),
        transform.FoldConstant(),
        *([] if is_gpu(target) else _blocks_and_phases(vectors_of(target).lanes)),
        transform.DeadCodeElimination(),
    ]
    with target:
        return tvm.transform.Sequential(passes)(module)


def _blocks_and_phases(lanes: int) -> list[Any]:
    """Passes after which data and weights lie as rules for processors read them."""
    transform = load_tvm().relax.transform

    def layouts(call: Any) -> dict[str, list[str]]:
        if call.op.name != _CONV2D or call.attrs.data_layout != _UNCHANGED[0]:
            return {}
        return {_CONV2D: blocked_layouts(call, lanes) or _UNCHANGED}

    return [
        transform.ConvertLayout({}, layouts),
        fold_with_numpy(),
        transform.FoldConstant(),
        transform.CanonicalizeBindings(),
        rewrite_calls("PackedWeights", {"relax.matmul": _packed(lanes), "relax.nn.conv2d_transpose": _phases(lanes)}),
    ]


def _convolutions_are_read_once(function: Any) -> bool:
    """TVM folds a batch norm into a convolution that others read too, and computes that convolution twice (densenet).

    A batch norm that is not folded is a product and a sum that the kernel of its convolution takes in.
    """
    relax = load_tvm().relax
    readers: dict[Any, int] = {}
    convolutions = []

    def read(value: Any) -> None:
        if isinstance(value, relax.Var):
            readers[value] = readers.get(value, 0) + 1
        elif isinstance(value, relax.Tuple):
            for field in value.fields:
                read(field)

    for binding in (binding for block in function.body.blocks for binding in block.bindings):
        value = binding.value
        for argument in getattr(value, "args", [getattr(value, "tuple_value", value)]):
            read(argument)
        if isinstance(value, relax.Call) and getattr(value.op, "name", "") == _CONV2D:
            convolutions.append(binding.var)
    return all(readers.get(variable, 0) <= 1 for variable in convolutions)


def _clip(builder: Any, constant: Constant, call: Any) -> Any:
    """ConvertLayout knows no ``clip`` and would put layout transforms around it."""
    relax = load_tvm().relax
    data, *bounds = call.args
    low, high = (relax.const(float(bound.value), data.ty.dtype) for bound in bounds)
    return relax.op.minimum(relax.op.maximum(data, low), high)


def _cumsum(builder: Any, constant: Constant, call: Any) -> Any:
    """TVM adds truth values as they are, which LLVM refuses; masks of language models are counted so."""
    relax = load_tvm().relax
    (data,), attrs = call.args, call.attrs
    if str(data.ty.dtype) != "bool":
        return call
    made = str(call.ty.dtype)
    counted = relax.op.astype(data, "int64" if made == "bool" else made)
    return relax.op.cumsum(counted, attrs.axis, str(counted.attrs.dtype), attrs.exclusive)


def _sinh(builder: Any, constant: Constant, call: Any) -> Any:
    """This TVM makes no code of it for processors."""
    op, half, x = load_tvm().relax.op, load_tvm().relax.const(0.5, call.ty.dtype), call.args[0]
    return op.multiply(op.subtract(op.exp(x), op.exp(op.negative(x))), half)


def _cosh(builder: Any, constant: Constant, call: Any) -> Any:
    op, half, x = load_tvm().relax.op, load_tvm().relax.const(0.5, call.ty.dtype), call.args[0]
    return op.multiply(op.add(op.exp(x), op.exp(op.negative(x))), half)


def _stack(builder: Any, constant: Constant, call: Any) -> Any:
    """ConvertLayout refuses models that stack along a new last axis."""
    op, axis = load_tvm().relax.op, int(call.attrs.axis or 0) % len(call.ty.shape)
    return op.concat([op.expand_dims(each, axis) for each in _fields(builder, call.args[0])], axis)


def _fields(builder: Any, value: Any) -> list[Any]:
    """Of a tuple."""
    relax = load_tvm().relax
    known = builder.lookup_binding(value) if isinstance(value, relax.Var) else value
    if isinstance(known, relax.Tuple):
        return list(known.fields)
    return [relax.TupleGetItem(value, at) for at in range(len(value.ty.fields))]


def _permute_dims(builder: Any, constant: Constant, call: Any) -> Any:
    """ConvertLayout refuses axes that are counted from the last one."""
    op, axes = load_tvm().relax.op, [int(axis) for axis in call.attrs.axes or ()]
    below = any(axis < 0 for axis in axes)
    return op.permute_dims(call.args[0], [axis % len(axes) for axis in axes]) if below else call


def _batch_norm(builder: Any, constant: Constant, call: Any) -> Any:
    """One that no convolution took in is one product and one sum."""
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


_SIMPLER: dict[str, Rewrite] = {
    "relax.clip": _clip,
    "relax.cumsum": _cumsum,
    "relax.cosh": _cosh,
    "relax.sinh": _sinh,
    "relax.stack": _stack,
    "relax.permute_dims": _permute_dims,
    "relax.nn.batch_norm": _batch_norm,
}


def _packed(lanes: int) -> Rewrite:
    def rewrite(builder: Any, constant: Constant, call: Any) -> Any:
        weight = constant(call.args[1])
        if weight is None or weight.ndim != 2 or str(call.args[0].ty.dtype) != str(weight.dtype):
            return call
        return dense.packed(builder, call, weight, lanes)

    return rewrite


def _phases(lanes: int) -> Rewrite:
    def rewrite(builder: Any, constant: Constant, call: Any) -> Any:
        weight = constant(call.args[1])
        made = None if weight is None else transposed.packed(builder, call, weight, lanes)
        return call if made is None else made

    return rewrite
