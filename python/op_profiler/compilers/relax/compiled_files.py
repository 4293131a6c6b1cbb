"""Writes and reads built models: the virtual machine's code, and kernels as LLVM bitcode, like those of Relay.

Reading needs no linker and no compiler except TVM. Functions are TVM's JSON; reading a file executes no code from
it. Weights are written twice, because the virtual machine's code has them without the names that plans need.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec

from op_profiler.compilers.compiled_model import CompiledModel, KernelCall, Occurrence, PlannedTensor
from op_profiler.compilers.compiler import NotKept
from op_profiler.compilers.relax.decoder.library import DecoderLibrary
from op_profiler.compilers.relax.decoder.step import DecoderStep
from op_profiler.compilers.relax.library import VmLibrary
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.weight_files import read_weights, write_weights
from op_profiler.operators.operator import Operator

_ABOUT, _FUNCTIONS, _CODE, _KERNELS = "build.json", "functions.json", "vm.bin", "kernels.bc"
_WEIGHTS, _ATTENTION = "weights.bin", "attention.bc"
_KIND = "relax.VMExecutable"


class _Row(msgspec.Struct):
    """An `Occurrence`; `function` is the number of its function in the file of all functions (``functions.json``)."""

    operator: Operator
    label: str
    function: int | None
    constant: tuple[bool, ...]
    anchor_signature: str
    locations: tuple[str, ...]
    pipeline: str


class _About(msgspec.Struct):
    """All fields of a `CompiledModel` that are not stored in a separate file."""

    occurrences: list[_Row]
    by_label: list[_Row]
    step: DecoderStep | None
    build_seconds: float
    calls: tuple[KernelCall, ...]
    tensors: tuple[PlannedTensor, ...]
    outputs: tuple[int, ...]
    loops: dict[str, list[int]]
    code: dict[str, str]
    notes: tuple[str, ...]


_SAME = ("build_seconds", "calls", "tensors", "outputs", "loops", "code", "notes")
"""Fields of a built model that are stored unchanged in its file."""


def write_compiled(folder: Path, compiled: CompiledModel) -> None:
    """Write a built model into an existing folder.

    Raises:
        NotKept: the kernels have a form that cannot be stored.
        OSError: the disk is full, or a similar error.
    """
    tvm, library = load_tvm(), compiled.library
    imported = list(library.executable.mod.imports)
    kinds = [str(module.kind) for one in imported for module in (one, *one.imports)]
    if kinds != ["llvm"]:  # a GPU's kernels are imported by what launches them
        raise NotKept(f"a library with {kinds}")
    library.executable.mod.write_to_file(str(folder / _CODE), _KIND)
    imported[0].write_to_file(str(folder / _KERNELS), "bc")
    if isinstance(library, DecoderLibrary):
        library.attention.write_to_file(str(folder / _ATTENTION), "bc")
    write_weights(folder / _WEIGHTS, library.weights)
    functions: list[Any] = []
    about = _About(
        [_row(one, functions) for one in compiled.occurrences],
        [_row(one, functions) for one in compiled.by_label.values()],
        library.step if isinstance(library, DecoderLibrary) else None,
        **{name: getattr(compiled, name) for name in _SAME},
    )
    (folder / _FUNCTIONS).write_text(tvm.ir.save_json(tvm.runtime.convert(functions)))
    (folder / _ABOUT).write_text(json.dumps(msgspec.to_builtins(about)))  # attributes may be infinite


def _row(one: Occurrence, functions: list[Any]) -> _Row:
    number = next((i for i, known in enumerate(functions) if known.same_as(one.function)), None)
    if number is None and one.function is not None:
        number = len(functions)
        functions.append(one.function)
    return _Row(one.operator, one.label, number, one.constant, one.anchor_signature, one.locations, one.pipeline)


def read_compiled(folder: Path, like: CompiledModel | None = None) -> CompiledModel:
    """Read a model that `write_compiled` wrote. The caller must have verified that the files are unchanged.

    Args:
        like: as in `Compiler.read`.

    Raises:
        NotKept, OSError, ValueError, KeyError, TypeError: the files do not contain a model that can be read.
    """
    try:
        about = msgspec.convert(json.loads((folder / _ABOUT).read_text()), _About)
        library = _library(folder, about)
        if like is not None:
            return dataclasses.replace(like, library=library)
        functions = load_tvm().ir.load_json((folder / _FUNCTIONS).read_text())
    except (RuntimeError, msgspec.ValidationError) as error:
        raise NotKept(str(error)) from error
    return CompiledModel(
        library,
        tuple(_occurrence(row, functions) for row in about.occurrences),
        {row.label: _occurrence(row, functions) for row in about.by_label},
        executor="graph",
        **{name: getattr(about, name) for name in _SAME},
    )


def _library(folder: Path, about: _About) -> VmLibrary:
    tvm = load_tvm()
    code = tvm.get_global_func(f"ffi.Module.load_from_file.{_KIND}")(str(folder / _CODE))
    code.import_module(_bitcode(folder / _KERNELS))
    weights = read_weights(folder / _WEIGHTS)
    executable = tvm.relax.VMExecutable(code)
    if about.step is None:
        return VmLibrary(executable, code, weights)
    return DecoderLibrary(executable, code, weights, about.step, _bitcode(folder / _ATTENTION))


def _bitcode(path: Path) -> Any:
    return load_tvm().get_global_func("ffi.Module.load_from_file.ll")(str(path), "ll")  # LLVM reads both by one name


def _occurrence(row: _Row, functions: Any) -> Occurrence:
    function = None if row.function is None else functions[row.function]
    return Occurrence(
        row.operator, row.label, function, row.constant, row.anchor_signature, row.locations, row.pipeline
    )
