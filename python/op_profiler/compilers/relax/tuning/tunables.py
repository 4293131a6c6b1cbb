"""Finds the kernels of a model that can be tuned, and creates their tasks."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.relax.rules import SUFFIX, schedule_function, template_of
from op_profiler.compilers.relax.tuning.automatic import PREFIX, sketches
from op_profiler.compilers.relax.tuning.workload import arguments_of, module_of
from op_profiler.compilers.relax.vectors import vectors_of
from op_profiler.compilers.tvm_types import Target
from op_profiler.operators.cost import HEAVY
from op_profiler.tuning.candidate import TaskSpec
from op_profiler.tuning.tunable import Tunable

AUTOMATIC = "automatic"
"""Name of MetaSchedule's own space in `Compiler.spaces`."""


def spec_of(occurrence: Occurrence, target: Target) -> TaskSpec | None:
    """Return the task of an operator's kernel; None if the rule that fits the kernel has no knobs, or if the kernel
    writes several tensors."""
    if not _is_one(occurrence):
        return None
    vectors = vectors_of(target)
    name = schedule_function(occurrence.function, vectors)[1].template
    if template_of(occurrence.function, vectors, name.removesuffix(SUFFIX)) is None:
        return None
    return TaskSpec(name, _arguments(occurrence))


def automatic_specs(occurrence: Occurrence, target: Target) -> tuple[TaskSpec, ...]:
    """Return a task for each of MetaSchedule's sketches of an operator's kernel; empty if it writes several tensors."""
    if not _is_one(occurrence):
        return ()
    arguments = _arguments(occurrence)
    found = sketches(module_of(arguments), target)
    return tuple(TaskSpec(f"{PREFIX}{number}", (*arguments, sketch)) for number, sketch in enumerate(found))


def _is_one(occurrence: Occurrence) -> bool:
    """Return whether an operator is a separate kernel that writes one tensor, because a search compares one tensor."""
    return occurrence.function is not None and len(occurrence.operator.outputs) == 1


def _arguments(occurrence: Occurrence) -> tuple[object, ...]:
    """Return the function and the positions of the weights among its arguments."""
    weights = tuple(place for place, constant in enumerate(occurrence.constant) if constant)
    return (*arguments_of(occurrence.function), weights)


def tunables(
    occurrences: Sequence[Occurrence], target: Target, keys: Collection[str] | None, space: str
) -> list[Tunable]:
    """Return each tunable kernel once. Kernels that differ only in a constant are separate, because MetaSchedule's
    records distinguish them, although their workload keys are equal.

    Args:
        keys, space: as in `Compiler.tunables`.
    """
    found: dict[tuple[str, str], Tunable] = {}
    for occurrence in occurrences:
        operator, same = occurrence.operator, (occurrence.operator.key, occurrence.label)
        if same in found or (keys is not None and operator.key not in keys):
            continue
        default = spec_of(occurrence, target)
        if space != AUTOMATIC:
            tasks: tuple[TaskSpec, ...] = () if default is None else (default,)
        elif default is not None or operator.anchor in HEAVY:
            tasks = automatic_specs(occurrence, target)
        else:
            tasks = ()
        if tasks:
            found[same] = Tunable(operator, tasks, default, (operator.key,))
    return list(found.values())
