"""`import_table`: stores the rows of a file of any format in a dataset.

Each file is one transaction: either all valid rows are stored, or nothing. Importing the same file twice adds nothing.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from array import array
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from op_profiler.dataset.checks import Finding, check_rows
from op_profiler.dataset.formats import FORMATS
from op_profiler.dataset.formats.format import Imported, Progress, ReadTable, TableRow
from op_profiler.dataset.row import Row
from op_profiler.dataset.store import Dataset
from op_profiler.errors import OpProfilerError
from op_profiler.measure.measurement import Device, Measurement, Precision, Settings
from op_profiler.measure.statistics import summarize
from op_profiler.operators.kinds.shapes import dtype_of, operator_of, precision_of
from op_profiler.operators.operator import Operator
from op_profiler.schedules.schedule import UNKNOWN

CHUNK = 2000  # rows that are stored at a time
SHOWN = 5  # findings and unreadable lines that are reported one by one


def import_table(
    dataset: Dataset,
    path: Path,
    *,
    format: str,
    device: str | None = None,
    precision: Precision = "float32",
    progress: Progress | None = None,
) -> Imported:
    """Store every row of a file in a dataset.

    Args:
        format: one of `FORMATS`.
        device: name of the measured device; None: the name in the file, or else a name with the file's name. Ignored
            for formats whose rows name their devices.
        precision: dtype of the tensors; ignored for formats that contain it.
        progress: called with the number of stored rows and the number of all rows.

    Raises:
        UnknownNameError: `format` is not one of `FORMATS`.
        OpProfilerError: the file cannot be read or is of another format.
        DatasetError: the dataset cannot be written; some formats also raise it for a file that cannot be read.
    """
    return FORMATS.get(format).read_into(dataset, path, device=device, precision=precision, progress=progress)


class RowChecks:
    """Collects FLOPs, moved bytes and time of each row of a file, and finds suspicious rows with `check_rows`."""

    def __init__(self) -> None:
        self._lines, self._identities = array("q"), array("q")
        self._work, self._moved, self._times_us = array("d"), array("d"), array("d")

    def add(self, line: int, operator: Operator, time_us: float | None, identity: Hashable) -> None:
        """Add a valid row.

        Args:
            line: line number in the file.
            time_us: time of a call, microseconds; None for a failure.
            identity: equal for rows that measure the same operator under the same conditions.
        """
        self._lines.append(line)
        self._work.append(operator.flops)
        self._moved.append(operator.bytes_read + operator.bytes_written)
        self._times_us.append(np.nan if time_us is None else time_us)
        self._identities.append(hash(identity))

    def added_to(self, done: Imported, remarks: Sequence[Finding] = ()) -> Imported:
        """Return a copy of an import's result with the suspicious rows: the number of each kind, and examples.

        Args:
            remarks: suspicious rows found by other means.
        """
        work, moved, times_us = (np.array(one, dtype=np.float64) for one in (self._work, self._moved, self._times_us))
        found = check_rows(work, moved, times_us, np.array(self._identities, dtype=np.int64))
        wrong = [f for f in found if f.kind != "failed"]  # these are counted already
        findings = [*remarks, *(Finding(self._lines[f.row], f.kind, f.reason) for f in wrong)]
        counts = collections.Counter(finding.kind for finding in findings)
        shown = tuple(f"line {finding.row}: {finding.kind}: {finding.reason}" for finding in findings[:SHOWN])
        return dataclasses.replace(done, suspicious=dict(counts), examples=shown)


def store_entries(
    dataset: Dataset, path: Path, table: ReadTable, device: str | None, progress: Progress | None
) -> Imported:
    """Store a table of another project; all rows of one operator on one device become one measurement.

    Each of these rows is a sample of the measurement. The search for suspicious rows uses the rows before they are
    merged.
    """
    operators: dict[Any, Operator] = {}
    unreadable, checks = list(table.unreadable), RowChecks()
    remarks: list[Finding] = []
    groups: dict[tuple[str, str], list[TableRow]] = {}
    for line, entry in table.entries:
        try:
            if entry.shape not in operators:
                precision_of(dtype_of(entry.shape))
                operators[entry.shape] = operator_of(entry.shape)
        except ValueError as error:
            unreadable.append((line, str(error)))
            continue
        operator = operators[entry.shape]
        processor = device or entry.device or f"unnamed, of {path.name}"
        groups.setdefault((operator.key, processor), []).append(entry)
        checks.add(line, operator, entry.median_us, (operator.key, entry.device))
        if entry.remark is not None:
            remarks.append(Finding(line, "axes", entry.remark))
    rows = [_row(key, processor, entries, table.mechanism) for (key, processor), entries in groups.items()]
    with dataset.transaction():
        stored = _store(dataset, operators.values(), rows, progress)
    kept = [entry for entries in groups.values() for entry in entries]
    failed = sum(row.measurement.error is not None for row in rows)
    beside = sum(entry.median_us is None for entry in kept) - failed
    done = Imported(
        rows=len(stored),
        failed=failed,
        unreadable=len(unreadable),
        unknown=table.unknown,
        known=len(rows) - len(stored),
        merged=len(kept) - len(rows) - beside,
        failed_beside=beside,
        problems=tuple(f"line {line}: {reason}" for line, reason in sorted(unreadable)[:SHOWN]),
    )
    return checks.added_to(done, remarks)


def _row(operator_key: str, processor: str, entries: Sequence[TableRow], mechanism: str) -> Row:
    """Return one dataset row from all table rows of an operator on one device."""
    return Row(
        operator_key=operator_key,
        schedule=UNKNOWN,
        settings=_settings(mechanism, precision_of(dtype_of(entries[0].shape))),
        device=_device(mechanism, processor),
        measurement=_measurement(entries),
    )


# Each distinct one is one object, which keeps its key.
@functools.lru_cache
def _device(mechanism: str, processor: str) -> Device:
    about = {"imported_from": mechanism}
    return Device(kind="unknown", target="unknown", processor=processor, cores=None, properties=about)


@functools.lru_cache
def _settings(mechanism: str, precision: Precision) -> Settings:
    return Settings(threads=0, cache="hot", cache_mechanism=mechanism, precision=precision, executor="kernel")


def _measurement(entries: Sequence[TableRow]) -> Measurement:
    """Return a measurement with one round per table row; for a single row, one round per percentile, in order."""
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


def _store(dataset: Dataset, operators: Iterable[Operator], rows: Sequence[Row], progress: Progress | None) -> set[str]:
    """Store rows inside the caller's transaction; return the keys of the measurements that were stored."""
    stored: set[str] = set()
    for operator in operators:
        dataset.add_anchor(operator)
    for start in range(0, len(rows), CHUNK):
        stored |= dataset.record_all(rows[start : start + CHUNK])
        if progress is not None:
            progress(min(start + CHUNK, len(rows)), len(rows))
    return stored


def refuse_nothing(done: Imported, path: Path, format: str) -> None:
    """Raise an error if an import found no valid row.

    Raises:
        OpProfilerError: no row was stored or already known; the message contains the first reasons.
    """
    if not done.rows and not done.known:
        reasons = f" ({'; '.join(done.problems[:2])})" if done.problems else ""
        raise OpProfilerError(f"nothing in {path} could be imported; is it of --format {format}?{reasons}")
