"""Rows of the flat table, read back into a dataset.

Every row is checked against the keys that it carries: what does not give the same workload key, schedule key and device
key is not what was exported, and is counted instead of stored.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from sqlalchemy import DefaultClause, Table

from op_profiler.dataset.convert import build
from op_profiler.dataset.flat import COLUMNS
from op_profiler.dataset.row import Row
from op_profiler.dataset.schema import devices, schedules
from op_profiler.measure.measurement import Device, Measurement, Settings
from op_profiler.operators.cost import size_bytes
from op_profiler.operators.operator import Operator
from op_profiler.schedules.schedule import Schedule

FlatRow = dict[str, Any]

_INFINITE = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}
_FIRST_READABLE = 3  # version of the tables
ADDED_LATER = frozenset(column.name for column in COLUMNS if column.since > _FIRST_READABLE)
"""Columns that files of earlier versions do not have; their values are then unknown."""


def operator_of_row(row: FlatRow) -> Operator:
    """The operator of a row.

    Raises:
        ValueError, TypeError, KeyError: cells that hold no operator.
    """
    operator = build(
        Operator, {**row, "name": row["operator_name"], "attrs": [_finite(attrs) for attrs in row["attrs"]]}
    )
    if len(operator.inputs_read) == len(operator.inputs):
        return operator
    # Rows from before 2026-11-25 count fields of tuples that nothing takes.
    most = sum(size_bytes(tensor) for tensor in (*operator.inputs_read, *operator.params))
    return dataclasses.replace(operator, bytes_read=min(operator.bytes_read, most))


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
        measured_at=flat["measured_at"],
    )
    return operator, row


def _row_in(table: Table, flat: FlatRow) -> FlatRow:
    """The row of a table of `schema`, by the names that its columns have there; what files from before a column do not
    tell is what datasets from before it got."""
    found = {column.name: flat[column.info["flat"]] for column in table.columns if column.doc}
    given = {column.name: column.server_default for column in table.columns if not column.nullable}
    return {
        name: default.arg if value is None and isinstance(default := given.get(name), DefaultClause) else value
        for name, value in found.items()
    }


def _finite(value: Any) -> Any:
    """The numbers that JSON does not know, which come as text out of the flat table."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return _INFINITE.get(value, value) if isinstance(value, str) else value
