"""Rewrites of ONNX graphs for what TVM's importers refuse though it is valid, or silently take for something else."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from op_profiler.errors import ModelError
from op_profiler.frontends.importers.finish import said
from op_profiler.frontends.importers.onnx_graph import (
    Constants,
    Dims,
    attribute,
    graphs_in,
    replace,
    sizes_in,
)

Rewrite = Callable[[Any, Any], list[Any]]  # of a graph and one of its nodes: what takes its place

_VALUES = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}
_OF_ONE_ELEMENT = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp")  # are itself
_OF_SEVERAL = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare")


def with_tensors(graph: Any) -> None:
    """Let every Constant hold a tensor: TVM knows no numbers and lists of them."""
    import numpy as np
    from onnx import helper, numpy_helper

    for one in graphs_in(graph):
        for node in one.node:
            number = next((a for a in node.attribute if a.name in _VALUES), None)
            if node.op_type != "Constant" or number is None:
                continue
            array = np.array(helper.get_attribute_value(number), _VALUES[number.name])
            replace(node.attribute, [helper.make_attribute("value", numpy_helper.from_array(array))])


class Repairs:
    """Of one model.

    Args:
        shapes: of its inputs.
        name: of the model, for errors.
    """

    def __init__(self, model: Any, shapes: Mapping[str, Dims], name: str) -> None:
        self._model, self._shapes, self._name = model, dict(shapes), name
        self._constants = Constants(model)

    def for_all(self) -> None:
        """What no importer gets right.

        Raises:
            ModelError: a node cannot be written in another way.
        """
        self._rewrite(
            {"Pad": self._pad, "Resize": self._resize, "Split": self._split, "BatchNormalization": self._norm}
        )

    def for_relay(self) -> None:
        """What Relay's importer alone gets wrong. The graph is then one that only this importer reads.

        Raises:
            ModelError: a node cannot be written in another way.
        """
        self._rewrite({"Clip": self._clip, **dict.fromkeys((*_OF_ONE_ELEMENT, *_OF_SEVERAL), self._reduce)})

    def _rewrite(self, rewrites: Mapping[str, Rewrite]) -> None:
        for graph in graphs_in(self._model.graph):
            nodes: list[Any] = []
            for node in graph.node:
                own = node.domain in ("", "ai.onnx") and node.op_type in rewrites
                try:
                    nodes += rewrites[node.op_type](graph, node) if own else [node]
                except (ValueError, TypeError, IndexError) as error:  # what the node was given does not fit together
                    raise self._refused(node, f"is not valid: {said(error)}") from error
            replace(graph.node, nodes)

    @functools.cached_property
    def _sizes(self) -> dict[str, Dims]:
        return sizes_in(self._model, self._shapes)

    def _clip(self, graph: Any, node: Any) -> list[Any]:
        """A bound without the other, or that is computed: Relay's importer leaves it out."""
        from onnx import helper

        bounds = [(kind, name) for kind, name in zip(("Max", "Min"), node.input[1:], strict=False) if name]
        if not bounds or len(bounds) == 2 and all(self._constants.value(name) is not None for _, name in bounds):
            return [node]
        nodes: list[Any] = []
        data = node.input[0]
        for kind, bound in bounds:
            made = node.output[0] if (kind, bound) == bounds[-1] else f"{node.output[0]}__{kind}"
            nodes.append(helper.make_node(kind, [data, bound], [made], name=node.name))
            data = made
        return nodes

    def _reduce(self, graph: Any, node: Any) -> list[Any]:
        """Axes that are an input become an attribute: of the input Relay's importer takes the first one alone."""
        from onnx import helper

        if len(node.input) < 2 and not attribute(node, "noop_with_empty_axes", 0):
            return [node]
        axes = [] if len(node.input) < 2 or not node.input[1] else self._known(node, 1, "axes").reshape(-1).tolist()
        nothing = not axes and attribute(node, "noop_with_empty_axes", 0)
        if nothing and node.op_type in _OF_ONE_ELEMENT:
            return [helper.make_node("Identity", node.input[:1], node.output, name=node.name)]
        if nothing:
            raise self._refused(node, "reduces no axis; leave it out of the model")
        kept = [a for a in node.attribute if a.name != "noop_with_empty_axes"]
        replace(node.attribute, kept + ([helper.make_attribute("axes", axes)] if axes else []))
        replace(node.input, node.input[:1])
        return [node]

    def _norm(self, graph: Any, node: Any) -> list[Any]:
        if attribute(node, "training_mode", 0):  # importers would take the statistics that were learned
            raise self._refused(node, "norms by the statistics of the batch, as in training; export the model for use")
        return [node]

    def _split(self, graph: Any, node: Any) -> list[Any]:
        """Parts of which the last one is smaller: importers divide into equal ones."""
        parts, axis = attribute(node, "num_outputs", None), attribute(node, "axis", 0)
        dims = self._sizes.get(node.input[0], ()) if parts else ()
        size = dims[axis] if -len(dims) <= axis < len(dims) else None
        if not size or size % parts == 0:
            return [node]
        each = -(-size // parts)
        last = size - each * (parts - 1)
        if last < 1:
            raise self._refused(node, f"cannot divide {size} elements into {parts} parts")
        replace(node.attribute, [a for a in node.attribute if a.name != "num_outputs"])
        replace(node.input, [node.input[0], _constant(graph, node, "sizes", [each] * (parts - 1) + [last], "int64")])
        return [node]

    def _pad(self, graph: Any, node: Any) -> list[Any]:
        """Axes as an input: Relay's importer takes what is given for that of all axes, in their order."""
        import numpy as np

        if len(node.input) < 4:
            return [node]
        inputs = list(node.input[:3])
        if node.input[3]:
            full = np.zeros((2, self._rank(node)), "int64")
            full[:, self._known(node, 3, "axes")] = self._known(node, 1, "pads").reshape(2, -1)
            inputs[1] = _constant(graph, node, "pads", full.reshape(-1), "int64")
        replace(node.input, inputs if inputs[2] else inputs[:2])
        return [node]

    def _resize(self, graph: Any, node: Any) -> list[Any]:
        """Axes become all axes: importers take what is given for that of all, and never resize the first two."""
        import numpy as np

        if attribute(node, "antialias", 0):
            raise self._refused(node, "smooths what it makes smaller, which TVM does not; export it without antialias")
        if attribute(node, "keep_aspect_ratio_policy", b"stretch") != b"stretch":
            raise self._refused(node, "keeps the aspect ratio, which TVM does not; export it with sizes of both axes")
        axes = attribute(node, "axes", None)
        if axes is None:
            return [node]
        rank = self._rank(node)
        dims = np.array([size or 0 for size in self._sizes[node.input[0]]])
        inputs = [*node.input, "", "", ""][:4]
        for place, what, kind in ((1, "roi", "float32"), (2, "scales", "float32"), (3, "sizes", "int64")):
            given = self._known(node, place, what) if inputs[place] else np.zeros(0)
            if not given.size:
                continue
            full = np.stack([np.zeros(rank), np.ones(rank)]) if what == "roi" else np.ones(rank)
            full = dims.copy() if what == "sizes" else full
            full[..., axes] = given.reshape(2, -1) if what == "roi" else given
            if what != "roi" and (full[:2] != (dims if what == "sizes" else np.ones(rank))[:2]).any():
                raise self._refused(node, "resizes one of the first two axes, which TVM does not; transpose around it")
            if (full == 0).any() and what == "sizes":
                raise self._refused(node, "leaves an axis as it is whose size is only known at run time")
            inputs[place] = _constant(graph, node, what, full.reshape(-1), kind)
        while not inputs[-1]:
            inputs.pop()
        replace(node.input, inputs)
        replace(node.attribute, [a for a in node.attribute if a.name != "axes"])
        return [node]

    def _known(self, node: Any, place: int, what: str) -> Any:
        value = self._constants.value(node.input[place])
        if value is None:
            raise self._refused(node, f"has {what} that are only known at run time; export it with constant ones")
        return value

    def _rank(self, node: Any) -> int:
        if node.input[0] not in self._sizes:
            raise self._refused(node, "has axes, and the rank of its input is only known at run time")
        return len(self._sizes[node.input[0]])

    def _refused(self, node: Any, why: str) -> ModelError:
        named = f" {node.name}" if node.name else ""
        return ModelError(f"{self._name} does not lower: {node.op_type}{named} {why}")


def _constant(graph: Any, node: Any, what: str, values: Any, kind: str) -> str:
    """The name of a new constant of a node's."""
    import numpy as np
    from onnx import numpy_helper

    name = f"{node.output[0]}__{what}"
    graph.initializer.append(numpy_helper.from_array(np.asarray(values, kind), name))
    return name
