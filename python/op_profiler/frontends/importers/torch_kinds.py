"""The kinds of nodes of a traced torch module: an importer treats two models with the same kinds in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_EXACT = 15
"""Integers up to this value, such as strides, axes and types, decide how a node is imported; larger ones are sizes."""


def kinds_of(traced: Any) -> frozenset[str]:
    """Return the nodes of a trace as texts without names and large sizes. Each text has the operator and its options,
    and for each input tensor the operator that computed it, its dtype and rank, and whether other nodes read it too.

    Args:
        traced: a ScriptModule.
    """
    return frozenset(_kinds(traced.inlined_graph))


def _kinds(block: Any) -> Iterator[str]:
    for node in block.nodes():
        if node.kind() not in ("prim::Constant", "prim::GetAttr", "prim::ListConstruct"):
            yield f"{node.kind()}({', '.join(map(_given, node.inputs()))})"
        for inner in node.blocks():
            yield from _kinds(inner)


def _given(value: Any) -> str:
    made_by = value.node()
    if made_by.kind() == "prim::Constant":
        return _option(value.toIValue())
    if made_by.kind() == "prim::ListConstruct":
        return f"[{', '.join(map(_given, made_by.inputs()))}]"
    kind = value.type()
    about = f" {kind.scalarType()} {kind.dim()}" if kind.kind() == "TensorType" else ""
    return f"{made_by.kind()}{about}{' shared' if len(value.uses()) > 1 else ''}"


def _option(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_option, value))}]"
    if type(value) is int and abs(value) > _EXACT:
        return "size" if value > 0 else "-size"
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) else type(value).__name__
