"""From a file of any format to measurements of the dataset.

One transaction a file: everything that was understood is stored, or nothing. The same file twice adds nothing.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from op_profiler.dataset.checks import Finding, check_rows
from op_profiler.dataset.formats import FORMATS, flat_table
from op_profiler.dataset.formats.flat_models import Measured, add_models
from op_profiler.dataset.formats.format import Entry, Imported, Progress, Table
from op_profiler.dataset.formats.shapes import dtype_of, operator_of, precision_of
from op_profiler.dataset.row import Row
from op_profiler.dataset.store import Dataset
from op_profiler.errors import OpProfilerError
from op_profiler.measure.measurement import Device, Measurement, Precision, Settings
from op_profiler.measure.statistics import summarize
from op_profiler.operators.operator import Operator
from op_profiler.schedules.schedule import UNKNOWN

_CHUNK = 2000
_SHOWN = 5  # findings and unreadable lines that are reported one by one


def import_table(
    dataset: Dataset,
    path: Path,
    *,
    format: str,
    device: str | None = None,
    precision: Precision = "float32",
    progress: Progress | None = None,
) -> Imported:
    """Store every row of a file.

    Args:
        format: one of `FORMATS`.
        device: name of the device that was measured; None: what the file says, else the file's name. Not asked of
            formats that do not take it.
        precision: of the tensors, where the format takes it.

    Raises:
        UnknownNameError: not one of `FORMATS`.
        OpProfilerError: the file cannot be read or is of another format.
        DatasetError: likewise, or the dataset cannot be written.
    """
    return FORMATS.get(format).read_into(dataset, path, device=device, precision=precision, progress=progress)


def report(done: Imported, operators: Sequence[Operator], rows: Sequence[Row], lines: Sequence[int]) -> Imported:
    """The result of an import with what `check_rows` finds among its rows.

    Args:
        operators, rows, lines: what was read: operator, measurement and number in the file, each as long as the others.
    """
    times = [row.measurement.median_us for row in rows]
    findings = check_rows(
        np.array([operator.flops for operator in operators], dtype=np.float64),
        np.array([operator.bytes_read + operator.bytes_written for operator in operators], dtype=np.float64),
        np.array([np.nan if time is None else time for time in times], dtype=np.float64),
        np.array([f"{row.operator_key}{row.schedule.key}{row.settings}{row.device}" for row in rows]),
    )
    suspicious = [Finding(lines[f.row], f.kind, f.reason) for f in findings if f.kind != "failed"]  # counted already
    return with_findings(done, suspicious)


def with_findings(done: Imported, findings: Iterable[Finding]) -> Imported:
    """The result of an import with more findings: a count of each kind, and the first few."""
    findings = list(findings)
    counts = collections.Counter(done.suspicious) + collections.Counter(finding.kind for finding in findings)
    shown = [f"line {finding.row}: {finding.kind}: {finding.reason}" for finding in findings]
    return dataclasses.replace(done, suspicious=dict(counts), examples=(*done.examples, *shown)[:_SHOWN])


def store_entries(
    dataset: Dataset, path: Path, table: Table, device: str | None, progress: Progress | None
) -> Imported:
    """Store a table of others. Rows of one operator on one device become one measurement with a sample each."""
    operators: dict[Any, Operator] = {}
    unreadable = list(table.unreadable)
    kept: list[tuple[int, Entry]] = []
    for line, entry in table.entries:
        try:
            if entry.shape not in operators:
                precision_of(dtype_of(entry.shape))
                operators[entry.shape] = operator_of(entry.shape)
        except ValueError as error:
            unreadable.append((line, str(error)))
            continue
        kept.append((line, entry))
    make = _Rows(device, f"unnamed, of {path.name}", table.mechanism)
    keys = {shape: operator.key for shape, operator in operators.items()}
    groups: dict[tuple[str, str], list[Entry]] = {}
    for _, entry in kept:
        groups.setdefault((keys[entry.shape], make.device_name(entry)), []).append(entry)
    rows = [make.row(key, entries) for (key, _), entries in groups.items()]
    with dataset.transaction():
        stored = _store(dataset, {keys[shape]: operator for shape, operator in operators.items()}, rows, progress)
    failed = sum(row.measurement.error is not None for row in rows)
    beside = sum(entry.median_us is None for _, entry in kept) - failed
    done = Imported(
        rows=len(stored),
        failed=failed,
        unreadable=len(unreadable),
        unknown=table.unknown,
        known=len(rows) - len(stored),
        merged=len(kept) - len(rows) - beside,
        failed_beside=beside,
        problems=tuple(f"line {line}: {reason}" for line, reason in sorted(unreadable)[:_SHOWN]),
    )
    return _checked(done, kept, operators, keys)


def _checked(
    done: Imported, kept: Sequence[tuple[int, Entry]], operators: dict[Any, Operator], keys: dict[Any, str]
) -> Imported:
    """Every row of the file is checked, not every measurement: duplicates are one there."""
    found = [operators[entry.shape] for _, entry in kept]
    findings = check_rows(
        np.array([operator.flops for operator in found], dtype=np.float64),
        np.array([operator.bytes_read + operator.bytes_written for operator in found], dtype=np.float64),
        np.array([np.nan if e.median_us is None else e.median_us for _, e in kept], dtype=np.float64),
        np.array([f"{keys[e.shape]} {e.device}" for _, e in kept]),
    )
    remarks = [Finding(line, "axes", entry.remark) for line, entry in kept if entry.remark is not None]
    suspicious = [Finding(kept[f.row][0], f.kind, f.reason) for f in findings if f.kind != "failed"]
    return with_findings(done, [*remarks, *suspicious])


class _Rows:
    """Makes rows of the dataset; each distinct device and setting is one object."""

    def __init__(self, device: str | None, unnamed: str, mechanism: str) -> None:
        self._device, self._unnamed, self._mechanism = device, unnamed, mechanism
        self._devices: dict[str, Device] = {}
        self._settings: dict[Precision, Settings] = {}

    def device_name(self, entry: Entry) -> str:
        """Of the device that a row was measured on."""
        return self._device or entry.device or self._unnamed

    def row(self, operator_key: str, entries: Sequence[Entry]) -> Row:
        """One measurement, of all rows of an operator on one device."""
        name = self.device_name(entries[0])
        precision = precision_of(dtype_of(entries[0].shape))
        if name not in self._devices:
            about = {"imported_from": self._mechanism}
            self._devices[name] = Device(kind="unknown", target="unknown", processor=name, cores=None, properties=about)
        if precision not in self._settings:
            self._settings[precision] = Settings(
                threads=0, cache="hot", cache_mechanism=self._mechanism, precision=precision, executor="kernel"
            )
        return Row(
            operator_key=operator_key,
            schedule=UNKNOWN,
            settings=self._settings[precision],
            device=self._devices[name],
            measurement=_measurement(entries),
        )


def _measurement(entries: Sequence[Entry]) -> Measurement:
    """Of several rows each is a round; percentiles of one row are kept as its samples, in their order."""
    timed = [entry for entry in entries if entry.median_us is not None]
    if not timed:
        return Measurement(error=entries[0].error)
    if len(timed) > 1:
        return summarize(np.array([[entry.median_us] for entry in timed], dtype=np.float64))
    samples, median = timed[0].samples_us, timed[0].median_us
    alone = len(samples) == 1
    return Measurement(
        samples_us=tuple((time,) for time in samples),
        min_us=min(samples),
        median_us=median,
        mean_us=median if alone else None,
    )


def _store(
    dataset: Dataset, operators: Mapping[str, Operator], rows: Sequence[Row], progress: Progress | None
) -> set[str]:
    """Inside the caller's transaction; operators by workload key. Keys of the measurements that were stored."""
    total, done = len(operators) + len(rows), 0
    stored: set[str] = set()
    for done, operator in enumerate(operators.values(), 1):
        dataset.add_anchor(operator)
        if progress is not None and done % _CHUNK == 0:
            progress(done, total)
    for start in range(0, len(rows), _CHUNK):
        stored |= dataset.record_all(rows[start : start + _CHUNK])
        if progress is not None:
            progress(done + min(start + _CHUNK, len(rows)), total)
    return stored


def store_flat(
    dataset: Dataset,
    numbered: Iterable[tuple[int, flat_table.FlatRow | None]],
    progress: Progress | None,
    *,
    checked: bool = True,
) -> Imported:
    """Store rows of the flat table. What the dataset knows already, as new, newer or better, stays as it is.

    Args:
        numbered: rows with their numbers in the file; None for one that cannot be read.
        checked: look for rows that are wrong beside the others, for which some numbers of each are held.
    """
    seen, remaining = _Seen(checked), iter(numbered)
    with dataset.transaction():
        while chunk := list(itertools.islice(remaining, _CHUNK)):
            _store_chunk(dataset, chunk, seen)
            if progress is not None:
                progress(seen.rows, seen.rows)
    done = Imported(
        rows=seen.stored,
        failed=seen.failed,
        unreadable=seen.unreadable,
        unknown={},
        known=seen.rows - seen.stored,
        problems=tuple(f"row {number}: {reason}" for number, reason in seen.problems),
    )
    return seen.checked(done)


@dataclasses.dataclass
class _Seen:
    """What is kept of the rows of a file, a few numbers of each.

    Attributes:
        keeps: whether it is; else the rows are counted only.
        numbers: of the complete rows; `work`, `moved`, `times_us` and `identities` are as long.
        problems: the first ones, with their rows.
    """

    keeps: bool
    rows: int = 0
    stored: int = 0
    failed: int = 0
    unreadable: int = 0
    problems: list[tuple[int, str]] = dataclasses.field(default_factory=list)
    numbers: array[int] = dataclasses.field(default_factory=lambda: array("q"))
    work: array[float] = dataclasses.field(default_factory=lambda: array("d"))
    moved: array[float] = dataclasses.field(default_factory=lambda: array("d"))
    times_us: array[float] = dataclasses.field(default_factory=lambda: array("d"))
    identities: array[int] = dataclasses.field(default_factory=lambda: array("q"))

    def add(self, number: int, operator: Operator, row: Row) -> None:
        """A row that was understood."""
        self.rows += 1
        if self.keeps and row.complete:
            time_us = row.measurement.median_us
            self.numbers.append(number)
            self.work.append(operator.flops)
            self.moved.append(operator.bytes_read + operator.bytes_written)
            self.times_us.append(np.nan if time_us is None else time_us)
            self.identities.append(hash((row.operator_key, row.schedule.key, str(row.settings), row.device.key)))

    def refuse(self, number: int, reason: str) -> None:
        """A row that cannot be read."""
        self.unreadable += 1
        if len(self.problems) < _SHOWN:
            self.problems.append((number, reason))

    def checked(self, done: Imported) -> Imported:
        """The result of an import with what `check_rows` finds among its rows."""
        work, moved, times_us = (np.array(one, dtype=np.float64) for one in (self.work, self.moved, self.times_us))
        findings = check_rows(work, moved, times_us, np.array(self.identities, dtype=np.int64))
        found = [Finding(self.numbers[f.row], f.kind, f.reason) for f in findings if f.kind != "failed"]
        return with_findings(done, found)


def _store_chunk(dataset: Dataset, numbered: Sequence[tuple[int, flat_table.FlatRow | None]], seen: _Seen) -> None:
    """Store some rows of the flat table, inside the caller's transaction."""
    read: list[Measured] = []
    for number, flat in numbered:
        try:
            if flat is None:
                raise ValueError("cut off, or cells of another type")
            operator, row = flat_table.row_of(flat)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            seen.refuse(number, str(error))
            continue
        seen.add(number, operator, row)
        read.append((flat, row, operator))
    add_models(dataset, read)
    rows = [row for _, row, _ in read]
    stored = _store(dataset, {operator.key: operator for _, _, operator in read}, rows, None)
    seen.stored += len(stored)
    seen.failed += len(stored & {flat["measurement_key"] for flat, row, _ in read if row.measurement.error is not None})


def refuse_nothing(done: Imported, path: Path, format: str) -> None:
    """An import that found nothing at all is an error.

    Raises:
        OpProfilerError: no row could be imported; with the first reasons.
    """
    if not done.rows and not done.known:
        reasons = f" ({'; '.join(done.problems[:2])})" if done.problems else ""
        raise OpProfilerError(f"nothing in {path} could be imported; is it of --format {format}?{reasons}")
