"""Imports a TFLite file into Relay."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError, require
from op_profiler.frontends.fingerprints import check_file
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.importers.finish import finish, output_shapes, readable_reason, unsupported
from op_profiler.frontends.input_shapes import batch_of, shapes_by_name
from op_profiler.frontends.references.tflite_reference import TfliteReference
from op_profiler.lean_imports import quiet

IDENTIFIER = b"TFL3"  # bytes 4 to 8 of every TFLite file
_HIGHEST = {"uint8": 256, "int8": 128}
_BYTES = {8: ("float64", "int64"), 4: ("float32", "int32"), 2: ("float16", "int16"), 1: ("int8", "uint8", "bool")}


def check_tflite(path: Path) -> None:
    """Reject files that are not TFLite.

    Raises:
        ModelError: the file is missing, empty, or not TFLite.
    """
    check_file(path)
    with path.open("rb") as file:
        if file.read(8)[4:] != IDENTIFIER:
            raise ModelError(f"{path} is no TFLite model: it does not start as one")


def lower(path: Path, request: ModelRequest) -> ImportedModel:
    """Import the model in a TFLite file for the compiler in use.

    Raises:
        ModelError: the file is incomplete, has operators that TVM does not support, or fixes its batch size.
    """
    check_tflite(path)
    for package in ("tflite", "flatbuffers"):
        require(package, "a TFLite model")
    return _lowered(path, request, None)


def _lowered(path: Path, request: ModelRequest, outputs: Sequence[int] | None) -> ImportedModel:
    """Lower the model with other outputs, by the numbers of their tensors; None for the model's own outputs."""
    model, own = _read(path)
    model.outputs = outputs
    given = shapes_by_name(request, tuple(own))
    first = next((shape[0] for shape in own.values() if shape), 1)
    leading = next((name for name, shape in own.items() if shape), None)
    batch = batch_of(request, given.get(leading or ""), first)
    shapes = {
        name: given.get(name) or ((batch, *shape[1:]) if shape and shape[0] == first else shape)
        for name, shape in own.items()
    }
    types = _types(model)
    own_specs = [InputSpec(n, s, types[n], high=_HIGHEST.get(types[n], 2)) for n, s in shapes.items()]
    compared = TfliteReference(path, own_specs, lambda tensors: _opened(path, request, tensors))
    itself = compiler_in_use().import_program("tflite", request.name, model, {spec.name: spec for spec in own_specs})
    if itself is not None:
        own_model = ImportedModel(request.name, request.source, itself, {}, tuple(own_specs), batch, reference=compared)
        return _with_batch(own_model, first, batch)
    module, params = _convert(model, shapes, request.name, own=first if batch != first else None)
    kinds = {v.name_hint: str(v.type_annotation.dtype) for v in module["main"].params}
    specs = [InputSpec(n, s, high=_HIGHEST.get(kinds.get(n, ""), 2)) for n, s in shapes.items()]
    lowered = finish(module, params, specs, name=request.name, source=request.source, batch_size=batch)
    return _with_batch(dataclasses.replace(lowered, reference=compared), first, batch)


def _opened(path: Path, request: ModelRequest, tensors: Sequence[int]) -> tuple[ImportedModel, list[str]]:
    """Return the model with the given tensors as outputs, and the names of these tensors."""
    names = _read(path)[0].Subgraphs(0).names
    return _lowered(path, request, tensors), [names[number].decode() for number in tensors]


def _with_batch(lowered: ImportedModel, first: int, batch: int) -> ImportedModel:
    """Return the model after checking that the batch size reaches its outputs.

    Args:
        first: batch size of the model in the file.

    Raises:
        ModelError: an output does not have the batch size.
    """
    if batch != first and not any(shape and shape[0] == batch for shape in output_shapes(lowered.mod)):
        raise ModelError(f"{lowered.name} was made for batch size {first} and cannot be given {batch}")
    return lowered


def _types(model: Any) -> dict[str, str]:
    """Return the dtypes of the inputs by name."""
    graph = model.Subgraphs(0)
    tensors = [graph.Tensors(int(i)) for i in graph.InputsAsNumpy()]
    return {tensor.Name().decode(): _type_names().get(tensor.Type(), "float32") for tensor in tensors}


def _read(path: Path) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """Return the model, and the shapes of its inputs by name; inputs without a name get one."""
    from op_profiler.frontends.importers import tflite_names

    try:
        model = tflite_names.read(path.read_bytes())
        graph = model.Subgraphs(0)
        tensors = [graph.Tensors(int(i)) for i in graph.InputsAsNumpy()]
        shapes = {t.Name().decode(): tuple(int(d) for d in t.ShapeAsNumpy()) for t in tensors}
        _check_weights(path, model)
    except ModelError:
        raise
    except Exception as error:  # a file that was cut off sends the reader anywhere
        raise ModelError(f"{path} cannot be read as TFLite; is it complete? ({readable_reason(error)})") from error
    return model, shapes


def _check_weights(path: Path, model: Any) -> None:
    """Reject a file in which the buffer of a dense tensor is shorter than its shape and type require."""
    graph = model.Subgraphs(0)
    for number in range(graph.TensorsLength()):
        tensor = graph.Tensors(number)
        kind = _type_names().get(tensor.Type())
        width = next((width for width, kinds in _BYTES.items() if kind in kinds), 0)
        stored = model.Buffers(tensor.Buffer()).DataLength()
        wanted = width * math.prod(int(size) for size in tensor.ShapeAsNumpy())
        if 0 < stored < wanted and tensor.Sparsity() is None:
            raise ModelError(
                f"{path} cannot be read as TFLite: tensor {tensor.Name().decode()!r} is incomplete: it needs {wanted} "
                f"bytes, and {stored} are there. Copy the model again"
            )


def _type_names() -> dict[int, str]:
    import tflite

    return {value: name.lower() for name, value in vars(tflite.TensorType).items() if isinstance(value, int)}


@interrupts_wait()
def _convert(model: Any, shapes: dict[str, tuple[int, ...]], name: str, own: int | None) -> tuple[Any, dict[str, Any]]:
    tvm = load_tvm()
    from op_profiler.frontends.importers.tflite_converter import TfliteConverter

    class ForBatch(TfliteConverter):
        own_batch = own

    try:
        with quiet():
            module, params = tvm.relay.frontend.from_tflite(model, shape_dict=shapes, op_converter=ForBatch)
    except Exception as error:  # the importer raises anything, AssertionError and struct.error among them
        raise unsupported(name, error) from error
    return module, params
