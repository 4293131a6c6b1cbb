"""Compilation by Relax: the operators of a model, and the kernels of models and of single operators."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from op_profiler.compilers.compiled_model import BuiltModel, Occurrence
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE
from op_profiler.compilers.relax.decoder import attention, library
from op_profiler.compilers.relax.decoder.step import DecoderStep
from op_profiler.compilers.relax.describe import occurrences_of
from op_profiler.compilers.relax.finished import FinishedKernels, built_model, finished_kernels, launches_of
from op_profiler.compilers.relax.other_pipelines import run_pipeline
from op_profiler.compilers.relax.pipeline import lower
from op_profiler.compilers.relax.plan import plan_of
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.errors import ModelError

if TYPE_CHECKING:
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.relax.pipeline import LoweredModule
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.schedules.usable_records import UsableRecords

_ERRORS = (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError, AssertionError, IndexError)
"""Errors of TVM's passes for unsupported models."""


def operators(model: ImportedModel, target: Target) -> list[Occurrence]:
    """Lower with the model's pipeline and return the calls of kernels."""
    return _called(_lowered(model, target), model.pipeline)


def build(model: ImportedModel, target: Target, records: UsableRecords) -> BuiltModel:
    """Compile a model with its pipeline; for a step of a decoder, also compile the attention kernels."""
    started, pipeline = time.perf_counter(), model.pipeline
    with _refused(model.name):
        if pipeline == DEFAULT_PIPELINE:
            lowered = _lowered(model, target)
            finished = finished_kernels(lowered.kernels, pipeline, target, records)
        else:
            other = run_pipeline(pipeline, model.mod, target, build=True)
            lowered = other.lowered
            finished = FinishedKernels(other.executable, launches=launches_of(lowered.kernels, target))
    built = built_model(finished, lowered.kernels, model, _called(lowered, pipeline), started)
    return _with_attention(built, model, target)


def build_operator(model: ImportedModel, occurrence: Occurrence, target: Target, records: UsableRecords) -> BuiltModel:
    """Compile an operator; raise ModelError if a schedule record no longer fits the kernel.

    Args:
        model: the operator as a model.
        occurrence: the operator as a call in the model that contains it.
    """
    started = time.perf_counter()
    with _refused(model.name):
        finished = finished_kernels(model.mod, model.pipeline, target, records)
    if finished.refused:
        raise ModelError(f"the record of {model.name} no longer fits its kernel; tune it again")
    return built_model(finished, model.mod, model, [occurrence], started)


def _lowered(model: ImportedModel, target: Target) -> LoweredModule:
    with _refused(model.name):
        if model.pipeline == DEFAULT_PIPELINE:
            return lower(model.mod, target)
        return run_pipeline(model.pipeline, model.mod, target, build=False).lowered


def _called(lowered: LoweredModule, pipeline: str) -> list[Occurrence]:
    """Return the operators whose kernels are called; a reshape is a view without a kernel."""
    step = DecoderStep.of(lowered.kernels)
    of_attention = [] if step is None else attention.calls(step)
    called = {call.label for call in plan_of(lowered.kernels).calls} | {call.label for call in of_attention}
    found = [occurrence for occurrence in occurrences_of(lowered, of_attention) if occurrence.label in called]
    return [dataclasses.replace(occurrence, pipeline=pipeline) for occurrence in found]


def _with_attention(built: BuiltModel, model: ImportedModel, target: Target) -> BuiltModel:
    """Return the build with the kernels of attention if it is a step of a decoder; these kernels have no records."""
    step = DecoderStep.of(model.mod)
    if step is None:
        return built
    started, is_ours = time.perf_counter(), model.pipeline == DEFAULT_PIPELINE
    kernels, schedules = attention.scheduled(step.decoder, target) if is_ours else (attention.kernels(step.decoder), {})
    with _refused(model.name):
        made = library.with_attention(built, step, kernels, schedules, target)
    seconds = built.compiled.build_seconds + time.perf_counter() - started
    return dataclasses.replace(made, compiled=dataclasses.replace(made.compiled, build_seconds=seconds))


@contextlib.contextmanager
def _refused(name: str) -> Iterator[None]:
    """Convert errors with which TVM rejects a model to a ModelError that names the model."""
    try:
        yield
    except _ERRORS as error:
        raise ModelError(f"{name} does not compile: {last_line(error)}") from error
