"""What can be tuned in a model."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.relax.rules import SUFFIX, anchored
from op_profiler.compilers.relax.tuning.workload import arguments_of
from op_profiler.compilers.relax.vectors import vectors_of
from op_profiler.compilers.tvm_types import Target
from op_profiler.operators.cost import HEAVY
from op_profiler.tuning.candidate import TaskSpec
from op_profiler.tuning.tunable import Tunable


def spec_of(occurrence: Occurrence, target: Target) -> TaskSpec | None:
    """The task of an operator's kernel; None where its rule has no knobs, or it writes several tensors."""
    if occurrence.operator.anchor not in HEAVY or len(occurrence.operator.outputs) != 1:
        return None
    found = anchored(occurrence.function, vectors_of(target))
    if found is None:
        return None
    weights = tuple(place for place, constant in enumerate(occurrence.constant) if constant)
    return TaskSpec(f"{found[0]}{SUFFIX}", (*arguments_of(occurrence.function), weights))


def tunables(occurrences: Sequence[Occurrence], target: Target, keys: Collection[str] | None) -> list[Tunable]:
    """Each operator once, since records of MetaSchedule are for a whole kernel.

    Args:
        keys: as in `Compiler.tunables`.
    """
    found = {}
    for occurrence in occurrences:
        operator = occurrence.operator
        if operator.key in found or (keys is not None and operator.key not in keys):
            continue
        spec = spec_of(occurrence, target)
        if spec is not None:
            found[operator.key] = Tunable(operator, (spec,), spec, (operator.key,))
    return list(found.values())
