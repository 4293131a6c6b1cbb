"""A user's own model: TorchScript, `torch.export`, ONNX, TFLite, or a function that returns a torch module."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

from op_profiler.errors import MissingPackageError, ModelError, UsageError
from op_profiler.frontends import _onnx, _tflite, _torch, _zoo
from op_profiler.frontends._base import Frontend, ModelRequest, RelayModel
from op_profiler.frontends._content import check_file, fingerprint

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_KINDS = "TorchScript (.pt), torch.export (.pt2), ONNX (.onnx) or TFLite (.tflite)"
_PACKAGES = {"torchscript": "torch", "export": "torch", "onnx": "onnx", "tflite": "tflite", "function": "torch"}


class FileFrontend(Frontend):
    """``--modelname`` is a path, or ``package.module:function`` returning (torch module, example inputs)."""

    source = "file"
    summary = "TorchScript, torch.export, ONNX, TFLite by path, or package.module:function"

    def names(self) -> list[str]:
        return []

    def check(self, request: ModelRequest) -> None:
        kind = _kind(request.name)
        package = _PACKAGES[kind]
        if not _zoo.installed(package):
            raise MissingPackageError(package, f"the {kind} model {request.name}")
        if kind == "torchscript" and not request.input_shapes:
            raise UsageError(f"a TorchScript file does not tell its input shapes; give --inputshape for {request.name}")

    def fingerprint(self, request: ModelRequest) -> str:
        kind = _kind(request.name)
        file = _source_of(request.name) if kind == "function" else Path(request.name)
        return fingerprint(request, packages=("torch", "onnx", "tflite"), files=[file])

    def load(self, request: ModelRequest) -> RelayModel:
        self.check(request)
        kind = _kind(request.name)
        if kind == "onnx":
            return _onnx.lower(Path(request.name), request)
        if kind == "tflite":
            return _tflite.lower(Path(request.name), request)
        if kind == "function":
            return _from_function(request)
        if kind == "export":
            return _from_export(request)
        return _from_torchscript(request)


FRONTEND = FileFrontend()


def _kind(name: str) -> str:
    """What a name stands for, told from its form and the file's first bytes.

    Raises:
        ModelError: no such file, an empty one, or one of an unknown kind.
    """
    path = Path(name)
    if _FUNCTION.fullmatch(name) and not path.exists():
        _source_of(name)
        return "function"
    check_file(path)
    if path.suffix == ".onnx":
        return "onnx"
    if _tflite.is_tflite(path):
        return "tflite"
    if zipfile.is_zipfile(path):
        return _kind_of_archive(path)
    if path.suffix in (".pt", ".pth", ".bin", ".pkl"):
        raise ModelError(
            f"{path} is not TorchScript. A pickled module or state dictionary is not loaded, as it may run any code; "
            "save torch.jit.trace(model, example) or torch.export.export(model, example) instead"
        )
    raise ModelError(f"{path} is not a model that can be read; known are {_KINDS}")


def _kind_of_archive(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        names = {n.split("/", 1)[-1] for n in archive.namelist()}
    if "constants.pkl" in names:
        return "torchscript"
    if path.suffix == ".pt2" or any(n.startswith(("models/", "serialized_exported_program")) for n in names):
        return "export"
    raise ModelError(
        f"{path} holds pickled Python objects (a state dictionary or module); it is not loaded, as it may run any code. "
        "Save torch.jit.trace(model, example) or torch.export.export(model, example) instead"
    )


def _source_of(name: str) -> Path:
    """The file of the module in ``package.module:function``, looked for in the current folder too.

    Raises:
        ModelError: there is no such module.
    """
    module = name.split(":", 1)[0]
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise ModelError(f"there is no module {module!r} (of {name}) in the current folder or among the packages")
    return Path(spec.origin)


def _from_function(request: ModelRequest) -> RelayModel:
    torch = _torch.load_torch()
    torch.manual_seed(0)
    _source_of(request.name)
    module_name, function_name = request.name.split(":", 1)
    try:
        function = getattr(importlib.import_module(module_name), function_name)
        model, examples = function()
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        raise ModelError(f"{request.name} failed: {type(error).__name__}: {error}") from error
    examples = (examples,) if isinstance(examples, torch.Tensor) else tuple(examples)
    if not isinstance(model, torch.nn.Module) or not all(isinstance(e, torch.Tensor) for e in examples):
        raise ModelError(f"{request.name} must return (torch.nn.Module, example tensor or tuple of tensors)")
    return _lower(request, model.eval(), _with_batch(torch, examples, request))


def _with_batch(torch: Any, examples: tuple[Any, ...], request: ModelRequest) -> tuple[Any, ...]:
    """Examples of the shapes that the user asked for; --batchsize replaces the leading dimension."""
    if request.input_shapes:
        if len(request.input_shapes) != len(examples):
            raise UsageError(f"{request.name} has {len(examples)} inputs, --inputshape gives {len(request.input_shapes)}")
        shapes = list(request.input_shapes)
    elif request.batch_size != 1:
        shapes = [(request.batch_size, *e.shape[1:]) for e in examples]
    else:
        return examples
    return tuple(
        torch.randn(s) if e.is_floating_point() else torch.randint(0, max(int(e.max()) + 1, 1), s).to(e.dtype)
        for e, s in zip(examples, shapes)
    )


def _from_torchscript(request: ModelRequest) -> RelayModel:
    torch = _torch.load_torch()
    try:
        model = torch.jit.load(request.name, map_location="cpu").eval()
    except Exception as error:  # noqa: BLE001 - torch raises RuntimeError and others for damaged archives
        raise ModelError(f"{request.name} is not readable TorchScript: {str(error).splitlines()[0]}") from error
    shapes = list(request.input_shapes)
    if request.batch_size != 1:
        shapes = [(request.batch_size, *s[1:]) for s in shapes]
    return _lower(request, model, tuple(torch.randn(s) for s in shapes))


def _from_export(request: ModelRequest) -> RelayModel:
    torch = _torch.load_torch()
    try:
        program = torch.export.load(request.name)
    except Exception as error:  # noqa: BLE001 - as above
        raise ModelError(f"{request.name} is not a readable torch.export program: {str(error).splitlines()[0]}") from error
    arguments, _ = program.example_inputs or ((), {})
    if not arguments:
        raise ModelError(f"{request.name} carries no example inputs; export it with them")
    return _lower(request, program.module(), _with_batch(torch, tuple(arguments), request))


def _lower(request: ModelRequest, model: Any, examples: tuple[Any, ...]) -> RelayModel:
    return _torch.lower(
        model, examples, name=request.name, source=request.source, input_names=request.input_names, high=2
    )
