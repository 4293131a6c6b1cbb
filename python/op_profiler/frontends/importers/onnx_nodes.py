"""Writes the nodes that replace one node of an ONNX graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, numpy_helper


class NodeWriter:
    """Adds nodes and constants under names that begin with the name of the replaced node's first output.

    Args:
        graph: graph of the node; constants become its initializers.
        opset: version of ONNX's own operators.
        kind: numpy's name of the dtype of floating-point constants.

    Attributes:
        nodes: the written nodes, in order.
    """

    def __init__(self, graph: Any, node: Any, opset: int, kind: str = "float32") -> None:
        self.graph, self.opset, self.kind = graph, opset, kind
        self.nodes: list[Any] = []
        self._name = node.name
        self._prefix = next(name for name in node.output if name)
        self._constants: dict[tuple[Any, ...], str] = {}

    def prefix(self, name: str) -> None:
        """Use another prefix for the names of new nodes and constants."""
        self._prefix = name

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Write a node with one output, and return the name of the output."""
        made = output or f"{self._prefix}__{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [made], name=self._name, **attributes))
        return made

    def split(self, data: str, parts: int, axis: int) -> list[str]:
        """Split a tensor into equal parts, and return their names."""
        made = [f"{self._prefix}__Split_{len(self.nodes)}_{part}" for part in range(parts)]
        given = {"num_outputs": parts} if self.opset >= 18 else {}
        self.nodes.append(helper.make_node("Split", [data], made, name=self._name, axis=axis, **given))
        return made

    def constant(self, values: Any, kind: str = "") -> str:
        """Return the name of a new constant, of type `kind` or of the floating-point type of this writer."""
        array = np.asarray(values, kind or self.kind)
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = f"{self._prefix}__constant_{len(self._constants)}"
            self.graph.initializer.append(numpy_helper.from_array(array, self._constants[key]))
        return self._constants[key]

    def reshape(self, data: str, shape: list[int], output: str = "") -> str:
        """Write a Reshape to a constant shape and return the name of its output."""
        return self.add("Reshape", data, self.constant(shape, "int64"), output=output)

    def take(self, data: str, index: Any, axis: int = 0, output: str = "") -> str:
        """Write a Gather along an axis and return the name of its output; a single index removes the axis, a list of
        indices keeps it."""
        return self.add("Gather", data, self.constant(index, "int64"), axis=axis, output=output)

    def unsqueeze(self, data: str, axes: list[int]) -> str:
        """Write an Unsqueeze at the given axes and return the name of its output."""
        return self.over_axes("Unsqueeze", data, axes, since=13)

    def over_axes(self, operator: str, data: str, axes: list[int], *, since: int) -> str:
        """Write a node whose axes are an input from opset `since` on, and an attribute in older opsets; return the name
        of its output."""
        if self.opset < since:
            return self.add(operator, data, axes=axes)
        return self.add(operator, data, self.constant(axes, "int64"))

    def padded(self, data: str, widths: list[int]) -> str:
        """Write a Pad with zeros and return the name of its output.

        Args:
            widths: number of zeros before each dimension, followed by the numbers after each dimension.
        """
        if self.opset < 11:
            return self.add("Pad", data, pads=widths)
        return self.add("Pad", data, self.constant(widths, "int64"), self.constant(0.0))

    def clip(self, data: str, bound: float) -> str:
        """Write a Clip to the range from -`bound` to `bound` and return the name of its output."""
        if self.opset < 11:
            return self.add("Clip", data, min=-bound, max=bound)
        return self.add("Clip", data, self.constant(-bound), self.constant(bound))


def trimmed(node: Any) -> Any:
    """Remove the empty names after a node's last input and its last output; return the node."""
    for names in (node.input, node.output):
        while names and not names[-1]:
            names.pop()
    return node
