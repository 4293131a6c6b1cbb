"""From a TFLite file to Relay."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import MissingPackageError, ModelError
from op_profiler.frontends.fingerprints import check_file
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.importers.finish import finish, output_shapes, said, unsupported
from op_profiler.frontends.input_shapes import batch_of, shapes_by_name

IDENTIFIER = b"TFL3"  # bytes 4 to 8 of every TFLite file
_HIGHEST = {"uint8": 256, "int8": 128}


def check_tflite(path: Path) -> None:
    """Refuse what is no TFLite file.

    Raises:
        ModelError: not there, empty, or something else.
    """
    check_file(path)
    with path.open("rb") as file:
        if file.read(8)[4:] != IDENTIFIER:
            raise ModelError(f"{path} is no TFLite model: it does not start as one")


def lower(path: Path, request: ModelRequest) -> ImportedModel:
    """Lower the model in a file.

    Raises:
        ModelError: it is cut off, has operators that TVM does not know, or fixes its batch size.
    """
    check_tflite(path)
    for package in ("tflite", "flatbuffers"):
        if importlib.util.find_spec(package) is None:
            raise MissingPackageError(package, "a TFLite model")
    model, own = _read(path)
    given = shapes_by_name(request, tuple(own))
    first = next((shape[0] for shape in own.values() if shape), 1)
    leading = next((name for name, shape in own.items() if shape), None)
    batch = request.batch_size if request.batch_size > 1 else first
    if leading in given:
        batch = batch_of(request, given[leading])
    shapes = {
        name: given.get(name) or ((batch, *shape[1:]) if shape and shape[0] == first else shape)
        for name, shape in own.items()
    }
    types = _types(model)
    own_specs = [InputSpec(n, s, types[n], high=_HIGHEST.get(types[n], 2)) for n, s in shapes.items()]
    itself = compiler_in_use().import_program("tflite", request.name, model, {spec.name: spec for spec in own_specs})
    if itself is not None:
        own_model = ImportedModel(request.name, request.source, itself, {}, tuple(own_specs), batch)
        return _with_batch(own_model, first, batch)
    module, params = _convert(model, shapes, request.name, own=first if batch != first else None)
    kinds = {v.name_hint: str(v.type_annotation.dtype) for v in module["main"].params}
    specs = [InputSpec(n, s, high=_HIGHEST.get(kinds.get(n, ""), 2)) for n, s in shapes.items()]
    lowered = finish(module, params, specs, name=request.name, source=request.source, batch_size=batch)
    return _with_batch(lowered, first, batch)


def _with_batch(lowered: ImportedModel, first: int, batch: int) -> ImportedModel:
    """The model, whose batch must reach its outputs.

    Args:
        first: the batch size that it was made for.

    Raises:
        ModelError: it does not.
    """
    if batch != first and not any(shape and shape[0] == batch for shape in output_shapes(lowered.mod)):
        raise ModelError(f"{lowered.name} was made for batch size {first} and cannot be given {batch}")
    return lowered


def _types(model: Any) -> dict[str, str]:
    """Of the inputs, by their names."""
    import tflite

    graph = model.Subgraphs(0)
    names = {value: name.lower() for name, value in vars(tflite.TensorType).items() if isinstance(value, int)}
    tensors = [graph.Tensors(int(i)) for i in graph.InputsAsNumpy()]
    return {tensor.Name().decode(): names.get(tensor.Type(), "float32") for tensor in tensors}


def _read(path: Path) -> tuple[Any, dict[str, tuple[int, ...]]]:
    """The model, and the shape of its inputs by name; those that have none of their own get one."""
    from op_profiler.frontends.importers import tflite_names

    try:
        model = tflite_names.read(path.read_bytes())
        graph = model.Subgraphs(0)
        tensors = [graph.Tensors(int(i)) for i in graph.InputsAsNumpy()]
        shapes = {t.Name().decode(): tuple(int(d) for d in t.ShapeAsNumpy()) for t in tensors}
    except Exception as error:  # a file that was cut off sends the reader anywhere
        raise ModelError(f"{path} cannot be read as TFLite; is it complete? ({said(error)})") from error
    return model, shapes


@interrupts_wait()
def _convert(model: Any, shapes: dict[str, tuple[int, ...]], name: str, own: int | None) -> tuple[Any, dict[str, Any]]:
    from op_profiler.frontends.importers.torch import quiet

    tvm = load_tvm()
    from op_profiler.frontends.importers.tflite_converter import Converter

    class ForBatch(Converter):
        own_batch = own

    try:
        with quiet():
            module, params = tvm.relay.frontend.from_tflite(model, shape_dict=shapes, op_converter=ForBatch)
    except Exception as error:  # the importer raises anything, AssertionError and struct.error among them
        raise unsupported(name, error) from error
    return module, params
