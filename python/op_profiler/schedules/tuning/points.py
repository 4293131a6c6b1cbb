"""Between points of an AutoTVM space and plain knob values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from op_profiler.schedules._base import Origin, Schedule
from op_profiler.schedules.factors import factors_of
from op_profiler.schedules.record import knob_value, knob_values


def schedule_of(task: Any, index: int, origin: Origin = "trial") -> Schedule:
    """The schedule that a point of a task's space stands for."""
    space = task.config_space
    knobs = {}
    for name, values in space.space_map.items():
        knobs[str(name)] = knob_value(values.entities[index % len(values)])
        index //= len(values)
    return Schedule(str(task.name), knobs, origin, factors_of(space, knobs))


def index_of(task: Any, knobs: Mapping[str, Any]) -> int | None:
    """The point with these knob values; None where the space has none, as it may have changed since."""
    space = task.config_space
    if set(space.space_map) != set(knobs):
        return None
    index, stride = 0, 1
    for name, values in space.space_map.items():
        plain = [knob_value(entity) for entity in values.entities]
        if knobs[name] not in plain:
            return None
        index += plain.index(knobs[name]) * stride
        stride *= len(plain)
    return index


def default_schedule(task: Any, target: Any, origin: Origin = "trial") -> Schedule:
    """The schedule that a template takes without a record."""
    from tvm.autotvm.task.space import FallbackConfigEntity

    config = FallbackConfigEntity()
    with target:
        task.instantiate(config)
    knobs = knob_values(config)
    return Schedule(str(task.name), knobs, origin, factors_of(config, knobs))


def nearest_index(task: Any, knobs: Mapping[str, Any]) -> int | None:
    """The point whose knobs are as close as the space allows; None where the knobs are others or the point is invalid."""
    space = task.config_space
    if set(space.space_map) != set(knobs):
        return None
    index, stride = 0, 1
    for name, values in space.space_map.items():
        plain = [knob_value(entity) for entity in values.entities]
        wanted = knobs[name]
        if wanted in plain:
            place = plain.index(wanted)
        elif isinstance(wanted, (int, float)) and all(isinstance(v, (int, float)) for v in plain):
            place = min(range(len(plain)), key=lambda i: abs(plain[i] - wanted))
        else:
            place = 0
        index += place * stride
        stride *= len(plain)
    return index if space.is_index_valid(index) else None
