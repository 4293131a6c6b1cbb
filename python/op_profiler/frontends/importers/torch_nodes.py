"""Helpers to read and write nodes in the graph of a trace."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

from op_profiler.frontends.importers.torch_library import torch

_COPIES = ("aten::alias", "aten::lift_fresh_copy", "aten::to", "aten::detach", "aten::clone")
"""Operators whose results have the values of their inputs."""


def nodes_of(block: Any) -> Iterator[Any]:
    """Yield the nodes of a graph or block, including those of inner blocks."""
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from nodes_of(inner)


def insert(graph: Any, kind: str, inputs: Sequence[Any], like: Any) -> Any:
    """Insert a node at the current position of the graph and return its output, which has the type of `like`."""
    made = graph.insertNode(graph.create(kind, list(inputs), 1))
    made.copyAttributes(like.node())
    made.copyMetadata(like.node())
    made.output().setType(like.type())
    return made.output()


def substitute(node: Any, value: Any) -> None:
    """Use a value instead of the output of a node, and remove the node."""
    node.output().replaceAllUsesWith(value)
    node.destroy()


def replace(graph: Any, node: Any, kind: str, inputs: Sequence[Any]) -> None:
    """Replace a node by a new node of this kind and these inputs, with the same type of output."""
    with graph.insert_point_guard(node):
        made = insert(graph, kind, inputs, node.output())
    substitute(node, made)


def known_tensor(traced: Any, value: Any) -> Any:
    """Return the tensor of a value that is a constant or a buffer of the module; None for other values."""
    path: list[str] = []
    while value.node().kind() in _COPIES:
        value = value.node().inputsAt(0)
    known = value.toIValue()
    while known is None and value.node().kind() == "prim::GetAttr":
        path.append(value.node().s("name"))
        value = value.node().inputsAt(0)
    if path:
        known = functools.reduce(getattr, reversed(path), traced)
    return known if isinstance(known, torch.Tensor) else None


def operator_of(node: Any, kind: str | None = None) -> Any:
    """Return torch's operator of a node; None for a node that is no operator of torch's own library.

    Args:
        kind: name of another operator with the same inputs, to be returned instead; None: the node's own operator.
    """
    name = (kind or node.kind()).removeprefix("aten::")
    packet = getattr(torch.ops.aten, name, None) if node.kind().startswith("aten::") else None
    return getattr(packet, torch._C.parse_schema(node.schema()).overload_name or "default", None)


def call(operator: Any, given: Sequence[Any]) -> Any:
    """Call an operator with `given`, the inputs of its node in order; keyword-only inputs are passed by name."""
    schema = operator._schema.arguments
    named = {one.name: argument for one, argument in zip(schema, given, strict=True) if one.kwarg_only}
    return operator(*given[: len(given) - len(named)], **named)
