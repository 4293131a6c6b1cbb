"""Functions of the math library as arithmetic, so that a whole vector is computed at once.

TVM calls libm for each value of ``exp`` and ``erf``, also in a vectorized loop; ``sigmoid``, ``tanh`` and softmax are
made of ``exp``. In the block of `vectorized`, ``exp`` and ``erf`` are polynomials.

Sources: ``exp`` is reduced to [-ln 2 / 2, ln 2 / 2] (Cody and Waite) and computed by a Taylor polynomial of degree 7.
``erf`` is the rational approximation of Eigen and TVM's ``fast_erf``, on [-4, 4]. Measured in float32, the relative
error is at most 1.1e-7 and 4.5e-7. Results of ``exp`` below 2.3e-38 become 0; infinities and NaN stay.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.tvm_build import load_tvm

if TYPE_CHECKING:
    from op_profiler.operators.operator import Operator

NAME = "math"
"""Name of ``exp`` and ``erf`` among the decisions of the schedule rule."""
_OPS = {"exp", "erf", "tanh", "sigmoid", "nn.softmax", "nn.log_softmax", "nn.fast_softmax"}
_VECTORIZABLE = "TVectorizable"
_LEVEL = 99  # above those of TVM's own lowerings
_LOG2_E, _LN_2_HIGH, _LN_2_LOW = 1.44269504088896, 0.693359375, -2.12194440e-4
_EXP = (1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0)
_SMALLEST, _LARGEST = -86.6, 88.722839
_MANTISSA_BITS, _BIAS = 23, 127
_ERF_OVER = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
_ERF_UNDER = (
    *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03),
    *(-7.37332916720468e-03, -1.42647390514189e-02),
)
_ERF_ENDS = 4.0

_active: list[bool] = []


@contextlib.contextmanager
def vectorized() -> Iterator[None]:
    """Compile ``exp`` and ``erf`` of float32 as arithmetic for processors inside this block."""
    _register()
    erf = load_tvm().ir.Op.get("tir.erf")
    if not _active:
        erf.set_attr(_VECTORIZABLE, True)  # TVM takes a vector apart for it otherwise
    _active.append(True)
    try:
        yield
    finally:
        _active.pop()
        if not _active:
            erf.reset_attr(_VECTORIZABLE)


def concerns(operators: Iterable[Operator]) -> bool:
    """Return whether any of these operators computes ``exp`` or ``erf``, also as a part of softmax or sigmoid."""
    return any(_OPS & {*operator.op_names} for operator in operators)


@functools.cache
def _register() -> None:
    for name, lowered in (("tir.exp", _exp), ("tir.erf", _erf)):
        op = load_tvm().ir.Op.get(name)
        default = op.get_attr("llvm.FLowerIntrinsic") or op.get_attr("default.FLowerIntrinsic")
        lowering = functools.partial(_lowered, lowered, default)
        load_tvm().ir.register_intrin_lowering(name, target="llvm", f=lowering, level=_LEVEL)


def _lowered(arithmetic: Callable[[Any], Any], default: Callable[[Any], Any], call: Any) -> Any:
    is_float32 = str(call.dtype).partition("x")[0] == "float32"
    return arithmetic(call.args[0]) if _active and is_float32 else default(call)


def _exp(x: Any) -> Any:
    tir = load_tvm().tir
    constant = functools.partial(tir.const, dtype=x.dtype)
    lanes = str(x.dtype).removeprefix("float32")
    near = tir.max(tir.min(x, constant(_LARGEST)), constant(_SMALLEST))
    power = tir.floor(near * constant(_LOG2_E) + constant(0.5))
    rest = near - power * constant(_LN_2_HIGH) - power * constant(_LN_2_LOW)
    exponent = tir.Cast(f"int32{lanes}", power) + tir.const(_BIAS - 1, f"int32{lanes}")  # of half the power of two
    half = tir.call_intrin(
        x.dtype, "tir.reinterpret", tir.shift_left(exponent, tir.const(_MANTISSA_BITS, f"int32{lanes}"))
    )
    value = _polynomial(rest, _EXP) * half * constant(2.0)
    value = tir.Select(x < constant(_SMALLEST), constant(0.0), value)
    value = tir.Select(x > constant(_LARGEST), constant(float("inf")), value)
    return tir.Select(x == x, value, x)  # noqa: PLR0124 - NaN differs from itself


def _erf(x: Any) -> Any:
    tir = load_tvm().tir
    ends = tir.const(_ERF_ENDS, x.dtype)
    near = tir.max(tir.min(x, ends), -ends)
    square = near * near
    value = near * _polynomial(square, _ERF_OVER) / _polynomial(square, _ERF_UNDER)
    return tir.Select(x == x, value, x)  # noqa: PLR0124 - NaN differs from itself


def _polynomial(x: Any, coefficients: Iterable[float]) -> Any:
    """Evaluate a polynomial by Horner's rule; the coefficient of the highest power is first."""
    tir = load_tvm().tir
    first, *others = (tir.const(value, x.dtype) for value in coefficients)
    return functools.reduce(lambda value, other: value * x + other, others, first)
