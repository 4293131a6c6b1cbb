"""From TFLite to Relay."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from op_profiler.compiler import load_tvm
from op_profiler.errors import MissingPackageError, ModelError, UsageError
from op_profiler.frontends._base import InputSpec, ModelRequest, RelayModel
from op_profiler.frontends._content import check_file

_IDENTIFIER = b"TFL3"
_DTYPES = {0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8"}
_UNSUPPORTED = re.compile(r"not supported in frontend TFLite:?\s*(.*)", re.DOTALL)


def is_tflite(path: Path) -> bool:
    """Whether a file carries TFLite's identifier."""
    with path.open("rb") as file:
        return file.read(8)[4:] == _IDENTIFIER


def lower(path: Path, request: ModelRequest) -> RelayModel:
    """Import a TFLite file.

    Raises:
        ModelError: no TFLite file, truncated, or an operator of it is not supported (named).
        UsageError: it is made for another batch size.
    """
    check_file(path)
    try:
        import tflite
    except ImportError as error:
        raise MissingPackageError("tflite", "TFLite models") from error
    if not is_tflite(path):
        raise ModelError(f"{path} is not a TFLite model (its identifier {_IDENTIFIER.decode()} is missing)")
    tvm = load_tvm()
    try:
        model = tflite.Model.GetRootAsModel(path.read_bytes(), 0)
        specs = _inputs(model)
    except Exception as error:  # noqa: BLE001 - flatbuffers raises what struct and numpy raise
        raise ModelError(f"{path} is not a readable TFLite model: {error or type(error).__name__}") from error
    batch = specs[0].shape[0] if specs and specs[0].shape else 1
    if request.batch_size not in (1, batch):
        raise UsageError(f"{path.name} is made for batch {batch}; TFLite graphs have their sizes built in")
    try:
        module, params = tvm.relay.frontend.from_tflite(
            model,
            shape_dict={s.name: s.shape for s in specs},
            dtype_dict={s.name: s.dtype for s in specs},
        )
        module = tvm.relay.transform.InferType()(module)
    except Exception as error:  # noqa: BLE001 - TVM's importer raises nearly everything
        raise ModelError(f"{path.name} cannot be lowered: {_reason(error, model)}") from error
    used = {v.name_hint for v in module["main"].params}
    inputs = tuple(s for s in specs if s.name in used)
    return RelayModel(request.name, request.source, module, dict(params), inputs, int(batch or 1))


def _inputs(model: Any) -> tuple[InputSpec, ...]:
    graph = model.Subgraphs(0)
    specs = []
    for index in range(graph.InputsLength()):
        tensor = graph.Tensors(graph.Inputs(index))
        shape = tuple(int(d) for d in tensor.ShapeAsNumpy()) if tensor.ShapeLength() else ()
        dtype = _DTYPES.get(tensor.Type(), "float32")
        specs.append(InputSpec(tensor.Name().decode(), shape, dtype, 0, 256 if dtype == "uint8" else 2))
    return tuple(specs)


def _reason(error: BaseException, model: Any) -> str:
    found = _UNSUPPORTED.search(str(error))
    if found:
        return f"operators without a counterpart in Relay: {' '.join(found.group(1).split())}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__
    suspects = _unusual_operators(model)
    return f"operators that TVM's importer cannot take: {', '.join(suspects)} ({reason})" if suspects else reason


def _unusual_operators(model: Any) -> list[str]:
    """Custom operators by name, and those that unpack sparse weights, which TVM 0.19 reads wrongly."""
    import tflite

    builtin = {code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}
    names = set()
    for index in range(model.OperatorCodesLength()):
        code = model.OperatorCodes(index)
        name = builtin.get(max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), "?")
        if name == "CUSTOM":
            names.add((code.CustomCode() or b"CUSTOM").decode())
        elif name == "DENSIFY":
            names.add(name)
    return sorted(names)
