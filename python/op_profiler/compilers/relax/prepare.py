"""Passes over a model's graph before lowering: batch norms are folded, and channels are blocked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from op_profiler.compilers.relax import batched, dense, transposed
from op_profiler.compilers.relax.convolution import blocked_layouts
from op_profiler.compilers.relax.fold import fold_with_numpy
from op_profiler.compilers.relax.gpu import is_gpu
from op_profiler.compilers.relax.rewrite import Constant, Rewrite, bindings_of, rewrite_calls
from op_profiler.compilers.relax.simpler_ops import SIMPLER_OPS, WHOLE_OPS, WHOLE_RANKS, plain_sum
from op_profiler.compilers.relax.vectors import vectors_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule, Target

_CONV2D = "relax.nn.conv2d"
_PLAIN = ["NCHW", "OIHW"]


def prepared(module: IRModule, target: Target) -> Any:
    """Return a Relax module in the form that the default schedules require.

    Args:
        module: ``tvm.IRModule`` whose ``main`` is one dataflow block, with its weights as constants.
        target: ``tvm.target.Target``.
    """
    tvm = load_tvm()
    transform = tvm.relax.transform
    main = module["main"]
    channels_last = any(one.value.attrs.data_layout != _PLAIN[0] for one in _convolutions(main))
    passes = [
        transform.CanonicalizeBindings(),
        *([transform.FoldBatchnormToConv2D()] if _convolutions_are_read_once(main) else []),
        rewrite_calls("PlainSums", {"relax.sum": plain_sum}),  # before SimplerOps replaces the stacks that they read
        rewrite_calls("SimplerOps", SIMPLER_OPS),
        transform.DecomposeOpsForInference(),
        transform.CanonicalizeBindings(),
        fold_with_numpy(),
        transform.FoldConstant(),
        *([] if is_gpu(target) else _layouts(vectors_of(target).lanes, channels_last=channels_last)),
        rewrite_calls("WholeOps", WHOLE_OPS),
        transform.DeadCodeElimination(),
    ]
    with target:
        return tvm.transform.Sequential(passes)(module)


def _layouts(lanes: int, *, channels_last: bool) -> list[Any]:
    """Return passes that convert data and weights to the layouts that the rules for processors read.

    Args:
        channels_last: whether a convolution has its channels last. Then all convolutions are first converted to
            channels first, because TVM's pass converts the operators between convolutions only if axes are permuted.
    """

    def blocked(call: Any) -> dict[str, list[str]]:
        if call.op.name != _CONV2D or call.attrs.data_layout != _PLAIN[0]:
            return {}
        return {_CONV2D: blocked_layouts(call, lanes) or _PLAIN}

    to_the_front = [rewrite_calls("WholeRanks", WHOLE_RANKS), *_converted(lambda call: {_CONV2D: _PLAIN})]
    return [
        *(to_the_front if channels_last else []),
        *_converted(blocked),
        rewrite_calls("PackedWeights", {"relax.matmul": _packed(lanes), "relax.nn.conv2d_transpose": _phases(lanes)}),
    ]


def _converted(layouts: Callable[[Any], dict[str, list[str]]]) -> list[Any]:
    """Return passes that give convolutions these layouts of data, weight and output, and fold constants at once."""
    transform = load_tvm().relax.transform
    return [
        transform.ConvertLayout({}, layouts),
        fold_with_numpy(),
        transform.FoldConstant(),
        transform.CanonicalizeBindings(),
    ]


def _convolutions(function: Any) -> list[Any]:
    """Return the bindings of ``relax.nn.conv2d``."""
    return [one for one in bindings_of(function) if getattr(getattr(one.value, "op", None), "name", "") == _CONV2D]


def _convolutions_are_read_once(function: Any) -> bool:
    """Return whether each convolution is read by at most one op.

    Otherwise, TVM folds the batch norm into the convolution and computes the convolution twice (densenet). A batch norm
    that is not folded is a product and a sum in the kernel of its convolution.
    """
    relax = load_tvm().relax
    readers: dict[Any, int] = {}

    def read(value: Any) -> None:
        if isinstance(value, relax.Var):
            readers[value] = readers.get(value, 0) + 1
        elif isinstance(value, relax.Tuple):
            for field in value.fields:
                read(field)

    for value in (binding.value for binding in bindings_of(function)):
        for argument in getattr(value, "args", [getattr(value, "tuple_value", value)]):
            read(argument)
    return all(readers.get(one.var, 0) <= 1 for one in _convolutions(function))


def _packed(lanes: int) -> Rewrite:
    def rewrite(builder: Any, constant: Constant, call: Any) -> Any:
        weight = constant(call.args[1])
        if weight is None:
            return batched.transposed_sides(builder, call)
        if weight.ndim != 2 or str(call.args[0].ty.dtype) != str(weight.dtype):
            return call
        return dense.packed(builder, call, weight, lanes)

    return rewrite


def _phases(lanes: int) -> Rewrite:
    def rewrite(builder: Any, constant: Constant, call: Any) -> Any:
        weight = constant(call.args[1])
        made = None if weight is None else transposed.packed(builder, call, weight, lanes)
        return call if made is None else made

    return rewrite
