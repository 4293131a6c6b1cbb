"""Converts targets to the form of this TVM: a table instead of a line of options."""

from __future__ import annotations

import json
from typing import Any

_NUMBERS = ("num-cores", "opt-level", "vector-width")
_LISTS = ("mattr", "keys", "libs")
_OF_KIND: dict[str, dict[str, Any]] = {
    "cuda": {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152, "thread_warp_size": 32}
}
"""Attributes that schedules need and every NVIDIA GPU has."""


def fields_of(text: str) -> dict[str, Any]:
    """Return the fields of a target for options such as ``llvm -mcpu=znver4 -mattr=+avx2``.

    Raises:
        ValueError: the text is not valid JSON, or an option is not of the form ``-name=value``.
    """
    if text.startswith("{"):  # as TVM writes a target
        fields: dict[str, Any] = json.loads(text)
        return fields
    kind, *options = text.split()
    fields = {"kind": kind, **_OF_KIND.get(kind, {})}
    for option in options:
        name, equals, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not equals:
            raise ValueError(f"{option} is no option of the form -name=value")
        fields[name] = int(value) if name in _NUMBERS else value.split(",") if name in _LISTS else value
    return fields
