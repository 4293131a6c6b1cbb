"""Creates a built model, its schedules and its code from lowered kernels."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.compiled_model import BuiltModel, CompiledModel, Launch, Occurrence
from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE
from op_profiler.compilers.relax import gpu
from op_profiler.compilers.relax.code import Code, code_of
from op_profiler.compilers.relax.library import VmLibrary
from op_profiler.compilers.relax.pipeline import finish, scheduled
from op_profiler.compilers.relax.plan import plan_of
from op_profiler.compilers.relax.tuning.applied_records import AppliedRecords
from op_profiler.compilers.relax.vectors import vectors_of
from op_profiler.compilers.tvm_types import IRModule, Target
from op_profiler.schedules.schedule import Schedule
from op_profiler.schedules.usable_records import UsableRecords


@dataclasses.dataclass(frozen=True)
class FinishedKernels:
    """Compiled kernels, with their schedules, code and launches.

    Attributes:
        executable: ``relax.VMExecutable``.
        schedules: schedule of each kernel by label; empty if a pipeline other than the default scheduled the kernels.
        asked: computations for which schedule records were looked up.
        refused: the computations in `asked` whose record no longer fits.
        code: code of the kernels that op_profiler scheduled.
        launches: by label, as in `CompiledModel`.
    """

    executable: Any
    schedules: dict[str, Schedule] = dataclasses.field(default_factory=dict)
    asked: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()
    code: Code = dataclasses.field(default_factory=Code)
    launches: dict[str, list[Launch]] = dataclasses.field(default_factory=dict)


def finished_kernels(kernels: IRModule, pipeline: str, target: Target, records: UsableRecords) -> FinishedKernels:
    """Schedule and compile kernels. Kernels from pipelines other than the default are already scheduled and are only
    compiled. No schedule records are looked up for GPUs."""
    if pipeline != DEFAULT_PIPELINE:
        return FinishedKernels(finish(kernels, target), launches=launches_of(kernels, target))
    if gpu.is_gpu(target):
        module, schedules = scheduled(kernels, target)
        code, launches = code_of(module, target), launches_of(module, target)
        return FinishedKernels(finish(module, target), schedules, code=code, launches=launches)
    applied = AppliedRecords(records, vectors_of(target))
    module, schedules = scheduled(kernels, target, applied.schedule_function)
    code = code_of(module, target)
    return FinishedKernels(
        finish(module, target), schedules, frozenset(applied.asked), frozenset(applied.refused), code
    )


def launches_of(kernels: IRModule, target: Target) -> dict[str, list[Launch]]:
    """Return the GPU launches of scheduled kernels by name; empty for a processor."""
    return gpu.launches_of(kernels) if gpu.is_gpu(target) else {}


def built_model(
    finished: FinishedKernels,
    kernels: IRModule,
    model: ImportedModel,
    occurrences: Sequence[Occurrence],
    started: float,
) -> BuiltModel:
    """Return a built model that consists of compiled kernels.

    Args:
        kernels: the kernels to which the model was lowered.
        started: start of the build, by `time.perf_counter`.
    """
    pipeline = model.pipeline
    by_label = {occurrence.label: occurrence for occurrence in reversed(occurrences)}
    plan = plan_of(kernels, [one.name for one in model.inputs])
    notes: tuple[str, ...] = ()
    if pipeline != DEFAULT_PIPELINE:
        notes = (f"its kernels are those of the pipeline {pipeline}",)
    elif finished.refused:
        notes = (f"records that no longer fit, of kernels built by default: {len(finished.refused)}; tune again",)
    compiled = CompiledModel(
        VmLibrary(finished.executable, finished.executable.mod, plan.weights),
        tuple(occurrences),
        by_label,
        time.perf_counter() - started,
        "graph",
        calls=plan.calls,
        tensors=plan.tensors,
        outputs=plan.outputs,
        launches=finished.launches,
        loops=finished.code.loops,
        code=finished.code.text,
        notes=notes,
    )
    other = Schedule(f"{pipeline}.relax")
    of_operators = {one.operator.key: finished.schedules.get(label, other) for label, one in by_label.items()}
    return BuiltModel(compiled, of_operators, finished.asked, finished.refused)
