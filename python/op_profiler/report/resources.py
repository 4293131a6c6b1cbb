"""The resources of this machine as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.report.tables import screen

if TYPE_CHECKING:
    from op_profiler.resources.resource import State

_MOST_SHOWN = 8


def show_resources(states: Sequence[State]) -> None:
    """Print what there is of each resource, what is in use, and whether it can be set."""
    from rich.table import Table

    table = Table("resource", "what", "range", "now", "can be set", title="resources", title_justify="left")
    for state in states:
        now = _text(state.value) if state.readable else "unknown"
        table.add_row(state.name, state.description, _range(state.range), now, state.reason or "yes")
    screen().print(table, markup=False)


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
