"""Ops that compute element by element, and reductions."""

from __future__ import annotations

import math
from typing import Any

from op_profiler.compilers.relax.relay_ops.convert import Attrs, Convert, axes_of, shape_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError

_SAME = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "mod", "floor_divide", "floor_mod"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_xor", "logical_not", "where"),
    *("exp", "log", "sqrt", "rsqrt", "erf", "sigmoid", "negative", "abs", "sign", "floor", "ceil", "round", "trunc"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("isnan", "isinf", "isfinite"),
)


def _same(name: str) -> Convert:
    """Return a converter to an op of the same name and arguments, without attributes."""
    return lambda op, a, x: getattr(op, name)(*x)


def _reduction(name: str) -> Convert:
    return lambda op, a, x: getattr(op, name)(x[0], axis=axes_of(a, x[0]), keepdims=a.get("keepdims", False))


def _variance(op: Any, a: Attrs, x: list[Any]) -> Any:
    """Return the variance; Relay's op also has the mean as an argument, which Relax's op computes itself."""
    made = _reduction("variance")(op, a, x)
    if not a.get("unbiased"):
        return made
    axes, shape = axes_of(a, x[0]), shape_of(x[0])
    count = math.prod(shape if axes is None else [shape[axis] for axis in axes])
    return op.multiply(made, load_tvm().relax.const(count / (count - 1), x[0].ty.dtype))


def _place_of(name: str) -> Convert:
    """Return a converter of argmax or argmin."""

    def convert(op: Any, a: Attrs, x: list[Any]) -> Any:
        axes = axes_of(a, x[0])
        if a.get("select_last_index") or len(axes or [0]) > 1:
            raise ModelError(f"{name} over several axes, or of the last of equal values")
        return op.astype(getattr(op, name)(x[0], axis=axes and axes[0], keepdims=a.get("keepdims", False)), "int32")

    return convert


ARITHMETIC: dict[str, Convert] = {
    **{name: _same(name) for name in _SAME},
    **{name: _reduction(name) for name in ("mean", "sum", "max", "min", "prod")},
    **{name: _place_of(name) for name in ("argmax", "argmin")},
    "variance": _variance,
    "cumsum": lambda op, a, x: op.cumsum(
        x[0], axis=a.get("axis"), dtype=a.get("dtype"), exclusive=bool(a.get("exclusive"))
    ),
    "clip": lambda op, a, x: op.clip(x[0], a["a_min"], a["a_max"]),
    "cast": lambda op, a, x: op.astype(x[0], a["dtype"]),
}
