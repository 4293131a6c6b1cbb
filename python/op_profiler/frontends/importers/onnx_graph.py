"""Static facts of an ONNX graph: sizes and types of tensors, and constant values."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

WEIGHT_ELEMENTS = 1024  # larger tensors stay parameters; smaller ones may be shapes, which importers have to know

Dims = tuple[Any, ...]  # a size, or None where it is only known at run time


def dims_of(value: Any) -> Dims:
    """Return the sizes that a graph declares for one of its inputs or outputs."""
    return _sizes(value.type.tensor_type)


def _sizes(tensor_type: Any) -> Dims:
    dims = tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") and d.dim_value > 0 else None for d in dims)


def replace(field: Any, values: list[Any]) -> None:
    """Replace the values of a repeated field."""
    del field[:]
    field.extend(values)


def remove(tensors: Any, names: Container[str]) -> None:
    """Remove tensors from a repeated field by name. `replace` would copy the remaining tensors, and protobuf would keep
    both copies."""
    for index in reversed(range(len(tensors))):
        if tensors[index].name in names:
            del tensors[index]


def attribute(node: Any, name: str, default: Any) -> Any:
    """Return the value of a node's attribute, or a default."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def set_attributes(node: Any, **values: Any) -> None:
    """Set attributes of a node, replacing those of the same names; the value None removes an attribute."""
    replace(node.attribute, [one for one in node.attribute if one.name not in values])
    node.attribute.extend(helper.make_attribute(name, one) for name, one in values.items() if one is not None)


def bodies_of(node: Any) -> list[Any]:
    """Return the graphs inside an If, a Loop or a Scan; an empty list for other nodes."""
    return [body for one in node.attribute for body in ([one.g] if one.HasField("g") else one.graphs)]


def graphs_in(graph: Any) -> Iterator[Any]:
    """Yield the bodies of the nodes If, Loop and Scan in a graph, the innermost first, then the graph itself."""
    for node in graph.node:
        for body in bodies_of(node):
            if body.node:
                yield from graphs_in(body)
    yield graph


def used_inside(nodes: Any) -> set[str]:
    """Return the names of all values that the bodies of If and Loop read or return, whether defined outside or inside
    the body."""
    names: set[str] = set()
    for node in nodes:
        for body in bodies_of(node):
            names |= {name for inner in body.node for name in inner.input} | used_inside(body.node)
            names |= {o.name for o in body.output}
    return names


def tensors_in(message: Any) -> Iterator[Any]:
    """Yield every tensor of a model: initializers, attributes of nodes, bodies of If and Loop."""
    if message.DESCRIPTOR.name == "TensorProto":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in (value,) if hasattr(value, "ListFields") else value:  # one message, or several
                yield from tensors_in(inner)


def sizes_in(model: Any, shapes: Mapping[str, Dims], *, strict: bool = False) -> dict[str, Dims]:
    """Return the sizes of all tensors that onnx can infer; empty if onnx considers the graph invalid.

    Args:
        shapes: shapes of the inputs.
        strict: whether to raise onnx's error if tensors do not fit each other.
    """
    types = types_in(model, shapes, strict=strict)
    return {name: _sizes(one.tensor_type) for name, one in types.items() if one.tensor_type.HasField("shape")}


def types_in(model: Any, shapes: Mapping[str, Dims], *, strict: bool = False) -> dict[str, Any]:
    """Return the `TypeProto` of all values that onnx can infer; arguments and failures as in `sizes_in`."""
    graph = model.graph
    inputs = [_with_sizes(one, shapes.get(one.name, ())) for one in graph.input]
    weights = [t for t in graph.initializer if elements_in(t) >= WEIGHT_ELEMENTS]  # a model of 2 GB is not taken
    inputs += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in weights]
    small = [t for t in graph.initializer if elements_in(t) < WEIGHT_ELEMENTS]
    outputs = [onnx.ValueInfoProto(name=one.name) for one in graph.output]  # what is declared may be of another batch
    light = helper.make_model(
        helper.make_graph(graph.node, "sizes", inputs, outputs, small),
        opset_imports=model.opset_import,
        functions=model.functions,
        ir_version=model.ir_version,
    )
    try:
        inferred = onnx.shape_inference.infer_shapes(light, strict_mode=strict, data_prop=True)
    except Exception:  # onnx's own errors, and those of protobuf
        if strict:
            raise
        return {}
    known = {t.name: helper.make_tensor_type_proto(t.data_type, t.dims) for t in graph.initializer}
    for one in graphs_in(inferred.graph):
        for value in [*one.input, *one.value_info, *one.output]:
            known[value.name] = value.type
    return known


def _with_sizes(value: Any, dims: Dims) -> Any:
    kind = value.type.tensor_type
    if not dims or not kind.elem_type:
        return value
    return helper.make_tensor_value_info(value.name, kind.elem_type, dims)


def elements_in(tensor: Any) -> int:
    """Return the number of elements of a tensor."""
    return math.prod(tensor.dims)


class Constants:
    """The small constants of a model: initializers, known shapes, and values computed from these alone.

    Args:
        sizes: returns the sizes of all tensors; called when a node needs them.
    """

    def __init__(self, model: Any, sizes: Callable[[], Mapping[str, Dims]]) -> None:
        graphs = list(graphs_in(model.graph))
        self._sizes = sizes
        self._tensors = {t.name: t for graph in graphs for t in graph.initializer}
        self._makers = {name: node for graph in graphs for node in graph.node for name in node.output}
        self._opsets = {one.domain: one.version for one in model.opset_import}

    def value(self, name: str) -> Any:
        """Return the value of a tensor as an array; None if the tensor is not constant, or too large."""
        if name not in self._tensors and name in self._makers:
            self._make(self._makers[name])
        tensor = self._tensors.get(name)
        if tensor is None or elements_in(tensor) >= WEIGHT_ELEMENTS:
            return None
        return numpy_helper.to_array(tensor)

    def _make(self, node: Any) -> None:
        if node.op_type in ("Shape", "Size"):
            self._measure(node)
            return
        needed = [name for name in node.input if name]
        if node.op_type != "Constant" and (not needed or any(self.value(name) is None for name in needed)):
            return
        if node.op_type == "Range":  # ONNX's own functions give it tensors of one element, its evaluator takes none
            numbers = {name: numpy_helper.to_array(self._tensors[name]).reshape(()) for name in needed}
            self._tensors |= {name: numpy_helper.from_array(number, name) for name, number in numbers.items()}
        taken = [self._tensors[name] for name in dict.fromkeys(needed)]
        made = [ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], "constant", [], made, taken)
        try:
            values = ReferenceEvaluator(graph, opsets=self._opsets).run(None, {})
        except Exception:  # the evaluator raises anything of what it does not know
            return
        for one, value in zip(made, values, strict=True):
            self._tensors[one.name] = numpy_helper.from_array(value, one.name)

    def _measure(self, node: Any) -> None:
        known = self.value(node.input[0])
        dims = self._sizes().get(node.input[0]) if known is None else known.shape
        if dims is None or None in dims:
            return
        part = np.array(dims[attribute(node, "start", 0) : attribute(node, "end", None)], "int64")
        value = part if node.op_type == "Shape" else np.prod(np.array(dims, "int64"))
        self._tensors[node.output[0]] = numpy_helper.from_array(np.asarray(value), node.output[0])
