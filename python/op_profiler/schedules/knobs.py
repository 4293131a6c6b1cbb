"""Knobs of AutoTVM's configurations as plain values."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.plain_values import plain


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
