"""Imports an ONNX file into Relay."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError, first_line, require
from op_profiler.frontends.fingerprints import check_file
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.importers import onnx_functions, onnx_repairs
from op_profiler.frontends.importers.finish import finish, output_shapes, unsupported
from op_profiler.frontends.importers.onnx_attention import AttentionRepairs
from op_profiler.frontends.importers.onnx_contrib import ContribRepairs
from op_profiler.frontends.importers.onnx_control import KnownControl, one_variable_an_input
from op_profiler.frontends.importers.onnx_graph import Dims, dims_of, remove, replace, sizes_in, tensors_in, used_inside
from op_profiler.frontends.importers.onnx_padding import Padding
from op_profiler.frontends.importers.onnx_plainer import PlainerForms
from op_profiler.frontends.importers.onnx_recurrent import RecurrentRepairs
from op_profiler.frontends.importers.onnx_relay_repairs import RelayRepairs
from op_profiler.frontends.importers.onnx_small_repairs import SmallRepairs
from op_profiler.frontends.importers.onnx_types import TypeRepairs
from op_profiler.frontends.importers.onnx_unread import unread_refused
from op_profiler.frontends.importers.onnx_weights import Weights
from op_profiler.frontends.input_shapes import batch_of, free_sizes_explained, shapes_by_name
from op_profiler.frontends.references.onnx_reference import OnnxReference
from op_profiler.lean_imports import quiet


def load_onnx() -> ModuleType:
    """Import the package onnx in a form that TVM 0.19's importer accepts.

    Raises:
        MissingPackageError: onnx is not installed.
    """
    require("onnx", "an ONNX model")
    try:
        import onnx.mapping  # noqa: F401
    except ImportError:
        # onnx 1.19 dropped the table that the importer reads
        table = {t: onnx.helper.tensor_dtype_to_np_dtype(t) for t in onnx.TensorProto.DataType.values() if _known(t)}
        mapping = types.ModuleType("onnx.mapping")
        mapping.TENSOR_TYPE_TO_NP_TYPE = table  # type: ignore[attr-defined]
        sys.modules["onnx.mapping"] = mapping
        onnx.mapping = mapping
    return onnx


def _known(element: int) -> bool:
    try:
        onnx.helper.tensor_dtype_to_np_dtype(element)
    except (KeyError, ValueError):
        return False
    return True


def read(path: Path) -> Any:
    """Return the `ModelProto` in a file, with its external data.

    Raises:
        ModelError: the file is missing, empty, incomplete, or not ONNX.
    """
    return _read(path, all_inside=True)[0]


def _read(path: Path, *, all_inside: bool) -> tuple[Any, Weights]:
    """Return the model and its weights; see `Weights`."""
    check_file(path)
    onnx = load_onnx()
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's DecodeError, onnx's checks of external data, OSError
        raise ModelError(f"{path} cannot be read as ONNX: {first_line(error)}") from error
    if not model.graph.node or not model.opset_import:
        raise ModelError(f"{path} is no ONNX model: it contains no graph")
    return model, Weights(model, path, all_inside=all_inside)


def files_of(path: Path) -> list[Path]:
    """Return the path of an ONNX file, and the paths of the files next to it that contain its weights."""
    check_file(path)
    onnx = load_onnx()
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception:  # `read` reports what is wrong with the file
        return [path]
    beside = {e.value for t in tensors_in(model) for e in t.external_data if e.key == "location"}
    return [path, *(p for name in sorted(beside) if (p := path.parent / name).is_file())]


def lower(path: Path, request: ModelRequest) -> ImportedModel:
    """Import the model in an ONNX file for the compiler in use.

    Raises:
        ModelError: the model cannot be read, has operators that TVM does not support, or fixes its batch size.
    """
    return _lowered(path, request, None)


def _lowered(path: Path, request: ModelRequest, outputs: Sequence[str] | None) -> ImportedModel:
    """Lower the model with other outputs, by their names; None for the model's own outputs."""
    imports_itself = compiler_in_use().name != DEFAULT_COMPILER
    model, data = _read(path, all_inside=imports_itself)
    graph = model.graph
    if outputs is not None:
        replace(graph.output, [type(graph.output[0])(name=name) for name in outputs])
    inputs = _inputs(graph)
    own = {i.name: dims_of(i) for i in inputs}
    shapes, batch = _shapes(request, own, {i.name: _leading_name(i) for i in inputs})
    asked = {name: shapes[name] for name in own}
    notes, inferred = _rewritten(model, data, request, shapes, own if batch is not None else None)
    leading = next((shapes[name][0] for name in own if shapes[name]), None) or 1
    compared = OnnxReference(
        path,
        _specs(graph, asked),
        (lambda: _resized(path, asked, batch)) if batch is not None or _differ(asked, own) else None,
        lambda names: _lowered(path, request, names),
    )
    with free_sizes_explained(request.name, asked):
        itself = _by_the_compiler(model, request, asked, leading, notes)
    if itself is not None:
        _check_batch(itself, graph, own, batch)
        _check_outputs(itself, graph, inferred)
        return dataclasses.replace(itself, reference=compared)
    _repair_for_relay(model, shapes, request.name)
    params = data.take_out(graph, shapes)
    specs = [InputSpec(name, shapes[name], high=_vocabulary(graph, name, params)) for name in own]
    with free_sizes_explained(request.name, asked):
        module, more = _convert(model, shapes, request.name)
    params.update(more)  # one dictionary, so that a weight that is replaced is held nowhere else
    about = {"name": request.name, "source": request.source}
    lowered = finish(module, params, specs, **about, batch_size=leading, notes=notes)
    _check_batch(lowered, graph, own, batch)
    _check_outputs(lowered, graph, inferred)
    return dataclasses.replace(lowered, reference=compared)


def _rewritten(
    model: Any, data: Weights, request: ModelRequest, shapes: dict[str, Dims], freed: Mapping[str, Dims] | None
) -> tuple[tuple[str, ...], dict[str, Dims]]:
    """Rewrite a graph for every importer.

    Args:
        freed: sizes of the inputs in the model if another batch size is requested.

    Returns:
        Notes for the user, and the sizes that ONNX infers before the rewriting.
    """
    inferred = onnx_repairs.reliable_sizes(model, shapes)  # before rewrites that might be wrong
    inlined = onnx_functions.inline(model, shapes, request.name)
    notes = onnx_repairs.note_small_numbers(model, shapes, request.name)
    onnx_repairs.with_tensors(model.graph)
    _fold_constants(model.graph, data)
    notes += KnownControl(model, shapes, request.name).spell_out()
    if freed is not None:
        _free_batch(model.graph, freed)
        _check_inputs(model, request.name, freed, shapes)
        inferred = onnx_repairs.reliable_sizes(model, shapes)
    Padding(model, shapes, request.name).spell_out()
    AttentionRepairs(model, shapes, request.name).for_all()
    ContribRepairs(model, shapes, request.name).for_all()
    repairs = onnx_repairs.Repairs(model, shapes, request.name)
    if inlined:
        repairs.fold_whole_numbers()
    repairs.for_all()
    RecurrentRepairs(model, shapes, request.name).for_all()
    return notes, inferred


def _repair_for_relay(model: Any, shapes: dict[str, Dims], name: str) -> None:
    """Rewrite what only Relay's importer gets wrong or rejects.

    Raises:
        ModelError: a node cannot be rewritten.
    """
    PlainerForms(model, shapes, name).spell_out()
    SmallRepairs(model, shapes, name).for_relay()
    TypeRepairs(model, shapes, name).for_relay()
    RelayRepairs(model, shapes, name).for_relay()
    ContribRepairs(model, shapes, name).for_relay()


def _inputs(graph: Any) -> list[Any]:
    constants = {t.name for t in graph.initializer}
    return [i for i in graph.input if i.name not in constants]


def _differ(shapes: Mapping[str, Dims], own: Mapping[str, Dims]) -> bool:
    """Return whether an input has another size than in the model."""
    return any(
        len(own[n]) != len(dims) or any(a not in (None, b) for a, b in zip(own[n], dims)) for n, dims in shapes.items()
    )


def _resized(path: Path, shapes: Mapping[str, Dims], batch: int | None) -> Any:
    """Return the model in a file with other input sizes."""
    model, data = _read(path, all_inside=True)
    graph = model.graph
    inputs = _inputs(graph)
    own = {i.name: dims_of(i) for i in inputs}
    onnx_repairs.with_tensors(graph)
    _fold_constants(graph, data)
    if batch is not None:
        _free_batch(graph, own)
    sized = [helper.make_tensor_value_info(i.name, i.type.tensor_type.elem_type, shapes[i.name]) for i in inputs]
    replace(graph.input, sized)
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    return model


def _specs(graph: Any, shapes: Mapping[str, Dims]) -> list[InputSpec]:
    """Describe the inputs; an input that is not a tensor has no dtype here, and the importer decides about it."""
    onnx = load_onnx()
    elements = {i.name: i.type.tensor_type.elem_type for i in graph.input if i.name in shapes}
    kinds = {n: str(onnx.helper.tensor_dtype_to_np_dtype(e)) for n, e in elements.items() if _known(e)}
    tables = {t.name: types.SimpleNamespace(shape=tuple(t.dims)) for t in graph.initializer}
    return [
        InputSpec(n, dims, kinds.get(n, "float32"), high=_vocabulary(graph, n, tables)) for n, dims in shapes.items()
    ]


def _by_the_compiler(
    model: Any, request: ModelRequest, shapes: Mapping[str, Dims], batch: int, notes: tuple[str, ...]
) -> ImportedModel | None:
    """Return the model as the compiler in use imports it itself; None if the compiler uses Relay's modules."""
    specs = _specs(model.graph, shapes)
    own = compiler_in_use().import_program("onnx", request.name, model, {spec.name: spec for spec in specs})
    return None if own is None else ImportedModel(request.name, request.source, own, {}, tuple(specs), batch, notes)


def _leading_name(value: Any) -> str:
    """Return the name of an input's first dimension if its size is free; empty if the dimension has no name.

    Names that torch's exporter derives from the input, if nobody named the dimension, are treated as equal.
    """
    return next((d.dim_param for d in value.type.tensor_type.shape.dim), "").removeprefix(f"{value.name}_")


def _shapes(
    request: ModelRequest, own: Mapping[str, Dims], leading_names: Mapping[str, str]
) -> tuple[dict[str, Dims], int | None]:
    """Return the shape of every input, and the batch size if it is not the model's own.

    The batch is the leading dimension of the first input, and of every other input with the same size or, if free, the
    same name. With batch 1, a model with another fixed batch size is not changed.
    """
    given = shapes_by_name(request, tuple(own))
    leads = {name: (dims[0], leading_names[name]) for name, dims in own.items() if dims}
    leading = next(iter(leads), None)
    first = own[leading][0] if leading else None
    batch = batch_of(request, given.get(leading or ""), 1 if first is None else first)
    shapes: dict[str, Dims] = {}
    for name, dims in own.items():
        has_batch = leading is not None and leads.get(name) == leads[leading]
        shapes[name] = given.get(name, (batch, *dims[1:]) if has_batch else dims)
    return shapes, (batch if batch != first else None)


def _check_inputs(model: Any, name: str, own: Mapping[str, Dims], shapes: Mapping[str, Dims]) -> None:
    """Check that the model is still valid with the new batch size.

    Equal leading sizes can be a coincidence: an input without a batch then gets a wrong size. Relay does not check this
    for all operators.

    Raises:
        ModelError: sizes of the model no longer fit, but did with its own batch size.
    """
    changed = [n for n, dims in own.items() if dims and dims[0] is not None and shapes[n] != dims]
    if len(changed) < 2:
        return
    try:
        sizes_in(model, own, strict=True)
    except Exception:  # onnx takes the model for wrong as it is, and so infers nothing
        return
    try:
        sizes_in(model, shapes, strict=True)
    except Exception as error:
        sizes = ", ".join(f"{n} {shapes[n]}" for n in changed)
        line = str(error).strip().splitlines()[-1]
        reason = line.removeprefix("[ShapeInferenceError] Inference error(s): ").rstrip(".")
        raise ModelError(
            f"{name} does not lower with the inputs {sizes}: {reason}. Give the shape of every input that holds no "
            "batch with --inputname and --inputshape."
        ) from error


def _fold_constants(graph: Any, weights: Weights) -> None:
    """Replace constant nodes, and values that are computed from constants alone, by initializers.

    The importer folds constants by compiling each, which took three quarters of its time on graphs that create their
    weights with ConstantOfShape.
    """
    known = {t.name: t for t in graph.initializer}
    kept = []
    for node in graph.node:
        attributes = {a.name: a for a in node.attribute}
        if node.op_type == "Constant" and "value" in attributes:
            tensor = attributes["value"].t
            tensor.name = node.output[0]
        elif node.op_type == "ConstantOfShape" and node.input[0] in known:
            value = numpy_helper.to_array(attributes["value"].t) if "value" in attributes else np.zeros(1, "float32")
            shape = numpy_helper.to_array(known[node.input[0]])
            tensor = numpy_helper.from_array(np.full(shape, value.reshape(-1)[0], value.dtype), node.output[0])
        elif node.op_type == "Unsqueeze" and node.input[0] in known and "axes" in attributes:
            data = np.expand_dims(weights.array(known[node.input[0]]), tuple(attributes["axes"].ints))
            tensor = numpy_helper.from_array(data, node.output[0])
        else:
            kept.append(node)
            continue
        known[node.output[0]] = tensor
    used = {name for node in kept for name in node.input} | {o.name for o in graph.output} | used_inside(kept)
    replace(graph.node, kept)
    there = {t.name for t in graph.initializer}
    remove(graph.initializer, there - used)
    graph.initializer.extend(tensor for name, tensor in known.items() if name in used - there)
    replace(graph.input, [i for i in graph.input if i.name not in known])


def _free_batch(graph: Any, own: Mapping[str, Dims]) -> None:
    """Make every Reshape to the model's own batch size keep any leading size (0 in ONNX)."""
    first = next((dims[0] for dims in own.values() if dims), None)
    known = {t.name: t for t in graph.initializer}
    for index, node in enumerate(graph.node):
        if node.op_type != "Reshape" or len(node.input) < 2 or node.input[0] in known or node.input[1] not in known:
            continue
        shape = numpy_helper.to_array(known[node.input[1]]).copy()
        zero_is_zero = any(a.name == "allowzero" and a.i for a in node.attribute)
        if first is None or not len(shape) or shape[0] != first or zero_is_zero:
            continue
        shape[0] = 0
        node.input[1] = f"{node.input[1]}__batch_{index}"
        graph.initializer.append(numpy_helper.from_array(shape, node.input[1]))
    del graph.value_info[:]


@interrupts_wait()
def _convert(model: Any, shapes: Mapping[str, Dims], name: str) -> tuple[Any, dict[str, Any]]:
    tvm = load_tvm()
    sizes = {n: tuple(tvm.relay.Any() if d is None else d for d in dims) for n, dims in shapes.items()}
    try:
        frontend = tvm.relay.frontend.onnx
        with quiet(), unread_refused(model.graph, frontend.GraphProto), one_variable_an_input(frontend):
            module, params = tvm.relay.frontend.from_onnx(model, shape=sizes, freeze_params=True)
    except Exception as error:  # the importer raises anything, AssertionError and KeyError among them
        raise unsupported(name, error) from error
    return module, params


def _vocabulary(graph: Any, name: str, weights: Mapping[str, Any]) -> int:
    """Return the rows of the table that an input of integers indexes; 2 if it does not index a table."""
    for node in graph.node:
        if node.op_type == "Gather" and node.input[1] == name and node.input[0] in weights:
            return int(weights[node.input[0]].shape[0])
    return 2


def _check_batch(lowered: ImportedModel, graph: Any, own: Mapping[str, Dims], batch: int | None) -> None:
    """Check that the batch size reaches the outputs: a model may contain its own size in an unknown place.

    Raises:
        ModelError: the outputs have another batch size.
    """
    first = next((dims[0] for dims in own.values() if dims), None)
    if batch is None or first is None:
        return
    for shape, output in zip(output_shapes(lowered.mod), graph.output, strict=False):
        dims = dims_of(output)
        if dims and dims[0] == first and shape and shape[0] != batch:
            raise ModelError(
                f"{lowered.name} was made for batch size {first} and cannot be given {batch}: its output {output.name} "
                f"stays at {shape[0]}. Export it again with a dynamic batch dimension."
            )


def _check_outputs(lowered: ImportedModel, graph: Any, inferred: Mapping[str, Dims]) -> None:
    """Check that outputs have the sizes that ONNX infers: an importer may mistake one operator for another.

    Raises:
        ModelError: an output has another size.
    """
    for shape, output in zip(output_shapes(lowered.mod), graph.output, strict=False):
        expected = inferred.get(output.name)
        if shape is None or expected is None or None in shape or None in expected or shape == expected:
            continue
        raise ModelError(
            f"{lowered.name} does not lower: its output {output.name} became one of shape {shape}, which is {expected} "
            "by ONNX"
        )
