"""The flat table as JSON, one object a line; a missing value is null."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from op_profiler import json_text
from op_profiler.dataset.flat import COLUMNS, Column
from op_profiler.dataset.formats.flat_format import FlatTextFormat, check_columns
from op_profiler.dataset.formats.flat_table import ADDED_LATER, FlatRow
from op_profiler.dataset.formats.format import numbered_lines

_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "real": (int, float),
    "boolean": (bool,),
    "json": (object,),
    "samples": (list,),
}
_LARGEST = 2**63 - 1  # what a database keeps of a whole number


class JsonLines(FlatTextFormat):
    """See the module."""

    def write(self, path: Path, columns: Sequence[Column], rows: Iterable[FlatRow]) -> int:
        count = 0
        with open(path, "w", encoding="utf-8") as file:
            for count, row in enumerate(rows, 1):  # noqa: B007 - the last one is the number of rows
                file.write(json_text.dumps(row, ensure_ascii=False) + "\n")
        return count

    def read(self, path: Path) -> Iterator[tuple[int, FlatRow | None]]:
        for place, (number, line) in enumerate(numbered_lines(path)):
            row = _object(line)
            if place == 0:
                check_columns(path, row or {})
            yield number, None if row is None else _checked(row)


def _object(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _checked(row: dict[str, Any]) -> FlatRow | None:
    """The values of all columns; None where one is missing or of another type than its column."""
    values: FlatRow = {}
    for column in COLUMNS:
        if column.name not in row and column.name not in ADDED_LATER:
            return None
        value = row.get(column.name)
        fits = isinstance(value, _TYPES[column.type]) and (column.type == "boolean" or not isinstance(value, bool))
        small = not isinstance(value, int) or abs(value) <= _LARGEST
        if value is not None and column.type != "json" and not (fits and small):
            return None
        values[column.name] = value
    return values


FORMAT = JsonLines()
