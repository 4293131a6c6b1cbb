"""Points from plain values, such as ``{"kind": "dense", "rows": 1, "in_features": 64, "out_features": 10}``.

The names, types and defaults of the values are those of the fields of a kind's class; ``kind`` is `Point.kind`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from op_profiler.errors import UsageError
from op_profiler.operators.kinds import described_classes
from op_profiler.operators.kinds.point import Point

_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "int": ("an integer from 1 on", lambda value: type(value) is int and value >= 1),
    "bool": ("true or false", lambda value: type(value) is bool),
    "str": ("a name", lambda value: isinstance(value, str)),
    "tuple[int, ...]": (
        "a list of integers from 1 on",
        lambda value: isinstance(value, list | tuple) and all(type(size) is int and size >= 1 for size in value),
    ),
}
"""By the type of a field: a description of the allowed values, and a function that checks a value."""


def point_of(values: Mapping[str, Any]) -> Point:
    """Return the point with these values.

    >>> point_of({"kind": "dense", "rows": 1, "in_features": 64, "out_features": 10})
    Dense(rows=1, in_features=64, out_features=10, epilogue='none')

    Raises:
        UsageError: a value is missing or not allowed; the message names the field and what is allowed.
    """
    kinds = {found.kind: found for found in described_classes()}
    given = dict(values)
    kind = given.pop("kind", None)
    if kind not in kinds:
        raise UsageError(f"kind {kind!r} is not one of {', '.join(sorted(kinds))}")
    fields = {field.name: field for field in dataclasses.fields(kinds[kind])}
    for name, value in given.items():
        if name not in fields:
            raise UsageError(f"{kind} has no field {name!r}, but {', '.join(fields)}")
        allowed = _allowed(kinds[kind], fields[name], value)
        if allowed is not None:
            raise UsageError(f"{name} of {kind} is {value!r}; give {allowed}")
    missing = [name for name, one in fields.items() if one.default is dataclasses.MISSING and name not in given]
    if missing:
        raise UsageError(f"{kind} lacks {', '.join(missing)}")
    point = kinds[kind](**{name: tuple(one) if isinstance(one, list) else one for name, one in given.items()})
    problem = point.problem()
    if problem is not None:
        raise UsageError(f"{kind}: {problem}")
    return point


def _allowed(kind: type[Point], field: dataclasses.Field[Any], value: object) -> str | None:
    """Return a description of the allowed values of a field if this value is not allowed; otherwise None."""
    choices = kind.choices.get(field.name)
    if choices is not None:
        return None if isinstance(value, str) and value in choices else f"one of {', '.join(choices)}"
    allowed, fits = _TYPES[str(field.type)]
    return None if fits(value) else allowed
