"""Default schedules for processors: the first rule that fits a function of TIR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from op_profiler.compilers.relax.rules import convolution, elementwise, product, rows
from op_profiler.compilers.relax.rules.blocks import TVM_ERRORS, Unfit
from op_profiler.compilers.relax.vectors import Vectors
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.schedule import Schedule

Rule = Callable[[Any, Vectors], Factors]
RULES: dict[str, Rule] = {
    "conv2d_NCHWc": convolution.blocked,
    "conv2d_transpose": convolution.transposed,
    "conv": convolution.plain,
    "matmul": product.product,
    "rows": rows.rows,
    "elementwise": elementwise.elementwise,
}
"""By name, in the order in which they are tried."""


def schedule_function(function: Any, vectors: Vectors) -> tuple[Any, Schedule]:
    """A function of TIR under the first rule that fits it, and what that did; as it was where none does.

    Args:
        function: ``tvm.tirx.PrimFunc``.
    """
    load_tvm()
    from tvm import s_tir

    for name, rule in RULES.items():
        schedule = s_tir.Schedule(function)
        try:
            factors = rule(schedule, vectors)
        except (Unfit, *TVM_ERRORS):
            continue
        return schedule.mod["main"], Schedule(f"{name}.relax", _knobs(factors), factors=factors)
    return function, Schedule("none.relax")


def _knobs(factors: Factors) -> dict[str, int]:
    """What a rule chose for the sizes of a function; the rest follows from the rule."""
    lanes = {"vectorize": factors.vectorize} if factors.vectorize else {}
    return {f"tile_{axis}": size for axis, size in (factors.tile or {}).items()} | lanes
