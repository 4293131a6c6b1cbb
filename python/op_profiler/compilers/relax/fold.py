"""Computes with numpy what depends on weights only, before TVM folds constants.

This TVM compiles a kernel for each such computation, which takes most of the lowering time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from op_profiler.compilers.relax.rewrite import Constant, Rewrite, rewrite_calls
from op_profiler.compilers.tvm_build import load_tvm

Fold = Callable[[Any, list[np.ndarray]], "np.ndarray | None"]
"""Returns the value of a call, given the call and the values of its arguments; None if numpy should not compute it."""


def fold_with_numpy() -> Any:
    """Return a pass that computes calls on constants with numpy. It leaves calls without a numpy counterpart to
    `FoldConstant`."""
    return rewrite_calls("FoldWithNumpy", {f"relax.{name}": _folded(fold) for name, fold in _FOLDS.items()})


def _folded(fold: Fold) -> Rewrite:
    def rewrite(builder: Any, constant: Constant, call: Any) -> Any:
        relax = load_tvm().relax
        arguments = [argument for argument in call.args if not isinstance(argument, relax.ShapeExpr)]
        values = [value for value in map(constant, arguments) if value is not None]
        made = fold(call, values) if len(values) == len(arguments) else None
        return call if made is None else relax.const(np.ascontiguousarray(made))

    return rewrite


def _shape(call: Any) -> list[int] | None:
    dims = [getattr(d, "value", None) for d in call.ty.shape]
    return None if None in dims else [int(d or 0) for d in dims]


def _reshape(call: Any, values: list[np.ndarray]) -> np.ndarray | None:
    shape = _shape(call)
    return None if shape is None else values[0].reshape(shape)


def _permute_dims(call: Any, values: list[np.ndarray]) -> np.ndarray:
    axes = call.attrs.axes
    return values[0].transpose(None if axes is None else [int(a) for a in axes])


def _layout_transform(call: Any, values: list[np.ndarray]) -> np.ndarray | None:
    """Convert a convolution's weight (OIHW to OIHW4i16o), or a summand of channels (NCHW to NCHW16c), to blocks."""
    (value,), shape = values, _shape(call)
    if shape is None or value.ndim != 4 or value.size != int(np.prod(shape)):
        return None
    first, second, height, width = value.shape
    if len(shape) == 6 and shape[0] * shape[5] == first and shape[1] * shape[4] == second:
        blocks = value.reshape(shape[0], shape[5], shape[1], shape[4], height, width)
        return blocks.transpose(0, 2, 4, 5, 3, 1)
    if len(shape) == 5 and shape[0] == first and shape[1] * shape[4] == second:
        return value.reshape(first, shape[1], shape[4], height, width).transpose(0, 1, 3, 4, 2)
    return None


def _numpy(function: Callable[..., Any]) -> Fold:
    return lambda call, values: np.asarray(function(*values), dtype=values[0].dtype)


_FOLDS: dict[str, Fold] = {
    "reshape": _reshape,
    "expand_dims": _reshape,
    "squeeze": _reshape,
    "permute_dims": _permute_dims,
    "layout_transform": _layout_transform,
    "add": _numpy(np.add),
    "subtract": _numpy(np.subtract),
    "multiply": _numpy(np.multiply),
    "divide": _numpy(np.divide),
    "sqrt": _numpy(np.sqrt),
    "rsqrt": _numpy(lambda value: 1.0 / np.sqrt(value)),
    "negative": _numpy(np.negative),
}
