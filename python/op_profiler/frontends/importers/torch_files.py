"""Reads torch programs: TorchScript, torch.export, and the results of a user's function.

No pickle is ever executed: TorchScript has its own unpickler, which supports tensors and lists only, and that of
torch.export is restricted to weights.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import re
import typing
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.compilers.tvm_build import replaced
from op_profiler.errors import ModelError, OpProfilerError, require
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.importers import torch as torch_importer
from op_profiler.frontends.importers.finish import readable_reason
from op_profiler.frontends.importers.torch_functions import called
from op_profiler.frontends.importers.torch_library import torch
from op_profiler.frontends.importers.torch_nodes import known_tensor
from op_profiler.frontends.input_shapes import batch_of, shapes_by_name
from op_profiler.lean_imports import quiet


def lower_torchscript(path: Path, request: ModelRequest) -> ImportedModel:
    """Lower a file of torch.jit.save; `request` must contain the shapes of the inputs."""
    model = _load_script(path)
    graph = model.inlined_graph
    names = [v.debugName().partition(".")[0] for v in list(graph.inputs())[1:]]
    shapes = shapes_by_name(request, names)
    missing = [name for name in names if name not in shapes]
    if missing:
        raise ModelError(f"{path} has the inputs {', '.join(names)}; --inputshape has no shape for {missing[0]}")
    vocabularies = _vocabularies(model, graph)
    examples = [_example(shapes[n], vocabularies.get(i)) for i, n in enumerate(names)]
    return torch_importer.lower(
        model,
        examples,
        name=request.name,
        source=request.source,
        input_names=names,
        batch_size=batch_of(request, shapes[names[0]]) if names else request.batch_size,
        highs={n: vocabularies[i] for i, n in enumerate(names) if i in vocabularies},
        read_again=lambda: _load_script(path),
    )


def _load_script(path: Path) -> Any:
    try:
        with quiet():
            model = torch.jit.load(str(path), map_location="cpu").eval()
    except RuntimeError as error:
        raise ModelError(f"{path} cannot be read as TorchScript: {readable_reason(error)}") from error
    if not hasattr(model, "forward"):
        raise ModelError(f"{path} has no forward, which is what runs a network; save a module that has one")
    graph = model.inlined_graph
    if graph.findAllNodes("prim::If") or graph.findAllNodes("prim::Loop"):
        # a script: what its constants and `training` decide is decided now, so that what is left is mostly straight
        with quiet():
            model = torch.jit.freeze(model, optimize_numerics=False)
    return model


def _vocabularies(model: Any, graph: Any) -> dict[int, int]:
    """Return the number of rows for each input, by position, that indexes a table; these inputs are integers."""
    positions = {v.debugName(): i for i, v in enumerate(list(graph.inputs())[1:])}
    found = {}
    for node in graph.findAllNodes("aten::embedding"):
        position = positions.get(node.inputsAt(1).debugName())
        if position is not None:
            found[position] = _rows(model, node.inputsAt(0))
    return found


def _rows(model: Any, table: Any) -> int:
    """Return the number of rows of a table: of a constant or an attribute; 2 for a computed table, the least number."""
    known = known_tensor(model, table)
    return 2 if known is None else int(known.shape[0])


def _example(shape: Sequence[int], vocabulary: int | None = None) -> Any:
    generator = torch.Generator().manual_seed(0)
    if vocabulary:
        return torch.randint(0, vocabulary, tuple(shape), generator=generator)
    return torch.randn(tuple(shape), generator=generator)


def lower_exported(path: Path, request: ModelRequest) -> ImportedModel:
    """Lower a file of torch.export.save, which contains the shapes of its inputs."""
    program = _load_exported(path)
    names = list(program.graph_signature.user_inputs)
    kinds = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder" and n.name in names}
    other = [name for name in names if not hasattr(kinds.get(name), "shape")]
    if other:
        raise ModelError(f"{path} takes {other[0]}, which is no tensor")
    given = shapes_by_name(request, names)
    batch = batch_of(request, given.get(names[0]) if names else None)
    fixed = [kinds[n] for n in names if kinds[n].shape]
    if fixed and all(isinstance(kind.shape[0], int) and kind.shape[0] != batch for kind in fixed) and batch > 1:
        raise ModelError(
            f"{path} was exported for batch size {fixed[0].shape[0]} and cannot be given {batch}; "
            "export it with a dynamic batch dimension"
        )
    examples = [_filled(kinds[n], _sizes(path, n, kinds[n], given.get(n), batch)) for n in names]
    return torch_importer.lower(
        program.module(),
        examples,
        name=request.name,
        source=request.source,
        input_names=names,
        batch_size=int(examples[0].shape[0]) if examples and examples[0].dim() else 1,
        highs=_highs(names, examples),
        read_again=lambda: _load_exported(path).module(),
    )


def _load_exported(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            if any(PurePosixPath(n).name.startswith(("custom_obj_", "opaque_obj_")) for n in archive.namelist()):
                raise ModelError(f"{path} contains pickled objects next to its tensors, which are not read")
            _import_output_classes(archive)
        with quiet(), _weights_only(), _hints_kept():
            return torch.export.load(str(path))
    except OpProfilerError:
        raise
    except Exception as error:  # zip, schema and unpickling errors of every kind
        raise ModelError(f"{path} cannot be read as a torch.export program: {readable_reason(error)}") from error


def _import_output_classes(archive: zipfile.ZipFile) -> None:
    """Import the modules of transformers whose classes the outputs of an exported program have: torch reads such a
    program only after these classes were registered.

    Raises:
        MissingPackageError: transformers is not installed.
    """
    names = [name for name in archive.namelist() if name.endswith(".json") and "/models/" in f"/{name}"]
    classes = {found.decode() for name in names for found in _OUTPUT_CLASS.findall(archive.read(name))}
    if not classes:
        return
    require("transformers", f"a program whose outputs are of the class {min(classes)}")
    torch_importer.prepare_torchvision()
    for one in classes:
        with contextlib.suppress(ImportError), quiet():  # of another version of transformers: torch names the class
            importlib.import_module(one.rpartition(".")[0])


def _hints_kept() -> contextlib.AbstractContextManager[None]:
    """Cache type hints: torch resolves those of the same classes of its schema for each node, a fifth of an import."""

    from torch._export.serde import serialize

    class Typing:
        def __getattr__(self, name: str) -> Any:
            return getattr(typing, name)

        def get_type_hints(self, kind: type, **options: Any) -> dict[str, Any]:
            if kind not in _HINTS:
                _HINTS[kind] = typing.get_type_hints(kind, **options)
            return _HINTS[kind]

    return replaced(serialize, "typing", Typing())


_HINTS: dict[type, dict[str, Any]] = {}
_OUTPUT_CLASS = re.compile(rb'\\"type\\": \\"(transformers\.[\w.]+)\\"')
"""A class of transformers in the tree of a program's outputs, which is JSON inside of JSON."""


@contextlib.contextmanager
def _weights_only() -> Iterator[None]:
    """Forbid pickles: torch.export.load falls back to executing them if it cannot read weights only."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _sizes(path: Path, name: str, kind: Any, given: tuple[int, ...] | None, batch: int) -> tuple[int, ...]:
    """Return the sizes of an input: those given, otherwise those exported, with the batch size if the first is free."""
    if given:
        return given
    sizes = []
    for position, size in enumerate(kind.shape):
        if not isinstance(size, int) and position:
            raise ModelError(f"dimension {position} of input {name} of {path} is open; give --inputshape")
        sizes.append(size if isinstance(size, int) else batch)
    return tuple(sizes)


def _filled(kind: Any, sizes: tuple[int, ...]) -> Any:
    if kind.dtype.is_floating_point:
        return _example(sizes).to(kind.dtype)
    return torch.zeros(sizes, dtype=kind.dtype)


def lower_function(request: ModelRequest) -> ImportedModel:
    """Lower the result of ``package.module:function``: a torch module and its example inputs (a tensor, a list or a
    dict).

    Without example inputs, random ones with the requested shapes are used.
    """
    torch_importer.prepare_torchvision()  # the user's code may import it
    torch.manual_seed(0)
    model, examples = called(request.name)
    if not isinstance(model, torch.nn.Module):
        raise ModelError(f"{request.name} returned {type(model).__name__} where a torch.nn.Module was expected")
    if examples is None:
        if not request.input_shapes:
            raise ModelError(f"{request.name} returned no example inputs; give --inputshape, or return them too")
        examples = [_example(shape) for shape in request.input_shapes]
    named = examples if isinstance(examples, Mapping) else None
    tensors = _tensors(request.name, examples)
    own = list(named) if named is not None else [f"input{i}" for i in range(len(tensors))]
    names = own
    if named is None and len(request.input_names) == len(own):
        names = list(request.input_names)
    given = shapes_by_name(request, names)
    first = tensors[0].shape[0] if tensors[0].dim() else 1
    batch = batch_of(request, given.get(names[0]), first)
    examples = [
        _resized(t, given.get(n) or ((batch, *t.shape[1:]) if t.dim() and t.shape[0] == first else None))
        for n, t in zip(names, tensors, strict=True)
    ]
    return torch_importer.lower(
        torch_importer.by_keyword(model, names) if named is not None else model,
        examples,
        name=request.name,
        source=request.source,
        input_names=names,
        batch_size=batch,
        highs=_highs(names, examples),
    )


def _tensors(name: str, examples: Any) -> list[Any]:
    if isinstance(examples, torch.Tensor):
        return [examples]
    several = examples.values() if isinstance(examples, Mapping) else examples
    tensors = list(several) if isinstance(examples, (Mapping, list, tuple)) else []
    if not tensors or not all(isinstance(t, torch.Tensor) for t in tensors):
        raise ModelError(
            f"{name} returned example inputs that are not all tensors ({type(examples).__name__}); "
            "return a tensor, or a list or a dict of tensors"
        )
    return tensors


def _resized(tensor: Any, shape: tuple[int, ...] | None) -> Any:
    """Return a tensor of the requested shape with values like those of the given one."""
    if shape is None or tuple(tensor.shape) == tuple(shape):
        return tensor
    values, count = tensor.reshape(-1), math.prod(shape)
    return values.repeat(-(-count // max(len(values), 1)))[:count].reshape(shape)


def _highs(names: Sequence[str], examples: Sequence[Any]) -> dict[str, int]:
    """Return the first out-of-range value of integer inputs, from the examples."""
    integers = {n: e for n, e in zip(names, examples, strict=True) if not e.dtype.is_floating_point and e.numel()}
    return {n: max(2, int(e.max()) + 1) for n, e in integers.items()}
