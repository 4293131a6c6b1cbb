"""Schedules kernels for GPUs with dlight, which this TVM includes, and reads their launches."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.compiled_model import Launch
from op_profiler.compilers.loop_reader import launches_in
from op_profiler.compilers.relax.rules.blocks import TVM_ERRORS
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule, Target
from op_profiler.schedules.schedule import Schedule

_RULES = ("Matmul", "GEMV", "Reduction", "GeneralReduction", "Fallback")
"""dlight's rules in the order in which TVM's own pipeline for CUDA tries them."""
_SUFFIX = ".dlight"


def is_gpu(target: Target) -> bool:
    """Return whether kernels of a target run on a GPU."""
    return "gpu" in target.keys


def schedule_function(function: Any, target: Target) -> tuple[Any, Schedule]:
    """Schedule a TIR function by the first rule of dlight that fits; return the function and its schedule. If no rule
    fits, the function is unchanged.

    Args:
        function: ``tvm.tirx.PrimFunc``.
    """
    dlight = load_tvm().s_tir.dlight
    for name in _RULES:
        try:
            with target:
                made = getattr(dlight.gpu, name)().apply(function, target, False)
        except TVM_ERRORS:
            continue
        if made is not None:
            return made.mod["main"].with_attr("tirx.is_scheduled", True), Schedule(f"{name}{_SUFFIX}")
    return function, Schedule(f"none{_SUFFIX}")


def launches_of(kernels: IRModule) -> dict[str, list[Launch]]:
    """Return the launches of each function of a module, by name; functions without launches are left out.

    Args:
        kernels: scheduled functions, with loops bound to blocks and threads.
    """
    tvm = load_tvm()
    found = {
        str(name.name_hint): launches_in(function.body, tvm.tirx)
        for name, function in kernels.functions_items()
        if isinstance(function, tvm.tirx.PrimFunc)
    }
    return {name: launches for name, launches in found.items() if launches}
