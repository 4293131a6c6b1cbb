"""Rewrites an ONNX graph node by node."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from op_profiler.errors import ModelError
from op_profiler.frontends.importers.finish import readable_reason
from op_profiler.frontends.importers.onnx_graph import (
    Constants,
    Dims,
    attribute,
    graphs_in,
    replace,
    set_attributes,
    sizes_in,
    types_in,
)

Rewrite = Callable[[Any, Any], list[Any]]  # given a graph and a node: the nodes that replace the node


class Rewriting:
    """Rewrites the graph of one model; the base class of all rewrites.

    Args:
        shapes: shapes of the inputs.
        name: name of the model, for error messages.

    Attributes:
        sizes: sizes of all tensors that onnx can infer.
        types: `TypeProto` of all values that onnx can infer.
        opset: version of ONNX's own operators.
    """

    def __init__(self, model: Any, shapes: Mapping[str, Dims], name: str) -> None:
        self.model, self.shapes, self.name = model, dict(shapes), name
        self.constants = Constants(model, lambda: self.sizes)

    def rewrite(self, rewrites: Mapping[str, Rewrite], domains: Collection[str] = ("", "ai.onnx")) -> None:
        """Replace each node of the given operators by the nodes that a function returns for it.

        Args:
            rewrites: function for each operator, by the operator's name.
            domains: domains of the operators.

        Raises:
            ModelError: the inputs of a node do not fit together.
        """
        for graph in graphs_in(self.model.graph):
            nodes: list[Any] = []
            for node in graph.node:
                own = node.domain in domains and node.op_type in rewrites
                try:
                    nodes += rewrites[node.op_type](graph, node) if own else [node]
                except (ValueError, TypeError, IndexError) as error:
                    raise self.refused(node, f"is not valid: {readable_reason(error)}") from error
            replace(graph.node, nodes)

    @property
    def opset(self) -> int:
        """Version of ONNX's own operators that the model imports; 1 where it imports none."""
        return next((one.version for one in self.model.opset_import if one.domain in ("", "ai.onnx")), 1)

    @functools.cached_property
    def sizes(self) -> dict[str, Dims]:
        """Sizes of each tensor by its name, inferred once by onnx; tensors that onnx cannot infer are missing."""
        return sizes_in(self.model, self.shapes)

    @functools.cached_property
    def types(self) -> dict[str, Any]:
        """``TypeProto`` of each value by its name, inferred once by onnx."""
        return types_in(self.model, self.shapes)

    def known(self, node: Any, place: int, what: str) -> Any:
        """Return the constant value of a node's input.

        Args:
            place: index of the input.
            what: what the input contains, in the plural, for the error message.

        Raises:
            ModelError: the input is not constant.
        """
        value = self.constants.value(node.input[place])
        if value is None:
            raise self.refused(node, f"has {what} that are only known at run time; export it with constant ones")
        return value

    def folded(self, graph: Any, node: Any) -> list[Any]:
        """Replace a node by a constant if the value of its output is known (a `Rewrite`)."""
        known = self.constants.value(node.output[0])
        if known is None:
            return [node]
        graph.initializer.append(numpy_helper.from_array(known, node.output[0]))
        return []

    def rank(self, node: Any) -> int:
        """Return the number of dimensions of a node's first input.

        Raises:
            ModelError: the number is unknown.
        """
        if node.input[0] not in self.sizes:
            raise self.refused(node, "has axes, and the rank of its input is only known at run time")
        return len(self.sizes[node.input[0]])

    def element_of(self, name: str) -> int:
        """Return ONNX's number of the type of a tensor's elements; 0 if onnx cannot infer it."""
        return self.types[name].tensor_type.elem_type if name in self.types else 0

    def kind_of(self, name: str) -> str:
        """Return numpy's name of a tensor's dtype; float32 if onnx cannot infer it."""
        element = self.element_of(name)
        return str(helper.tensor_dtype_to_np_dtype(element)) if element else "float32"

    def refused(self, node: Any, why: str) -> ModelError:
        """Return the error for a node that cannot be rewritten."""
        named = f" {node.name}" if node.name else ""
        return ModelError(f"{self.name} does not lower: {node.op_type}{named} {why}")


def with_defaults(**values: Any) -> Rewrite:
    """Return a rewrite that sets each of these attributes to the given value if a node does not have it; the value None
    removes the attribute."""

    def write(graph: Any, node: Any) -> list[Any]:
        written = {name: None if one is None else attribute(node, name, one) for name, one in values.items()}
        set_attributes(node, **written)
        return [node]

    return write


def add_constant(graph: Any, node: Any, what: str, values: Any, kind: str) -> str:
    """Add a constant of dtype `kind` for a node to the graph; return the constant's name, which ends with `what`."""
    name = f"{node.output[0]}__{what}"
    graph.initializer.append(numpy_helper.from_array(np.asarray(values, kind), name))
    return name
