"""Knobs of AutoTVM's configurations as plain values, and their effect on the loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from op_profiler.compilers.plain_values import plain
from op_profiler.schedules.factors import Factors, factors_of_knobs


def knob_values(config: Any | None) -> dict[str, Any]:
    """Return the knob values of an AutoTVM configuration as plain values; for a fallback configuration, the values that
    its schedule set; empty for None."""
    if config is None:
        return {}
    return {str(name): knob_value(entity) for name, entity in config._entity_map.items()}


def knob_value(entity: Any) -> Any:
    """Return the value of a knob as a plain value: the sizes of a split, the order of a reorder, annotations, or the
    value of any other knob."""
    for field in ("size", "perm", "anns", "val"):
        if hasattr(entity, field):
            value = getattr(entity, field)
            return [plain(v) for v in value] if isinstance(value, (list, tuple)) else plain(value)
    return str(entity)


def factors_of(config: Any, knobs: Mapping[str, Any]) -> Factors:
    """Return the schedule factors of one point of a template's space.

    Args:
        config: AutoTVM's configuration (space or point) after the template used it. op_profiler's templates store the
            description of their loops in it; for TVM's templates the names of the knobs are used.
        knobs: plain values by name, as in `Schedule.knobs`.
    """
    nest = getattr(config, "nest", None)
    return nest.factors(knobs) if nest is not None else factors_of_knobs(knobs)
