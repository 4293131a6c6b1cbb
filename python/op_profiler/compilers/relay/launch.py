"""Reads the launches of a kernel from the loops that the schedule bound to blocks and threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from op_profiler.compilers.compiled_model import Launch
from op_profiler.compilers.loop_reader import launches_in
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule

_Noted = TypeVar("_Noted")


def noting(found: dict[str, _Noted], read: Callable[[Any], _Noted]) -> Any:
    """Return a TIR pass that changes nothing and records the result of `read` for each function.

    Args:
        found: results by function name; filled while the compiler runs.
        read: called with each function.
    """
    tvm = load_tvm()

    @tvm.tir.transform.prim_func_pass(opt_level=0)
    def note(function: Any, module: IRModule, context: Any) -> Any:
        symbol = function.attrs["global_symbol"] if function.attrs and "global_symbol" in function.attrs else None
        if symbol is not None and (one := read(function)):
            found[str(symbol)] = one
        return function

    return note


def launches_of(function: Any) -> list[Launch]:
    """Return the launches of a function in order; a size that is known only at run time counts as 1."""
    return launches_in(function.body, load_tvm().tir)
