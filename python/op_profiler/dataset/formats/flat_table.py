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

from op_profiler.dataset.convert import build
from op_profiler.dataset.export import read_parquet
from op_profiler.dataset.flat import COLUMNS
from op_profiler.dataset.row import Row
from op_profiler.errors import DatasetError
from op_profiler.measure.measurement import RESOURCE_FIELDS, Device, Measurement, Settings, effective
from op_profiler.operators.operator import Operator
from op_profiler.schedules.factors import NAMES as FACTORS
from op_profiler.schedules.schedule import Schedule

FlatRow = dict[str, Any]

_NOT_NULL = {
    *("structure", "template", "cache", "cache_mechanism", "parallel_type", "precision", "executor", "core_type"),
    *("device_kind", "target", "processor", "tvm_version", "host_fingerprint"),
}
_RENAMED = {"name": "operator_name", "kind": "device_kind", "properties": "device_properties"}
_INFINITE = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


ADDED_LATER = (
    "timing_details",
    "error_cause",
    "settled",
    "machine_id",
    "energy_cache",
    "call_overhead_us",
    *RESOURCE_FIELDS,
    *map(effective, RESOURCE_FIELDS),
)
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
    return [dict.fromkeys(ADDED_LATER) | row for row in rows]


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
    names = [column.name for column in COLUMNS if column.name not in ADDED_LATER]
    missing = [name for name in names if name not in found]
    if missing:
        shown = ", ".join(missing[:6]) + (f" and {len(missing) - 6} more" if len(missing) > 6 else "")
        raise DatasetError(
            f"{path} has other columns than 'op-profiler export' writes: {shown} missing; "
            "'op-profiler export --columns' lists all"
        )


def _decoded(row: Mapping[str, str | None]) -> FlatRow | None:
    """Values from the cells of a line; None where the line is cut off."""
    values: FlatRow = {}
    read: dict[str, Any] = {"text": str, "integer": int, "real": float}
    for column in COLUMNS:
        cell = row.get(column.name, "") if column.name in ADDED_LATER else row[column.name]
        if cell is None or None in row:
            return None
        if not cell:
            values[column.name] = "" if column.name in _NOT_NULL else None
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
    renamed = {**row, "name": row["operator_name"], "attrs": [_finite(attrs) for attrs in row["attrs"]]}
    return build(Operator, renamed)


def row_of(flat: FlatRow) -> tuple[Operator, Row]:
    """Operator and measurement of a row.

    Raises:
        ValueError, TypeError, KeyError: cells that hold none, or that contradict the row's keys.
    """
    operator = operator_of_row(flat)
    factors = {f"factor_{name}": flat[name] for name in FACTORS}
    schedule = build(Schedule, {**flat, **factors})
    device = build(Device, {**flat, **{name: flat[_RENAMED[name]] for name in ("kind", "properties")}})
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


def _finite(value: Any) -> Any:
    """The numbers that JSON does not know, which come as text out of the flat table."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return _INFINITE.get(value, value) if isinstance(value, str) else value
