"""The flat table as CSV: a header with the names of the columns, then one line per row.

An empty cell is a missing value; nested values are JSON.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from sqlalchemy import Text

from op_profiler import json_text
from op_profiler.dataset.flat import Column
from op_profiler.dataset.formats.flat_table import FlatRow, FlatTextFormat, check_columns, row_values
from op_profiler.dataset.schema import devices, operators, schedules, settings
from op_profiler.errors import DatasetError

_EMPTY_TEXT = {
    column.info["flat"]
    for table in (operators, schedules, settings, devices)
    for column in table.columns
    if isinstance(column.type, Text) and not column.nullable
}
"""Columns whose empty cells are empty text, not a missing value."""
_READ: dict[str, Callable[[str], Any]] = {"text": str, "integer": int, "real": float}


class Csv(FlatTextFormat):
    """The format ``csv``: the flat table as CSV, with a header line."""

    def writer(self, file: TextIO, columns: Sequence[Column]) -> Callable[[FlatRow], object]:
        """Write the header line, and return a function that writes a row."""
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(column.name for column in columns)
        return lambda row: writer.writerow(_cell(column, row[column.name]) for column in columns)

    def read(self, path: Path) -> Iterator[tuple[int, FlatRow | None]]:
        """Yield the rows of a CSV file; a row with a wrong number of cells or a cell of another type is None."""
        limit = csv.field_size_limit(sys.maxsize)  # one cell holds all samples of a measurement
        try:
            with open(path, newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                check_columns(path, dict.fromkeys(reader.fieldnames or ()))
                for number, row in enumerate(reader, 1):
                    cut_off = None in row or None in row.values()
                    yield number, None if cut_off else row_values(row, _value)
        except OSError as error:
            raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error
        except (UnicodeDecodeError, csv.Error) as error:
            raise DatasetError(f"{path} is no CSV text: {error}") from error
        finally:
            csv.field_size_limit(limit)


def _cell(column: Column, value: Any) -> Any:
    if value is None:
        return ""
    return value if column.type in _READ else json_text.dumps(value)


def _value(column: Column, cell: str | None) -> Any:
    """Return the value in a cell; raise ValueError if it is not of the column's type."""
    if not cell:
        return "" if column.name in _EMPTY_TEXT else None
    return _READ.get(column.type, json.loads)(cell)


FORMAT = Csv()
