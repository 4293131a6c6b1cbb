"""Imports models with Relax's own importers: through torch.export, from ONNX, from TFLite."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.relax import exported_programs
from op_profiler.compilers.relax.imported_layers import NotedLayers, name_nodes
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError, OpProfilerError
from op_profiler.frontends.importers.finish import unsupported
from op_profiler.frontends.importers.torch_layers import WRAPPED, exported_locations
from op_profiler.lean_imports import quiet

if TYPE_CHECKING:
    from op_profiler.compilers.imported_model import ImportedModel, InputSpec
    from op_profiler.frontends.frontend import Frontend, ModelRequest

_BY_ITSELF = "imported by Relax itself"


def load_itself(frontend: Frontend, request: ModelRequest) -> ImportedModel:
    """Import a model with Relax's own importer, without Relay.

    Raises:
        ModelError: Relax cannot import the model.
    """
    try:
        model = frontend.load(request)
    except (AttributeError, ImportError) as error:
        raise ModelError(
            f"{request.name} is made of Relay's ops, and Relax has none of them; leave out --importer relax ({error})"
        ) from error
    return dataclasses.replace(model, notes=(*model.notes, _BY_ITSELF))


def load_refused(frontend: Frontend, request: ModelRequest, refused: ModelError) -> ImportedModel:
    """Import a model that Relay rejected, with Relax's own importer; a note of the model contains Relay's error.

    Args:
        refused: Relay's error.

    Raises:
        ModelError: Relax cannot import the model either; the message contains both errors.
    """
    try:
        model = frontend.load(request)
    except (OpProfilerError, AttributeError, ImportError) as error:
        if str(error) in str(refused):
            raise refused from error
        raise ModelError(f"{refused} (and Relax's own importer: {error})") from error
    note = f"{_BY_ITSELF}, since Relay does not: {refused}"
    return dataclasses.replace(model, notes=(*model.notes, note))


def import_program(form: str, name: str, program: Any, inputs: Mapping[str, Any]) -> Any:
    """Return the module of a program, with its weights as constants and its inputs in order.

    Args:
        form: ``torch``, ``onnx`` or ``tflite``.
        program: module of torch, ``ModelProto``, or ``tflite.Model``.
        inputs: by name: an example tensor for torch, an `InputSpec` for the others.

    Raises:
        ModelError: the program has operators that Relax does not import; the message names them if known.
    """
    load_tvm()
    layers = NotedLayers()
    try:
        with quiet():
            module = _FORMS[form](program, inputs, layers)
    except Exception as error:  # the importers raise anything, AssertionError and KeyError among them
        raise unsupported(name, error) from error
    return layers.variables.noted_on(module)


def _from_torch(program: Any, inputs: Mapping[str, Any], layers: NotedLayers) -> Any:
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    if isinstance(getattr(program, WRAPPED, program), torch.jit.ScriptModule):
        raise TypeError("torch.export takes no TorchScript, which Relay alone imports; save the model by torch.export")
    exported = exported_programs.export(program, tuple(inputs.values()))
    noted = layers.of_torch(exported_locations(program))
    with torch.no_grad(), noted:
        return from_exported_program(exported, unwrap_unit_return_tuple=True)


def _from_onnx(program: Any, inputs: Mapping[str, InputSpec], layers: NotedLayers) -> Any:
    from tvm.relax.frontend.onnx import from_onnx, onnx_frontend

    from op_profiler.frontends.importers.onnx_unread import unread_refused

    name_nodes(program.graph)
    branches = any(node.op_type == "If" for node in program.graph.node)  # what is emitted at once is in none of them
    noted = contextlib.nullcontext() if branches else layers.of_onnx()
    with unread_refused(program.graph, onnx_frontend.ONNXGraphImporter), noted:
        return from_onnx(program, _shapes(inputs), {name: spec.dtype for name, spec in inputs.items()})


def _from_tflite(program: Any, inputs: Mapping[str, InputSpec], layers: NotedLayers) -> Any:
    from tvm.relax.frontend.tflite import from_tflite

    dtypes, converter = {name: spec.dtype for name, spec in inputs.items()}, layers.tflite_converter()
    with layers.emitting():
        return from_tflite(program, _shapes(inputs), dtypes, converter)


def _shapes(inputs: Mapping[str, InputSpec]) -> dict[str, list[int]]:
    shapes = {name: [size for size in spec.shape if size is not None] for name, spec in inputs.items()}
    for name, spec in inputs.items():
        if len(shapes[name]) < len(spec.shape):
            raise ValueError(f"input {name} has the dynamic shape {spec.shape}; give its sizes with --inputshape")
    return shapes


_FORMS: dict[str, Callable[[Any, Mapping[str, Any], NotedLayers], Any]] = {
    "torch": _from_torch,
    "onnx": _from_onnx,
    "tflite": _from_tflite,
}
