"""Writes models from the caller's Python to files in the cache folder, which every process can read.

Nothing is pickled: a module of torch becomes a program of `torch.export`, an ``onnx.ModelProto`` an ONNX file.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from op_profiler.cache import cache_folder
from op_profiler.compilers.tvm_build import replaced
from op_profiler.errors import ModelError, UsageError
from op_profiler.files import atomic_file
from op_profiler.frontends import source_and_name

if TYPE_CHECKING:
    import onnx
    import torch

    Inputs: TypeAlias = "torch.Tensor | Sequence[torch.Tensor] | Mapping[str, torch.Tensor]"
    LiveModel: TypeAlias = "str | Path | torch.nn.Module | onnx.ModelProto | tuple[torch.nn.Module, Inputs]"


def source_and_name_of(model: LiveModel, inputs: Inputs | None, source: str) -> tuple[str, str]:
    """Return the source and name of a model; a model from the caller's Python is first written to a file.

    Args:
        model: a name, source:name, a path, a module of torch, or an ``onnx.ModelProto``.
        source: source of a plain name.
        inputs: example tensors of a module, in order or by name; the model is measured with their shapes.

    Raises:
        UsageError: inputs are missing, or are given for a model that has its own.
        ModelError: `torch.export` cannot export the module.
    """
    if _is_a(model, "torch", "nn.Module"):
        if inputs is None:
            raise UsageError(f"{type(model).__name__} is a torch module; give example inputs too: (module, inputs)")
        return "file", str(_exported(model, inputs))
    if inputs is not None:
        raise UsageError("inputs are for a torch module; give shapes of others as input_shapes")
    if _is_a(model, "onnx", "ModelProto"):
        content = model.SerializeToString(deterministic=True)  # type: ignore[union-attr]
        name = model.graph.name or "model"  # type: ignore[union-attr]
        return "file", str(_kept(name, ".onnx", content, lambda path: path.write_bytes(content)))
    if not isinstance(model, str | Path):
        raise UsageError(
            f"{type(model).__name__} is no model: give a name, a path, a torch module with its inputs, or an onnx model"
        )
    return source_and_name(str(model), source)


def _is_a(model: object, package: str, name: str) -> bool:
    """Return whether a model is of a class of a package, without importing the package."""
    found: Any = sys.modules.get(package)
    for part in name.split("."):
        found = getattr(found, part, None)
    return isinstance(found, type) and isinstance(model, found)


def _exported(module: torch.nn.Module, inputs: Inputs) -> Path:
    import torch

    by_name: dict[str, Any] = dict(inputs) if isinstance(inputs, Mapping) else {}
    by_place = () if by_name else (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    try:
        with _evaluating(module), torch.no_grad():
            program = torch.export.export(module, by_place, by_name)
    except Exception as error:  # of every kind, since the module's own code runs
        raise ModelError(f"{type(module).__name__} cannot be exported by torch.export: {error}") from error
    content = hashlib.sha256(str(program).encode())
    for name, tensor in {**program.state_dict, **program.constants}.items():
        content.update(name.encode())
        if isinstance(tensor, torch.Tensor):
            content.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())

    def write(path: Path) -> None:
        with path.open("wb") as file, _unchecked_form():
            torch.export.save(program, file)

    return _kept(type(module).__name__, ".pt2", content.digest(), write)


def _unchecked_form() -> contextlib.AbstractContextManager[None]:
    """Skip a self-check of `torch.export.save`, which copies the whole program and discards the result; a version of
    torch that has it elsewhere saves more slowly."""
    with contextlib.suppress(ImportError):
        from torch._export.serde import serialize

        if hasattr(serialize, "canonicalize"):
            return replaced(serialize, "canonicalize", lambda program, constants=None: program)
    return contextlib.nullcontext()


@contextlib.contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Put a module and all its parts into evaluation mode inside the block; their modes are restored afterwards."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _kept(name: str, suffix: str, content: bytes, write: Callable[[Path], object]) -> Path:
    """Return the file of a model in the cache folder, named by its content: equal models have one file."""
    digest = hashlib.sha256(content).hexdigest()[:12]
    path = cache_folder() / "live" / digest / f"{''.join(c if c.isalnum() else '_' for c in name)}{suffix}"
    if not path.is_file():
        with atomic_file(path) as temporary:
            write(temporary)
    return path
