"""The flat table as JSON, one object per line; a missing value is null."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from op_profiler import json_text
from op_profiler.dataset.flat import Column
from op_profiler.dataset.formats.flat_table import FlatRow, FlatTextFormat, check_columns, row_values
from op_profiler.dataset.formats.format import numbered_lines

_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "real": (int, float),
    "boolean": (bool,),
    "samples": (list,),
}
_LARGEST = 2**63 - 1  # what a database keeps of a whole number


class JsonLines(FlatTextFormat):
    """The format ``jsonl``: the flat table as JSON, one object per line."""

    def writer(self, file: TextIO, columns: Sequence[Column]) -> Callable[[FlatRow], object]:
        """Return a function that writes a row as one line of JSON."""
        return lambda row: file.write(json_text.dumps(row, ensure_ascii=False) + "\n")

    def read(self, path: Path) -> Iterator[tuple[int, FlatRow | None]]:
        """Yield the rows of a JSON Lines file; None for a line that is no object or whose values are not valid."""
        for place, (number, line) in enumerate(numbered_lines(path)):
            row = _object(line)
            if place == 0:
                check_columns(path, row or {})
            yield number, None if row is None else row_values(row, _checked)


def _object(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _checked(column: Column, value: Any) -> Any:
    """Return the value; raise ValueError if its type is not that of the column."""
    if value is None or column.type == "json":
        return value
    fits = isinstance(value, _TYPES[column.type]) and (column.type == "boolean" or not isinstance(value, bool))
    if not fits or (isinstance(value, int) and abs(value) > _LARGEST):
        raise ValueError(f"{column.name} holds another type")
    return value


FORMAT = JsonLines()
