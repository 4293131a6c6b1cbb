"""TIR functions in the form of MetaSchedule's databases: each in a separate module, under one hash."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.schedules.records import FUNCTION, computation_of


def workload_of(function: Any) -> Any:
    """Return the module that `MetaScheduleApplyDatabase` looks up for a function.

    Args:
        function: ``tvm.tirx.PrimFunc``.

    Returns:
        ``tvm.IRModule``
    """
    return load_tvm().get_global_func("tvm.s_tir.meta_schedule.normalize_mod")(function)


def arguments_of(function: Any) -> tuple[str, str, str]:
    """Return the arguments that stand for a function in tasks and records: `FUNCTION`, its hash, and its code."""
    Workload = load_tvm().s_tir.meta_schedule.database.Workload
    digest, text = Workload(workload_of(function)).as_json()
    return FUNCTION, str(digest), str(text)


def module_of(arguments: tuple[Any, ...]) -> Any:
    """Return the module of a function, given arguments that begin with the result of `arguments_of`."""
    Workload = load_tvm().s_tir.meta_schedule.database.Workload
    return Workload.from_json(list(arguments[1:3])).mod


def computation(function: Any) -> str:
    """Return the computation (`computation_of`) by which schedule records of a function are looked up."""
    load_tvm()
    import tvm_ffi

    return computation_of("", (FUNCTION, str(tvm_ffi.structural_hash(workload_of(function))), ""))
