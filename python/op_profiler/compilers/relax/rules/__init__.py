"""Schedules for processors: the first rule that fits a function of TIR, under its default knobs or others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from op_profiler.compilers.relax.rules import convolution, elementwise, product, reduction, rows, whole
from op_profiler.compilers.relax.rules.blocks import TVM_ERRORS, RuleMismatch
from op_profiler.compilers.relax.rules.template import SchedulableFunction
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.vectors import Vectors
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.schedule import Schedule

Rule = Callable[[Any, Vectors], "Factors | SchedulableFunction"]
"""Schedules a function and returns its schedule factors, or returns the unscheduled function with its knobs."""

RULES: dict[str, Rule] = {
    "conv2d_NCHWc": convolution.blocked,
    "conv2d_transpose": convolution.transposed,
    "conv": convolution.plain,
    "matmul": product.product,
    "whole": whole.whole,
    "rows": rows.rows,
    "reduction": reduction.reduction,
    "elementwise": elementwise.elementwise,
}
"""Rules by name, in the order in which they are tried."""
SUFFIX = ".relax"
"""Suffix of template names, after the name of the rule."""


@functools.lru_cache(maxsize=1024)  # called by a build, and again to read its kernels' loops
def schedule_function(function: Any, vectors: Vectors) -> tuple[Any, Schedule]:
    """Schedule a TIR function by the first rule that fits; return the function and its schedule. If no rule fits, the
    function is unchanged.

    Args:
        function: ``tvm.tirx.PrimFunc``.
    """
    s_tir = load_tvm().s_tir
    for name, rule in RULES.items():
        schedule = s_tir.Schedule(function)
        try:
            found = rule(schedule, vectors)
            if not isinstance(found, Factors):
                found.apply(found.default, vectors)
        except (RuleMismatch, *TVM_ERRORS):
            continue
        made = schedule.mod["main"]
        if isinstance(found, Factors):
            return made, Schedule(f"{name}{SUFFIX}", _chosen(found), factors=found)
        knobs = dict(found.default)
        return made, Schedule(f"{name}{SUFFIX}", knobs, factors=found.factors(knobs))
    return function, Schedule(f"none{SUFFIX}")


def template_of(function: Any, vectors: Vectors, name: str) -> SchedulableFunction | None:
    """Return a function with the knobs of the rule `name`; None if this rule does not exist, does not fit the function,
    or has no knobs for it.

    Args:
        function: ``tvm.tirx.PrimFunc``.
    """
    s_tir = load_tvm().s_tir
    if name not in RULES:
        return None
    try:
        found = RULES[name](s_tir.Schedule(function), vectors)
    except (RuleMismatch, *TVM_ERRORS):
        return None
    return None if isinstance(found, Factors) or not found.knobs else found


def _chosen(factors: Factors) -> dict[str, int]:
    """Return the sizes that a rule without knobs chose for a function; the rest follows from the rule."""
    return {"vectorize": factors.vectorize} if factors.vectorize else {}
