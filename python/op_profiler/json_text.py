"""JSON for others to read: numbers that JSON does not know (NaN, infinities) are null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping


def dumps(value: object, *, indent: int | None = None, ensure_ascii: bool = True) -> str:
    """The text of plain values; every reader of JSON takes it (RFC 8259, which has no NaN)."""
    try:
        return json.dumps(value, indent=indent, ensure_ascii=ensure_ascii, allow_nan=False)
    except ValueError:
        return json.dumps(finite(value), indent=indent, ensure_ascii=ensure_ascii, allow_nan=False)


def finite(value: object) -> object:
    """The same plain value with None in place of numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value
