"""Schedules for processors: the first rule that fits a function of TIR, under its default knobs or others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from op_profiler.compilers.relax.rules import convolution, elementwise, product, rows
from op_profiler.compilers.relax.rules.blocks import TVM_ERRORS, Unfit
from op_profiler.compilers.relax.rules.nest import Anchored
from op_profiler.compilers.relax.vectors import Vectors
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.schedule import Schedule

Rule = Callable[[Any, Vectors], "Factors | Anchored"]
"""Schedules a function at once, or finds a nest with knobs in it."""

RULES: dict[str, Rule] = {
    "conv2d_NCHWc": convolution.blocked,
    "conv2d_transpose": convolution.transposed,
    "conv": convolution.plain,
    "matmul": product.product,
    "rows": rows.rows,
    "elementwise": elementwise.elementwise,
}
"""By name, in the order in which they are tried."""
SUFFIX = ".relax"
"""Behind the name of a rule in the name of its template."""


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
            found = rule(schedule, vectors)
            if isinstance(found, Anchored):
                found.apply(found.nest.default, vectors)
        except (Unfit, *TVM_ERRORS):
            continue
        made = schedule.mod["main"]
        if isinstance(found, Anchored):
            knobs = dict(found.nest.default)
            return made, Schedule(f"{name}{SUFFIX}", knobs, factors=found.nest.factors(knobs))
        return made, Schedule(f"{name}{SUFFIX}", _chosen(found), factors=found)
    return function, Schedule(f"none{SUFFIX}")


def anchored(function: Any, vectors: Vectors, name: str | None = None) -> tuple[str, Anchored] | None:
    """The first rule that finds a nest in a function, and that nest; None where that has no knobs.

    Its default was not tried: where TVM refuses that, `schedule_function` takes a later rule.

    Args:
        function: ``tvm.tirx.PrimFunc``.
        name: of the rule, where that is known; a record may name one that there no longer is.
    """
    load_tvm()
    from tvm import s_tir

    for rule in [one for one in RULES if name in (None, one)]:
        schedule = s_tir.Schedule(function)
        try:
            found = RULES[rule](schedule, vectors)
        except (Unfit, *TVM_ERRORS):
            continue
        return (rule, found) if isinstance(found, Anchored) and found.nest.knobs else None
    return None


def _chosen(factors: Factors) -> dict[str, int]:
    """What a rule without knobs chose for the sizes of a function; the rest follows from the rule."""
    lanes = {"vectorize": factors.vectorize} if factors.vectorize else {}
    return {f"tile_{axis}": size for axis, size in (factors.tile or {}).items()} | lanes
