"""Replaces calls of functions in ONNX models by the nodes of the function.

A model may define functions; exporters write one for every module of torch. ONNX also defines some of its newer
operators as functions, among them operators that TVM's importers lack.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import TensorProto, defs, inliner

from op_profiler.errors import ModelError
from op_profiler.frontends.importers.finish import readable_reason
from op_profiler.frontends.importers.onnx_graph import Dims, attribute, graphs_in, replace, types_in

_UNKNOWN = (
    "CenterCropPad",
    "GroupNormalization",
    "RMSNormalization",
)
"""Operators of ONNX that importers do not support and that ONNX defines as functions."""
_OF_FLOAT32 = ("Elu", "HardSigmoid", "HardSwish", "Selu", "Softsign", "ThresholdedRelu")
"""Functions that importers support only for float32, because they write their constants in that type."""
_OWN = ("", "ai.onnx")
_DOMAIN = "op_profiler"


def inline(model: Any, shapes: Mapping[str, Dims], name: str) -> bool:
    """Replace calls of functions by the nodes of the function, in place; return whether the model had such calls.

    Args:
        shapes: shapes of the inputs.
        name: name of the model, for error messages.

    Raises:
        ModelError: a call does not fit its function.
    """
    found = False
    while _define(model, shapes, name):  # a function may call another one
        _write(model, name)
        found = True
    return found


def _write(model: Any, name: str) -> None:
    """Replace calls of a model's functions by their nodes."""
    graph = model.graph
    tensors = list(graph.initializer)  # a model of 2 GB is not taken
    del graph.initializer[:]
    try:
        inlined = inliner.inline_local_functions(model, convert_version=True)
    except Exception as error:  # onnx's own errors, and those of protobuf
        raise ModelError(f"{name} does not lower: its functions cannot be inlined: {readable_reason(error)}") from error
    graph.initializer.extend(tensors)
    replace(graph.node, inlined.graph.node)
    replace(graph.value_info, inlined.graph.value_info)
    replace(model.opset_import, inlined.opset_import)
    del model.functions[:]


def _define(model: Any, shapes: Mapping[str, Dims], name: str) -> bool:
    """Define the operators of ONNX that importers do not support as functions of the model; return whether the model
    has functions.

    Raises:
        ModelError: ONNX does not define such an operator, and importers would mistake it for another.
    """
    nodes = [node for graph in graphs_in(model.graph) for node in graph.node if node.domain in _OWN]
    calls = [node for node in nodes if _is_unknown(node) or node.op_type in _OF_FLOAT32]
    if not calls:
        return bool(model.functions)
    version = next((one.version for one in model.opset_import if one.domain in _OWN), 1)
    types = types_in(model, shapes)
    calls = [node for node in calls if _is_unknown(node) or _is_of_other_floats(node, types)]
    for index, node in enumerate(calls):
        function = _function_of(node, version, types)
        if function is None:
            raise ModelError(f"{name} does not lower: {node.op_type} has inputs whose type ONNX does not specify")
        function.domain, function.name = _DOMAIN, f"{node.op_type}_{index}"
        for one in function.opset_import:
            one.version = version if one.domain in _OWN else one.version
        model.functions.append(function)
        node.domain, node.op_type = function.domain, function.name
    if calls:
        model.opset_import.add(domain=_DOMAIN, version=1)
    return bool(model.functions)


def _is_of_other_floats(node: Any, types: Mapping[str, Any]) -> bool:
    known = types.get(node.input[0])
    return known is not None and known.tensor_type.elem_type in (TensorProto.FLOAT16, TensorProto.DOUBLE)


def _is_unknown(node: Any) -> bool:
    approximated = node.op_type == "Gelu" and attribute(node, "approximate", b"none") != b"none"  # is overlooked
    return approximated or node.op_type in _UNKNOWN


def _function_of(node: Any, version: int, types: Mapping[str, Any]) -> Any:
    """Return ONNX's definition of an operator as a function; None if ONNX has no definition, or if it needs a type that
    is unknown."""
    try:
        schema = defs.get_schema(node.op_type, version)
    except defs.SchemaError:
        return None
    given = {one.name for one in node.attribute}
    usual = [one.default_value for name, one in schema.attributes.items() if name not in given]
    node.attribute.extend(value for value in usual if value.type)  # a function has none of its own
    function = onnx.FunctionProto()
    if schema.has_function:
        function.ParseFromString(
            schema.get_function_with_opset_version(_newest(schema.function_opset_versions, version))
        )
        return function
    if not schema.has_context_dependent_function or any(name and name not in types for name in node.input):
        return None
    inputs = [(types[name] if name else onnx.TypeProto()).SerializeToString() for name in node.input]
    newest = _newest(schema.context_dependent_function_opset_versions, version)
    made = schema.get_context_dependent_function_with_opset_version(newest, node.SerializeToString(), inputs)
    function.ParseFromString(made)
    return function


def _newest(versions: list[int], version: int) -> int:
    return max(one for one in versions if one <= version)
