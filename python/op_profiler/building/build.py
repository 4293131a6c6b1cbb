"""Builds models and operators with the schedule records of a request; an earlier build is reused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from op_profiler.building.build_cache import BuildCache
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import runtime_device
from op_profiler.option_values import several

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers.compiled_model import BuiltModel, CompiledModel, FusedOperators, Occurrence
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.schedules.usable_records import UsableRecords


def build_model(request: BuildRequest, model: ImportedModel, target: Target) -> BuiltModel:
    """Build a model, or read an earlier build of the same model.

    Args:
        request: request that defines the schedule records, the pipeline and the executor.
        model: model in its precision; changes (`Compiler.merge_parallel`) are part of `ImportedModel.content`.
        target: `tvm.target.Target`.

    Raises:
        ModelError: the compiler rejects the model.
    """
    records, model = request.usable_records(), dataclasses.replace(model, pipeline=request.pipeline)
    kept = BuildCache(request, model, target, records)
    built = kept.find()
    if built is None:
        built = compiler_in_use().build(model, target, records, "vm" if request.executor == "vm" else "graph")
        kept.keep(built)
    notes = (*built.compiled.notes, *records.notes(built.asked - built.refused), *_by_rule(built))
    return dataclasses.replace(built, notes=notes, kept=kept.place(built.asked))


def _by_rule(built: BuiltModel) -> tuple[str, ...]:
    count = sum(schedule.origin == "rule" for schedule in built.schedules.values())
    text = f"{several(count, 'operator')} compiled by this project's rule; --schedules none compiles them as TVM does"
    return (text,) if count else ()


def outputs_of(compiled: CompiledModel, target: Target, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a built model on the device of this machine that it was built for."""
    device, compiler = runtime_device(target), compiler_in_use()
    if compiled.executor == "vm":
        return compiler.load_dynamic(compiled, device, inputs)[0].output_arrays()
    return compiler.load(compiled, device, inputs).output_arrays()


def build_operator(occurrence: Occurrence, target: Target, records: UsableRecords) -> tuple[ImportedModel, BuiltModel]:
    """Build an operator as a separate model, whose inputs include its weights.

    Raises:
        ModelError: the compiler rejects the operator.
    """
    return compiler_in_use().single_operator(occurrence), compiler_in_use().build_operator(occurrence, target, records)


def fuse_model(request: BuildRequest, model: ImportedModel, target: Target) -> FusedOperators:
    """Return the operators that a build of a model would compile, without building it.

    Raises:
        ModelError: the compiler rejects the model.
    """
    model = dataclasses.replace(model, pipeline=request.pipeline)
    return fuse_operators(request.usable_records(), target, lambda: compiler_in_use().operators(model, target))


def fuse_operators(records: UsableRecords, target: Target, lower: Callable[[], Sequence[Occurrence]]) -> FusedOperators:
    """Return the operators that a build with these schedule records would compile; `lower` is as in `Compiler.fuse`."""
    fused = compiler_in_use().fuse(lower, target, records)
    return dataclasses.replace(fused, notes=records.notes(fused.asked))
