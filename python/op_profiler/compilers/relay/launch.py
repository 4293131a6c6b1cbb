"""How a kernel is launched, read from the loops that the schedule bound to blocks and threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from op_profiler.compilers.compiled_model import Launch
from op_profiler.compilers.loop_reader import children
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule

_Launched = TypeVar("_Launched")
_DIMENSIONS = {"blockIdx": "grid", "threadIdx": "block"}


def launch_capture(found: dict[str, list[_Launched]], read: Callable[[Any], list[_Launched]]) -> Any:
    """A pass of TIR that changes nothing and notes how each function is launched.

    Args:
        found: by the function's name; filled in while the compiler runs.
        read: `launches_of` for a GPU, `loop_reader.parallel_loops_of` for a processor; gets the function's body.
    """
    tvm = load_tvm()

    @tvm.tir.transform.prim_func_pass(opt_level=0)
    def note(function: Any, module: IRModule, context: Any) -> Any:
        symbol = function.attrs["global_symbol"] if function.attrs and "global_symbol" in function.attrs else None
        launches = read(function.body)
        if symbol is not None and launches:
            found[str(symbol)] = launches
        return function

    return note


def launches_of(body: Any) -> list[Launch]:
    """The launches of a function in order; loops that are not static are left out of their sizes."""
    tir = load_tvm().tir
    launches: list[Launch] = []

    def visit(statement: Any, inside: Launch | None) -> None:
        if isinstance(statement, tir.AttrStmt) and str(statement.attr_key) == "thread_extent":
            if inside is None:
                inside = {"grid": [1, 1, 1], "block": [1, 1, 1]}
                launches.append(inside)
            where, _, axis = str(statement.node.thread_tag).partition(".")
            if where in _DIMENSIONS and isinstance(statement.value, tir.IntImm):
                inside[_DIMENSIONS[where]]["xyz".index(axis)] = int(statement.value)
        for child in children(statement):
            visit(child, inside)

    visit(body, None)
    return launches
