"""Between points of an AutoTVM space and plain knob values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from op_profiler.compilers.tvm_types import Target
from op_profiler.schedules.factors import factors_of
from op_profiler.schedules.knobs import knob_value, knob_values
from op_profiler.schedules.records import Record
from op_profiler.schedules.schedule import Origin, Schedule
from op_profiler.tuning.candidate import Candidate, TaskSpec

_NO_POINT = -1
"""AutoTVM's index of a configuration that is no point of a space: what a template takes without a record."""


def schedule_of(task: Any, index: int, origin: Origin = "trial") -> Schedule:
    """The schedule that a point of a task's space stands for."""
    space = task.config_space
    knobs = {}
    for name, values in space.space_map.items():
        knobs[str(name)] = knob_value(values.entities[index % len(values)])
        index //= len(values)
    return Schedule(str(task.name), knobs, origin, factors_of(space, knobs))


def index_of(task: Any, knobs: Mapping[str, Any], *, nearest: bool = False) -> int | None:
    """The valid point with these knob values; None where there is none, as the space may have changed since.

    Args:
        nearest: take the closest value that a knob can have where it cannot have the wanted one.
    """
    space = task.config_space
    if set(space.space_map) != set(knobs):
        return None
    index, stride = 0, 1
    for name, values in space.space_map.items():
        known = [knob_value(entity) for entity in values.entities]
        place = _place(known, knobs[name], nearest)
        if place is None:
            return None
        index += place * stride
        stride *= len(known)
    return index if space.is_index_valid(index) else None


def candidate_of(record: Record, specs: Iterable[TaskSpec], target: Target) -> Candidate | None:
    """The candidate that a record stands for; None where no task is the record's, or its space has no such point."""
    for spec in specs:
        if (spec.template, spec.arguments) != (record.template, record.arguments):
            continue
        if int(record.config.get("index", _NO_POINT)) == _NO_POINT:
            return Candidate(spec, None)
        index = index_of(spec.create(target), record.knobs)
        return Candidate(spec, index) if index is not None else None
    return None


def _place(known: list[Any], wanted: Any, nearest: bool) -> int | None:
    if wanted in known:
        return known.index(wanted)
    if not nearest:
        return None
    if all(isinstance(v, (int, float)) for v in [*known, wanted]):
        return min(range(len(known)), key=lambda i: abs(known[i] - wanted))
    return 0


def default_schedule(task: Any, target: Target, origin: Origin = "trial") -> Schedule:
    """The schedule that a template takes without a record."""
    from tvm.autotvm.task.space import FallbackConfigEntity

    config = FallbackConfigEntity()
    with target:
        task.instantiate(config)
    knobs = knob_values(config)
    return Schedule(str(task.name), knobs, origin, factors_of(config, knobs))
