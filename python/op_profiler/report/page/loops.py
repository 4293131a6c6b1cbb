"""The loops of a kernel, read from its code."""

from __future__ import annotations

import ast

from op_profiler.report.page.document import Loop

_KINDS = {"range": "serial", "grid": "serial", "serial": "serial", "unroll": "unrolled", "thread_binding": "bound"}
_MOST_CHARACTERS = 300


def loops_of(code: str) -> list[Loop]:
    """Loops in order, each with how many are around it; empty where the code is none that can be read.

    Args:
        code: TVMScript, which is a subset of Python's grammar.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return []
    found: list[Loop] = []
    for function in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
        _visit(function.body, 0, found)
    return found


def _visit(body: list[ast.stmt], depth: int, found: list[Loop]) -> None:
    for statement in body:
        if isinstance(statement, ast.For) and isinstance(statement.iter, ast.Call):
            inner = _loops(statement, depth)
            if inner and not _holds_loop(statement.body):
                inner[-1] = _with_body(inner[-1], statement.body)
            found += inner
            _visit(statement.body, depth + len(inner), found)
        else:
            for name in ("body", "orelse"):
                _visit(getattr(statement, name, []), depth, found)


def _holds_loop(body: list[ast.stmt]) -> bool:
    return any(isinstance(one, ast.For) or _holds_loop(getattr(one, "body", [])) for one in body)


def _loops(statement: ast.For, depth: int) -> list[Loop]:
    """One, or as many as ``T.grid`` stands for."""
    call = statement.iter
    assert isinstance(call, ast.Call)
    kind = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    names = statement.target.elts if isinstance(statement.target, ast.Tuple) else [statement.target]
    extents = call.args if kind == "grid" else [call.args[-1]] if call.args else []
    return [
        Loop(depth=depth + i, name=ast.unparse(name), extent=ast.unparse(extent), kind=_KINDS.get(kind, kind))
        for i, (name, extent) in enumerate(zip(names, extents))
    ]


def _with_body(loop: Loop, body: list[ast.stmt]) -> Loop:
    """What is stored to in the innermost loop."""
    stores = [one for one in body if isinstance(one, ast.Assign | ast.AugAssign)]
    text = ast.unparse(stores[-1]) if stores else ""
    text = text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
    return Loop(depth=loop.depth, name=loop.name, extent=loop.extent, kind=loop.kind, body=text)
