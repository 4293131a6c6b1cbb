"""Tables of a machine: its properties and its resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.option_values import size_text
from op_profiler.report.tables import screen, show_table, texts

if TYPE_CHECKING:
    from op_profiler.resources.resource import State

_MOST_SHOWN = 8


def show_properties(title: str, fields: Mapping[str, Any]) -> None:
    """Print the known properties of a machine or a build, one per line; a nested property has a line for each of its
    parts."""
    show_table(screen(), title, texts("property", "value"), [list(row) for row in _properties(fields)])


def _properties(fields: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in fields.items():
        if isinstance(value, Mapping):
            yield from _properties({f"{name}.{part}": one for part, one in value.items() if part != "flags"})
        elif value is None or value == "":
            yield name, "unknown"
        elif name.endswith("_bytes"):
            yield name.removesuffix("_bytes"), size_text(value)
        else:
            values = value if isinstance(value, (list, tuple)) else [value]
            yield name, " ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in values)


def show_resources(states: Sequence[State]) -> None:
    """Print the range and the present value of each resource of the machine, and whether the resource can be set."""
    rows = []
    for state in states:
        now = _text(state.value) if state.readable else "unknown"
        rows.append([state.name, state.description, _range(state.range), now, state.reason or "yes"])
    show_table(screen(), "resources", texts("resource", "what", "range", "now", "can be set"), rows)


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
