"""Helpers to read and write nodes in the graph of a trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


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
    """Replace a node by one of another kind with the same output."""
    with graph.insert_point_guard(node):
        made = insert(graph, kind, inputs, node.output())
    substitute(node, made)
