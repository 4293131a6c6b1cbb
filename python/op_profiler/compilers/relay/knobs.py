"""Knobs of AutoTVM's configurations as plain values, and what they do to the loops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from op_profiler.compilers.plain_values import plain
from op_profiler.schedules.factors import Factors, factors_of_knobs


def knob_values(config: Any | None) -> dict[str, Any]:
    """Knob values of an AutoTVM configuration, as plain values; a fallback's are those that its schedule filled in."""
    if config is None:
        return {}
    return {str(name): knob_value(entity) for name, entity in config._entity_map.items()}


def knob_value(entity: Any) -> Any:
    """Sizes of a split, order of a reorder, annotations, or the value of any other knob."""
    for field in ("size", "perm", "anns", "val"):
        if hasattr(entity, field):
            value = getattr(entity, field)
            return [plain(v) for v in value] if isinstance(value, (list, tuple)) else plain(value)
    return str(entity)


def factors_of(config: Any, knobs: Mapping[str, Any]) -> Factors:
    """The factors of one point of a template's space.

    Args:
        config: AutoTVM's configuration (space or point) after the template ran with it. The project's own templates
            leave the description of their loops there; TVM's are read by the names of their knobs.
        knobs: name to plain value, as in `Schedule.knobs`.
    """
    nest = getattr(config, "nest", None)
    return nest.factors(knobs) if nest is not None else factors_of_knobs(knobs)
