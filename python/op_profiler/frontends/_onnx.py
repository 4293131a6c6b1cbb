"""From ONNX to Relay."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from op_profiler.compiler import load_tvm
from op_profiler.errors import MissingPackageError, ModelError, UsageError
from op_profiler.frontends._base import InputSpec, ModelRequest, RelayModel
from op_profiler.frontends._content import check_file

_UNSUPPORTED = re.compile(r"not supported for frontend ONNX:\s*(.*)")


def load_onnx() -> Any:
    """Import onnx, or say how to install it."""
    try:
        import onnx
    except ImportError as error:
        raise MissingPackageError("onnx<1.19", "ONNX models") from error
    return onnx


def lower(path: Path, request: ModelRequest) -> RelayModel:
    """Import an ONNX file with the batch size and shapes that the user asked for.

    Raises:
        ModelError: the file is no ONNX model, or an operator of it is not supported (named).
        UsageError: a shape is needed, or does not fit.
    """
    check_file(path)
    onnx = load_onnx()
    try:
        model = onnx.load(str(path))
        onnx.checker.check_model(model)
    except Exception as error:  # noqa: BLE001 - onnx and protobuf raise their own kinds
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{path} is not a readable ONNX model: {first}") from error
    inputs = _inputs(onnx, model, request, str(path))
    tvm = load_tvm()
    shapes = {i.name: tuple(tvm.relay.Any() if d is None else d for d in i.shape) for i in inputs}
    try:
        module, params = tvm.relay.frontend.from_onnx(model, shape=shapes, freeze_params=True)
        module = tvm.relay.transform.DynamicToStatic()(module)
    except Exception as error:  # noqa: BLE001 - TVM's importer raises nearly everything
        raise ModelError(f"{path.name} cannot be lowered: {_reason(error)}") from error
    used = {v.name_hint for v in module["main"].params}
    inputs = tuple(i for i in inputs if i.name in used)
    batch = inputs[0].shape[0] if inputs and inputs[0].shape and inputs[0].shape[0] else 1
    return RelayModel(request.name, request.source, module, dict(params), inputs, int(batch))


def _reason(error: BaseException) -> str:
    found = _UNSUPPORTED.search(str(error))
    if found:
        return f"operators without a counterpart in Relay: {found.group(1)}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


def _inputs(onnx: Any, model: Any, request: ModelRequest, name: str) -> tuple[InputSpec, ...]:
    """The graph's real inputs (initializers are listed as inputs too), with the shapes asked for."""
    constants = {i.name for i in model.graph.initializer}
    wanted = [i for i in model.graph.input if i.name not in constants]
    unknown = set(request.input_names) - {i.name for i in wanted}
    if unknown:
        raise UsageError(f"{name} has no input {', '.join(sorted(unknown))}; it has {', '.join(i.name for i in wanted)}")
    order = list(request.input_names) or [i.name for i in wanted]
    given = dict(zip(order, request.input_shapes))
    specs = []
    for value in wanted:
        tensor = value.type.tensor_type
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        specs.append(InputSpec(value.name, _shape(value, given.get(value.name), request, name), dtype))
    return tuple(specs)


def _shape(
    value: Any, given: tuple[int, ...] | None, request: ModelRequest, name: str
) -> tuple[int | None, ...]:
    """The file's shape; a dimension that it leaves open is the batch where it comes first, else the user's."""
    dimensions = value.type.tensor_type.shape.dim
    if given is not None:
        if dimensions and len(given) != len(dimensions):
            raise UsageError(f"input {value.name!r} of {name} has {len(dimensions)} dimensions, --inputshape {given}")
        return given
    shape: list[int | None] = [int(d.dim_value) if d.dim_value > 0 else None for d in dimensions]
    if shape and (shape[0] is None or (request.batch_size != 1 and shape[0] == 1)):
        shape[0] = request.batch_size
    elif shape and shape[0] != request.batch_size and request.batch_size != 1:
        raise UsageError(
            f"{name} is made for {shape[0]} in the first dimension of {value.name!r}; give its --inputshape"
        )
    if request.sequence_length is not None and len(shape) > 1 and shape[1] is None:
        shape[1] = request.sequence_length
    if None in shape:
        raise UsageError(f"input {value.name!r} of {name} has the open shape {tuple(shape)}; give its --inputshape")
    return tuple(shape)
