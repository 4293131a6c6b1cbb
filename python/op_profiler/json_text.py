"""Converts values and results to JSON, in which NaN and infinities become null, and to a short `repr`."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from collections.abc import Mapping
from pathlib import Path

_MOST_LINES, _MOST_ENTRIES, _LONGEST = 17, 8, 100
"""Limits of a `repr`: lines between its first and last one, entries of a value, and characters of a value."""


def dumps(value: object, *, indent: int | None = None, ensure_ascii: bool = True) -> str:
    """Return a value as JSON that every reader accepts (RFC 8259, which has no NaN).

    An object is replaced by the result of its method ``to_json``, or else by the fields of the dataclass or msgspec
    struct. Paths become text, and times become text in ISO 8601.

    Raises:
        TypeError: a value is of another type.
    """
    try:
        return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, allow_nan=False, default=_plain)
    except ValueError:
        return json.dumps(finite(value), indent=indent, ensure_ascii=ensure_ascii, allow_nan=False)


def brief(result: object) -> str:
    """Return a ``repr`` of a result in at most twenty lines; a value with many entries is shown as their number."""
    values = _plain(result)
    assert isinstance(values, dict)
    lines = [f"{name}={_short(value)}" for name, value in values.items()]
    left = [f"... and {len(lines) - _MOST_LINES} more"] if len(lines) > _MOST_LINES else []
    return f"{type(result).__name__}(" + ",".join(f"\n    {line}" for line in lines[:_MOST_LINES] + left) + "\n)"


def _short(value: object) -> str:
    if isinstance(value, Mapping | list | tuple):
        inside = [one for item in value.items() for one in item] if isinstance(value, Mapping) else value
        if len(value) > _MOST_ENTRIES or not all(isinstance(one, str | int | float | None) for one in inside):
            return f"<{len(value)} entries>"
    elif not isinstance(value, str | int | float | None):
        return f"<{type(value).__name__}>"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def finite(value: object) -> object:
    """Return a value in JSON-serializable types, with None in place of NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value if isinstance(value, str | int | None) else finite(_plain(value))


def _plain(value: object) -> object:
    """Return a replacement for a value for which JSON has no type; it may contain further objects."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="seconds")
    if hasattr(value, "to_json"):
        return value.to_json()
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if names := getattr(value, "__struct_fields__", ()):
        return {name: getattr(value, name) for name in names}
    raise TypeError(f"{type(value).__name__} has no form in JSON")
