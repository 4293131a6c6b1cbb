"""The flat table in CSV, a line a row, names of the columns first.

An empty cell is a missing value; nested values are JSON.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Text

from op_profiler import json_text
from op_profiler.dataset.flat import COLUMNS, Column
from op_profiler.dataset.formats.flat_format import FlatTextFormat, check_columns
from op_profiler.dataset.formats.flat_table import ADDED_LATER, FlatRow
from op_profiler.dataset.schema import devices, operators, schedules, settings
from op_profiler.errors import DatasetError

_EMPTY_TEXT = {
    column.info["flat"]
    for table in (operators, schedules, settings, devices)
    for column in table.columns
    if isinstance(column.type, Text) and not column.nullable
}
"""Columns whose empty cells are empty text, not a missing value."""


class Csv(FlatTextFormat):
    """See the module."""

    def write(self, path: Path, columns: Sequence[Column], rows: Iterable[FlatRow]) -> int:
        count = 0
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(column.name for column in columns)
            for count, row in enumerate(rows, 1):  # noqa: B007 - the last one is the number of rows
                writer.writerow(_cell(column, row[column.name]) for column in columns)
        return count

    def read(self, path: Path) -> Iterator[tuple[int, FlatRow | None]]:
        limit = csv.field_size_limit(sys.maxsize)  # one cell holds all samples of a measurement
        try:
            with open(path, newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                check_columns(path, dict.fromkeys(reader.fieldnames or ()))
                for number, row in enumerate(reader, 1):
                    yield number, _decoded(row)
        except OSError as error:
            raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error
        except (UnicodeDecodeError, csv.Error) as error:
            raise DatasetError(f"{path} is no CSV text: {error}") from error
        finally:
            csv.field_size_limit(limit)


def _cell(column: Column, value: Any) -> Any:
    if value is None:
        return ""
    return value if column.type in ("text", "integer", "real") else json_text.dumps(value)


def _decoded(row: Mapping[str, str | None]) -> FlatRow | None:
    """Values from the cells of a line; None where the line is cut off."""
    values: FlatRow = {}
    read: dict[str, Any] = {"text": str, "integer": int, "real": float}
    for column in COLUMNS:
        cell = row.get(column.name, "") if column.name in ADDED_LATER else row[column.name]
        if cell is None or None in row:
            return None
        if not cell:
            values[column.name] = "" if column.name in _EMPTY_TEXT else None
            continue
        try:
            values[column.name] = read.get(column.type, json.loads)(cell)
        except ValueError:
            return None
    return values


FORMAT = Csv()
