"""How many blocks and threads a GPU runs a kernel with, read from the loops that the schedule bound to them."""

from __future__ import annotations

from typing import Any

from op_profiler.compiler import load_tvm

Launch = dict[str, list[int]]
"""One launch: ``grid`` and ``block``, each x, y, z."""
_DIMENSIONS = {"blockIdx": "grid", "threadIdx": "block"}


def launch_capture(found: dict[str, list[Launch]]) -> Any:
    """A pass of TIR that changes nothing and notes the launches of each function.

    Args:
        found: by the function's name; filled in while the compiler runs.
    """
    tvm = load_tvm()

    @tvm.tir.transform.prim_func_pass(opt_level=0)
    def note(function: Any, module: Any, context: Any) -> Any:
        symbol = function.attrs["global_symbol"] if function.attrs and "global_symbol" in function.attrs else None
        launches = launches_of(function.body)
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
        for child in _children(statement):
            visit(child, inside)

    visit(body, None)
    return launches


def _children(statement: Any) -> list[Any]:
    if hasattr(statement, "seq"):
        return list(statement.seq)
    names = ("body", "then_case", "else_case", "block")
    return [child for name in names if (child := getattr(statement, name, None)) is not None]
