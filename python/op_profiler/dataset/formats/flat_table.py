"""Base classes of the formats that contain the complete flat table, and the import of its rows and models.

The workload, schedule and device keys of every row are computed again from its cells. A row whose keys differ from the
keys in the file was changed after the export; it is counted as unreadable, not stored.
"""

from __future__ import annotations

import abc
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from sqlalchemy import Connection, DefaultClause, Table

from op_profiler.dataset import convert, keys, schema
from op_profiler.dataset.convert import build
from op_profiler.dataset.flat import COLUMNS, TABLES, Column, flat_rows, flat_table
from op_profiler.dataset.formats.format import Exported, Format, Imported, Progress
from op_profiler.dataset.formats.importing import CHUNK, SHOWN, RowChecks
from op_profiler.dataset.row import Row
from op_profiler.dataset.statements import upsert
from op_profiler.dataset.store import Dataset
from op_profiler.errors import DatasetError
from op_profiler.files import whole_file
from op_profiler.measure.measurement import Device, Measurement, ModelTiming, Settings
from op_profiler.operators.cost import size_bytes
from op_profiler.operators.locations import LOCATION_COLUMNS
from op_profiler.operators.operator import Operator
from op_profiler.schedules.schedule import Schedule

FlatRow = dict[str, Any]
_Measured = tuple[FlatRow, Row, Operator]

_INFINITE = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}
_NOTE = "imported from a flat table: only the operators that it holds are known"
_FIRST_READABLE = 3  # version of the tables
ADDED_LATER = frozenset(column.name for column in COLUMNS if column.since > _FIRST_READABLE)
"""Columns that files of earlier versions lack; the values of these columns are then unknown."""


class FlatFormat(Format):
    """Base class of formats that contain the flat table. A subclass implements `read` and `write_from`."""

    takes_device = False
    tables = tuple(TABLES)

    @abc.abstractmethod
    def read(self, path: Path) -> Iterator[tuple[int, FlatRow | None]]:
        """Yield the rows of a file with their numbers, from 1; None in place of a truncated or otherwise invalid row.

        Raises:
            DatasetError: the file cannot be read, or lacks columns; the message names them.
        """

    def read_into(self, dataset: Dataset, path: Path, *, progress: Progress | None = None, **_: Any) -> Imported:
        """Store the rows of a file; a given device and precision are ignored, because each row contains both."""
        return store_flat(dataset, self.read(path), progress)


class FlatTextFormat(FlatFormat):
    """Base class of text formats with one row per line. A subclass implements `read` and `writer`."""

    @abc.abstractmethod
    def writer(self, file: TextIO, columns: Sequence[Column]) -> Callable[[FlatRow], object]:
        """Write the header, if the format has one, and return a function that writes a row to the file."""

    def write_from(
        self, dataset: Dataset, path: Path, *, where: str | None = None, table: str = "measurements"
    ) -> Exported:
        """Write one line for each row of the flat table."""
        flat, count = flat_table(table), 0
        with whole_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            write = self.writer(file, flat.columns)
            for count, row in enumerate(flat_rows(dataset, where=where, table=flat), 1):  # noqa: B007 - counts them
                write(row)
        return Exported(count)


def row_values(found: Mapping[str, Any], read: Callable[[Column, Any], Any]) -> FlatRow | None:
    """Return the values of all columns; None for a row that lacks a column or has a value of another type.

    Args:
        found: values of the row as in the file, by column name; columns of `ADDED_LATER` may be missing.
        read: converts a value in the file to the value of the column; raises ValueError if its type is wrong.
    """
    try:
        return {c.name: read(c, found.get(c.name) if c.name in ADDED_LATER else found[c.name]) for c in COLUMNS}
    except (KeyError, ValueError):
        return None


def check_columns(path: Path, found: Mapping[str | Any, Any]) -> None:
    """Reject a file that lacks columns of the flat table.

    Raises:
        DatasetError: columns are missing; the message names them.
    """
    names = [column.name for column in COLUMNS if column.name not in ADDED_LATER]
    missing = [name for name in names if name not in found]
    if missing:
        named = ", ".join(missing[:6]) + (f" and {len(missing) - 6} more" if len(missing) > 6 else "")
        raise DatasetError(
            f"{path} has other columns than 'op-profiler export' writes: {named} missing; "
            "'op-profiler export --columns' lists all"
        )


def operator_of_row(row: FlatRow) -> Operator:
    """Return the operator that a flat row describes.

    Raises:
        ValueError, TypeError, KeyError: the cells do not describe an operator.
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
    """Return the operator and the measurement that a flat row describes.

    Raises:
        ValueError, TypeError, KeyError: the cells do not describe a measurement, or contradict the row's keys.
    """
    operator = operator_of_row(flat)
    schedule, device = build(Schedule, _row_in(schema.schedules, flat)), device_of_row(flat)
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
        run_id=flat["run_id"],
    )
    return operator, row


def device_of_row(flat: FlatRow) -> Device:
    """Return the device that a flat row describes."""
    return build(Device, _row_in(schema.devices, flat))


def _row_in(table: Table, flat: FlatRow) -> FlatRow:
    """Return the part of a flat row that belongs to a table of `schema`, by the table's column names.

    Columns that older files lack get the table's default values, as the rows of older datasets did.
    """
    found = {column.name: flat[column.info["flat"]] for column in table.columns if column.doc}
    given = {column.name: column.server_default for column in table.columns if not column.nullable}
    return {
        name: default.arg if value is None and isinstance(default := given.get(name), DefaultClause) else value
        for name, value in found.items()
    }


def _finite(value: Any) -> Any:
    """Return a value whose texts "Infinity", "-Infinity" and "NaN" are converted back to numbers."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return _INFINITE.get(value, value) if isinstance(value, str) else value


def store_flat(
    dataset: Dataset, numbered: Iterable[tuple[int, FlatRow | None]], progress: Progress | None, *, checked: bool = True
) -> Imported:
    """Store rows of the flat table, except rows that the dataset already has in equal, newer or better form.

    Args:
        numbered: rows with their numbers in the file; None for an unreadable row.
        checked: whether to look for suspicious rows, which keeps some numbers of each row in memory.
    """
    done, remaining = _FlatImport(dataset, checked=checked), iter(numbered)
    with dataset.transaction():
        while chunk := list(itertools.islice(remaining, CHUNK)):
            done.add(chunk)
            if progress is not None:
                progress(done.rows, done.rows)
    return done.result()


class _FlatImport:
    """State of an import of flat rows.

    Attributes:
        rows: number of valid rows so far, including those that the dataset already had.
    """

    def __init__(self, dataset: Dataset, *, checked: bool) -> None:
        self._dataset, self._checked, self._checks = dataset, checked, RowChecks()
        self.rows = self._stored = self._failed = self._unreadable = 0
        self._problems: list[str] = []

    def add(self, numbered: Iterable[tuple[int, FlatRow | None]]) -> None:
        """Store a chunk of rows inside the caller's transaction, and count invalid rows."""
        read: list[_Measured] = []
        for number, flat in numbered:
            try:
                if flat is None:
                    raise ValueError("cut off, or cells of another type")
                operator, row = row_of(flat)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                self._unreadable += 1
                self._problems += [f"row {number}: {error}"] if self._unreadable <= SHOWN else []
                continue
            read.append((flat, row, operator))
            if self._checked and row.complete:
                identity = (row.operator_key, row.schedule.key, str(row.settings), row.device.key)
                self._checks.add(number, operator, row.measurement.median_us, identity)
        stored = _store(self._dataset, read)
        self.rows += len(read)
        self._stored += len(stored)
        self._failed += len(stored & {flat["measurement_key"] for flat, _, _ in read if flat["error"] is not None})

    def result(self) -> Imported:
        """Return the result of the import, including the suspicious rows."""
        return self._checks.added_to(
            Imported(
                rows=self._stored,
                failed=self._failed,
                unreadable=self._unreadable,
                unknown={},
                known=self.rows - self._stored,
                problems=tuple(self._problems),
            )
        )


def _store(dataset: Dataset, rows: Sequence[_Measured]) -> set[str]:
    """Store measurements with their models, the positions of the operators, and the models' latencies, if known.

    Existing data of models is kept, except for a latency that is neither newer nor better than the latency in the rows.

    Returns:
        Keys of the measurements that were stored.
    """
    inside = [item for item in rows if item[1].model_key]
    with dataset.transaction() as connection:
        upsert(connection, schema.operators, convert.distinct(operator for _, _, operator in rows))
        upsert(connection, schema.devices, convert.distinct(row.device for _, row, _ in inside))
        for flat, row in {row.model_key: (flat, row) for flat, row, _ in reversed(inside)}.values():
            _add_model(dataset, flat, row)
        _add_links(connection, inside)
        timed = [item for item in inside if item[0]["whole_model_us"] is not None]
        timed.sort(key=lambda item: item[0]["measured_at"])
        newest = {keys.timing_key(row.model_key, row.device.key, row.settings): (flat, row) for flat, row, _ in timed}
        for flat, row in newest.values():
            _add_timing(dataset, flat, row)
        return dataset.record_all(row for _, row, _ in rows)


def _add_model(dataset: Dataset, flat: FlatRow, row: Row) -> None:
    """Store a model if the dataset lacks it, with a note that the table may not contain all of its operators."""
    if dataset.find_model(row.model_key) is not None:
        return
    dataset.add_model(
        key=row.model_key,
        name=flat["model_name"],
        source=flat["model_source"],
        batch_size=flat["batch_size"],
        precision=row.settings.precision,
        executor="default" if row.settings.executor == "graph" else row.settings.executor,
        target=row.device.target,
        notes=[_NOTE],
        device_key=row.device.key,
        label=flat["run_label"] or "",
    )


def _add_links(connection: Connection, rows: Sequence[_Measured]) -> None:
    """Add links of operators to models; existing links are kept (`Dataset.add_operators` would replace them)."""
    links: dict[tuple[str, str], dict[str, Any]] = {}
    for flat, row, operator in rows:
        identity = (row.model_key, operator.key)
        if identity not in links and flat["occurrences"] is not None:
            links[identity] = {
                "model_key": row.model_key,
                "operator_key": operator.key,
                "name": flat["operator_name"],
                "positions": flat["positions"] or [],
                **{name: flat[name] for name in ("occurrences", "launches", *LOCATION_COLUMNS)},
            }
    upsert(connection, schema.model_operators, list(links.values()))


def _add_timing(dataset: Dataset, flat: FlatRow, row: Row) -> None:
    """Store the latency of a model from a flat row; a stored latency with its rounds is kept."""
    timing = ModelTiming(
        whole_model=Measurement(median_us=flat["whole_model_us"]),
        before_us=None,
        after_us=None,
        sum_of_operators_us=None,
        details=flat["timing_details"] or {},
    )
    provenance = {name: flat[name] for name in ("project_revision", "user_revision", "measured_at", "run_id")}
    dataset.record_model_timing(row.model_key, row.settings, row.device, timing, **provenance)
