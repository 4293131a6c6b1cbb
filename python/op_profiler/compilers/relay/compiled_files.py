"""Writes and reads built models. A model that is read has the same kernels: their object code is equal to the byte.

A library is stored as the LLVM bitcode from which TVM's own code generator continues, so reading needs no linker and no
compiler except TVM. The code of a GPU is stored in the form that the driver loads (PTX or cubin). Functions are TVM's
JSON; reading a file executes no code from it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from op_profiler.compilers import executor_graph
from op_profiler.compilers.compiled_model import CompiledModel, Occurrence
from op_profiler.compilers.compiler import NotKept
from op_profiler.compilers.relay.extract import describe
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray, Function, RuntimeModule
from op_profiler.compilers.weight_files import read_weights, write_weights
from op_profiler.operators.operator import Operator

_GPU_FORMATS = ("ptx", "cubin", "fatbin")
_ABOUT, _FUNCTIONS, _GRAPH, _CODE, _PARAMS = "build.json", "functions.json", "graph.json", "vm.bin", "params.bin"
_SAME = ("executor", "build_seconds", "launches", "loops", "code")
"""Fields of a built model that are stored unchanged in its file."""
_Row = tuple[int, str, tuple[bool, ...], str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Library:
    """Kernels, graph and weights of a built model; replaces TVM's executor factory.

    Attributes:
        graph: JSON of the graph executor.
        params: weights by name.
    """

    graph: str
    kernels: RuntimeModule
    params: dict[str, DeviceArray]

    def get_graph_json(self) -> str:
        """Return `graph`, as TVM's executor factory does."""
        return self.graph

    def get_lib(self) -> RuntimeModule:
        """Return `kernels`, as TVM's executor factory does."""
        return self.kernels

    def get_params(self) -> dict[str, DeviceArray]:
        """Return `params` without copying the weights, which TVM's executor factory does."""
        return self.params


@contextlib.contextmanager
def _tvm_errors() -> Iterator[None]:
    try:
        yield
    except load_tvm().TVMError as error:
        raise NotKept(str(error)) from error


@_tvm_errors()
def write_compiled(folder: Path, compiled: CompiledModel) -> None:
    """Write a built model into an existing folder.

    Raises:
        NotKept: the library has a form that cannot be stored.
        OSError: the disk is full, or a similar error.
    """
    tvm = load_tvm()
    about: dict[str, Any] = {name: getattr(compiled, name) for name in (*_SAME, "left_out", "notes")}
    library = compiled.library
    if compiled.executor == "vm":
        code, kernels = library.save()
        (folder / _CODE).write_bytes(code)
    else:
        kernels = library.get_lib()
        (folder / _GRAPH).write_text(library.get_graph_json())
        write_weights(folder / _PARAMS, library.get_params())
    about["modules"] = [_write_module(folder, f"library{i}", m) for i, m in enumerate(_modules(kernels))]
    functions: dict[int, tuple[int, Function]] = {}
    about["occurrences"] = _rows(compiled.occurrences, functions)
    about["by_label"] = _rows(compiled.by_label.values(), functions)
    (folder / _FUNCTIONS).write_text(tvm.ir.save_json(tvm.runtime.convert([f for _, f in functions.values()])))
    (folder / _ABOUT).write_text(json.dumps(about))


def _rows(occurrences: Iterable[Occurrence], functions: dict[int, tuple[int, Function]]) -> list[_Row]:
    """Return occurrences as plain values; each function is stored once and given by its number."""
    rows = []
    for o in occurrences:
        number, _ = functions.setdefault(o.function.handle.value, (len(functions), o.function))
        rows.append((number, o.label, o.constant, o.anchor_signature, o.locations))
    return rows


def _modules(kernels: RuntimeModule) -> list[RuntimeModule]:
    """Return a library and the modules with the device code that it launches."""
    imported = list(kernels.imported_modules)
    if kernels.type_key != "llvm" or any(m.type_key != "cuda" or m.imported_modules for m in imported):
        raise NotKept(f"a library of kind {kernels.type_key} with {[m.type_key for m in imported]}")
    return [kernels, *imported]


def _write_module(folder: Path, name: str, module: RuntimeModule) -> str:
    """Write one module; return the name of its file."""
    if module.type_key == "llvm":
        module.save(str(folder / f"{name}.bc"), "bc")
        return f"{name}.bc"
    for form in _GPU_FORMATS:  # TVM does not tell in which of them the compiler left it
        try:
            module.save(str(folder / f"{name}.{form}"), form)
        except load_tvm().TVMError:
            continue
        return f"{name}.{form}"
    raise NotKept(f"code of a GPU that is none of {', '.join(_GPU_FORMATS)}")


@_tvm_errors()
def read_compiled(folder: Path, like: CompiledModel | None = None) -> CompiledModel:
    """Read a model that `write_compiled` wrote. The caller must have verified that the files are unchanged.

    Args:
        like: as in `Compiler.read`.

    Raises:
        NotKept, OSError, ValueError, KeyError, TypeError: the files do not contain a model that can be read.
    """
    tvm = load_tvm()
    about = json.loads((folder / _ABOUT).read_text())
    graph: dict[str, Any] | None = None
    kernels, *imported = [_read_module(folder, name) for name in about["modules"]]
    for module in imported:
        kernels.import_module(module)
    if about["executor"] == "vm":
        Executable = tvm.runtime.vm.Executable
        library: Any = Executable.load_exec((folder / _CODE).read_bytes(), kernels)
    else:
        text = (folder / _GRAPH).read_text()
        library = Library(text, kernels, read_weights(folder / _PARAMS))
        graph = json.loads(text)
    if like is not None:
        return dataclasses.replace(like, library=library)
    functions = tvm.ir.load_json((folder / _FUNCTIONS).read_text())
    occurrences = _occurrences([*about["occurrences"], *about["by_label"]], functions)
    in_order = len(about["occurrences"])
    return CompiledModel(
        library,
        tuple(occurrences[:in_order]),
        {o.label: o for o in occurrences[in_order:]},
        calls=() if graph is None else tuple(executor_graph.kernel_calls(graph)),
        tensors=() if graph is None else executor_graph.planned_tensors(graph),
        outputs=() if graph is None else executor_graph.outputs(graph),
        **{name: about[name] for name in _SAME},
        left_out=tuple(about["left_out"]),
        notes=tuple(about["notes"]),
    )


def _read_module(folder: Path, name: str) -> RuntimeModule:
    """Read one module.

    Raises:
        ValueError: the file is not of a kind that `_write_module` writes: loading a shared library would execute code.
    """
    form = Path(name).suffix.removeprefix(".")
    if form not in ("bc", *_GPU_FORMATS) or Path(name).name != name:
        raise ValueError(f"{name!r} is no module of a build")
    of_llvm = "ll" if form == "bc" else form  # LLVM reads both by one name
    return load_tvm().runtime.load_module(str(folder / name), of_llvm)


def _occurrences(rows: Iterable[_Row], functions: Sequence[Function]) -> list[Occurrence]:
    found: dict[tuple[int, tuple[bool, ...]], Operator] = {}
    occurrences = []
    for number, label, constant, signature, layers in rows:
        key = number, tuple(constant)
        if key not in found:
            found[key] = describe(functions[number], tuple(constant))
        occurrences.append(Occurrence(found[key], label, functions[number], tuple(constant), signature, tuple(layers)))
    return occurrences
