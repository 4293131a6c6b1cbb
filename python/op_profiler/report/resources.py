"""The table of this machine's resources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.report.tables import numbers, screen, show_table, texts

if TYPE_CHECKING:
    from op_profiler.resources.resource import State

_MOST_SHOWN = 8


def show_resources(states: Sequence[State]) -> None:
    """Print what there is of each resource, what is in use, and whether it can be set."""
    rows = []
    for state in states:
        now = _text(state.value) if state.readable else "unknown"
        rows.append([state.name, state.description, _range(state.range), now, state.reason or "yes"])
    show_table(screen(), "resources", [*numbers("resource"), *texts("what", "range", "now", "can be set")], rows)


def _range(found: list[Any] | dict[str, int] | None) -> str:
    if found is None:
        return "-"
    if isinstance(found, dict):
        return f"{found['least']} to {found['most']}"
    shown = [str(value) for value in found]
    if len(shown) > _MOST_SHOWN:
        return f"{shown[0]}, {shown[1]}, ... {shown[-1]} ({len(shown)} values)"
    return ", ".join(shown)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "as it comes" if value is None else str(value)
