"""The files that ``op-profiler export`` writes as Parquet or CSV, read back into a dataset.

Every row is checked against the keys that it carries: what does not give the same workload key, schedule key and device
key is not what was exported, and is counted instead of stored.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Table, Text

from op_profiler.dataset.convert import build
from op_profiler.dataset.export import read_parquet
from op_profiler.dataset.flat import COLUMNS
from op_profiler.dataset.row import Row
from op_profiler.dataset.schema import devices, operators, schedules, settings
from op_profiler.errors import DatasetError
from op_profiler.measure.measurement import Device, Measurement, Settings
from op_profiler.operators.operator import Operator
from op_profiler.schedules.schedule import Schedule

FlatRow = dict[str, Any]

_EMPTY_TEXT = {
    column.info["flat"]
    for table in (operators, schedules, settings, devices)
    for column in table.columns
    if isinstance(column.type, Text) and not column.nullable
}
"""Columns whose empty cells are empty text in CSV, not a missing value."""
_INFINITE = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}
_FIRST_READABLE = 3  # version of the tables
_ADDED_LATER = frozenset(column.name for column in COLUMNS if column.since > _FIRST_READABLE)
"""Columns that files of earlier versions do not have; their values are then unknown."""


def read_flat(path: Path, *, format: str) -> Iterator[tuple[int, FlatRow | None]]:
    """The rows of a file with their numbers from 1; None for a row that is cut off or holds cells of another type.

    Args:
        format: ``parquet`` or ``csv``.

    Raises:
        DatasetError: it cannot be read, or lacks columns; says which.
        MissingPackageError: Parquet without pyarrow.
    """
    return iter(enumerate(_parquet(path), 1)) if format == "parquet" else _csv(path)


def _parquet(path: Path) -> list[FlatRow]:
    try:
        rows = read_parquet(path)
    except ValueError as error:  # text that is no JSON where the flat table has nested values
        raise DatasetError(f"{path} is no file of 'op-profiler export': {error}") from error
    from pyarrow import parquet  # `read_parquet` has said what to do where it is missing

    _check_columns(path, dict.fromkeys(parquet.read_schema(path).names))
    return [dict.fromkeys(_ADDED_LATER) | row for row in rows]


def _csv(path: Path) -> Iterator[tuple[int, FlatRow | None]]:
    limit = csv.field_size_limit(sys.maxsize)  # one cell holds all samples of a measurement
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            _check_columns(path, dict.fromkeys(reader.fieldnames or ()))
            for number, row in enumerate(reader, 1):
                yield number, _decoded(row)
    except OSError as error:
        raise DatasetError(f"{path} cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{path} is no CSV text: {error}") from error
    finally:
        csv.field_size_limit(limit)


def _check_columns(path: Path, found: Mapping[str | Any, Any]) -> None:
    names = [column.name for column in COLUMNS if column.name not in _ADDED_LATER]
    missing = [name for name in names if name not in found]
    if missing:
        named = ", ".join(missing[:6]) + (f" and {len(missing) - 6} more" if len(missing) > 6 else "")
        raise DatasetError(
            f"{path} has other columns than 'op-profiler export' writes: {named} missing; "
            "'op-profiler export --columns' lists all"
        )


def _decoded(row: Mapping[str, str | None]) -> FlatRow | None:
    """Values from the cells of a line; None where the line is cut off."""
    values: FlatRow = {}
    read: dict[str, Any] = {"text": str, "integer": int, "real": float}
    for column in COLUMNS:
        cell = row.get(column.name, "") if column.name in _ADDED_LATER else row[column.name]
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


def operator_of_row(row: FlatRow) -> Operator:
    """The operator of a row.

    Raises:
        ValueError, TypeError, KeyError: cells that hold no operator.
    """
    return build(Operator, {**row, "name": row["operator_name"], "attrs": [_finite(attrs) for attrs in row["attrs"]]})


def row_of(flat: FlatRow) -> tuple[Operator, Row]:
    """Operator and measurement of a row.

    Raises:
        ValueError, TypeError, KeyError: cells that hold none, or that contradict the row's keys.
    """
    operator = operator_of_row(flat)
    schedule, device = build(Schedule, _row_in(schedules, flat)), build(Device, _row_in(devices, flat))
    for name, key in (("operator", operator.key), ("schedule", schedule.key), ("device", device.key)):
        if key != flat[f"{name}_key"]:
            raise ValueError(f"its {name} has the key {key}, not {flat[f'{name}_key']}")
    row = Row(
        operator_key=operator.key,
        schedule=schedule,
        settings=build(Settings, flat),
        device=device,
        measurement=build(Measurement, flat),
        model_key=flat["model_key"] or "",
        complete=bool(flat["complete"]),
    )
    return operator, row


def _row_in(table: Table, flat: FlatRow) -> FlatRow:
    """The row of a table of `schema`, by the names that its columns have there."""
    return {column.name: flat[column.info["flat"]] for column in table.columns if column.doc}


def _finite(value: Any) -> Any:
    """The numbers that JSON does not know, which come as text out of the flat table."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return _INFINITE.get(value, value) if isinstance(value, str) else value
