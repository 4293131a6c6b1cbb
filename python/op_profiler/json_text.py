"""JSON text of values and results; NaN and infinities, which JSON lacks, become null."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from collections.abc import Mapping
from pathlib import Path


def dumps(value: object, *, indent: int | None = None, ensure_ascii: bool = True) -> str:
    """Return the text of a value, which every reader of JSON accepts (RFC 8259, which has no NaN).

    An object is what its method ``to_json`` returns; without one, the fields of the dataclass or of the msgspec struct.
    Paths are texts, and times are in ISO 8601.

    Raises:
        TypeError: a value is none of these.
    """
    try:
        return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, allow_nan=False, default=_plain)
    except ValueError:
        return json.dumps(finite(value), indent=indent, ensure_ascii=ensure_ascii, allow_nan=False)


def finite(value: object) -> object:
    """Return the value in plain types, with None in place of numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value if isinstance(value, str | int | None) else finite(_plain(value))


def _plain(value: object) -> object:
    """Of what JSON has no type for: values that may be objects again."""
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
