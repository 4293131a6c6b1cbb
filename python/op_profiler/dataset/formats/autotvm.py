"""The format ``autotvm``: tuning logs of AutoTVM; the lines of one configuration become one measurement."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from op_profiler.dataset.formats.autotvm_tasks import operator_of, record_of, rounds_of
from op_profiler.dataset.formats.format import Imported, UnknownKindError
from op_profiler.dataset.formats.importing import RowChecks
from op_profiler.dataset.formats.line_format import LineFormat
from op_profiler.dataset.row import Row
from op_profiler.dataset.store import Dataset
from op_profiler.errors import OpProfilerError
from op_profiler.measure.measurement import Device, Measurement, Settings
from op_profiler.measure.statistics import summarize
from op_profiler.operators.kinds.shapes import precision_of
from op_profiler.operators.operator import Operator
from op_profiler.schedules.factors import factors_of_knobs
from op_profiler.schedules.record_files import foreign_records, numbered_records
from op_profiler.schedules.records import Record
from op_profiler.schedules.schedule import Schedule

_SETTINGS = Settings(threads=0, cache="hot", cache_mechanism="repeat, by AutoTVM", executor="kernel")
"""AutoTVM neither sets nor stores a thread count; 0 stands for the runtime's choice."""


def import_autotvm(dataset: Dataset, path: Path, *, processor: str | None = None) -> Imported:
    """Store every record of an AutoTVM log; costs in seconds become microseconds.

    Records of the same configuration become one measurement with all their costs as samples. If some of these records
    failed, the failure is stored next to the time.

    Args:
        processor: name of the measured device, which the log does not contain; None: a name made from the file's name.

    Raises:
        OpProfilerError: the file cannot be read.
    """
    records, unreadable = numbered_records(path)
    if not records and (kind := foreign_records(path)):
        raise OpProfilerError(f"{path} {kind}")
    unknown: collections.Counter[str] = collections.Counter()
    rejected: collections.Counter[str] = collections.Counter()
    operators: dict[str, Operator | ValueError] = {}
    groups: dict[tuple[str, str, str, bool], list[tuple[int, Record]]] = {}
    for number, record in records.items():
        if record.task not in operators:
            operators[record.task] = _operator_or_reason(record)
        operator = operators[record.task]
        if isinstance(operator, UnknownKindError):
            unknown[record.template] += 1
        elif isinstance(operator, ValueError):
            rejected[f"{record.template}: {operator}"] += 1
        else:
            alike = operator.key, _schedule(record).key, _target(record), bool(record.seconds)
            groups.setdefault(alike, []).append((number, record))
    found = {operator.key: operator for operator in operators.values() if isinstance(operator, Operator)}
    measured = [found[key] for key, *_ in groups]
    name = processor or f"unnamed, of {path.name}"
    rows = [_row([r for _, r in group], operator, name) for operator, group in zip(measured, groups.values())]
    with dataset.transaction():
        for key in dict.fromkeys(operator.key for operator in measured):
            dataset.add_anchor(found[key])
        stored = dataset.record_all(row for row in rows if row.measurement.error is None)
        dataset.record_all(row for row in rows if row.measurement.error is not None)  # they stand beside a time
    failures = sum(1 for row in rows if row.measurement.error is not None)
    merged = sum(map(len, groups.values())) - len(rows)
    checks = RowChecks()
    for operator, row, group in zip(measured, rows, groups.values()):
        identity = (operator.key, row.schedule.key, str(row.settings), str(row.device))
        checks.add(group[0][0], operator, row.measurement.median_us, identity)
    known = len(rows) - failures - len(stored)
    done = Imported(
        len(rows) - known, failures, unreadable, dict(unknown), known=known, merged=merged, rejected=dict(rejected)
    )
    return checks.added_to(done)


def _operator_or_reason(record: Record) -> Operator | ValueError:
    try:
        return operator_of(record)
    except ValueError as error:
        return error


def _target(record: Record) -> str:
    """Return the record's target with its options in the order in which TVM prints them: keys first, then by name.

    AutoTVM writes the options in the user's order; without a fixed order, one device would appear as several.
    """
    kind, *options = re.split(r"\s+(?=-)", record.target.strip())
    named = [re.sub(r"^-+([^\s=]+)[\s=]+", r"-\1=", option) for option in options]
    return " ".join([kind, *sorted(named, key=lambda option: (not option.startswith("-keys="), option))])


def _schedule(record: Record) -> Schedule:
    return Schedule(record.template, record.knobs, "trial", factors_of_knobs(record.knobs))


def _row(alike: Sequence[Record], operator: Operator, processor: str) -> Row:
    """Return the row for records of one configuration, all timed or all failed; every cost is a sample."""
    first = alike[0]
    when = datetime.datetime.fromtimestamp(first.timestamp, datetime.timezone.utc).isoformat(timespec="seconds")
    target = _target(first)
    device = Device(
        kind=target.split(" ")[0],
        target=target,
        processor=processor,
        cores=None,
        properties={"imported_from": "an AutoTVM log", "measured": when},
    )
    if first.seconds:
        seconds = [cost for record in alike for cost in record.seconds]
        measurement = summarize(np.asarray(seconds)[:, None] * 1e6)
    else:
        measurement = Measurement(error=f"AutoTVM's error number {first.error_no}")
    return Row(
        operator_key=operator.key,
        schedule=_schedule(first),
        settings=dataclasses.replace(_SETTINGS, precision=precision_of(operator.inputs[0].dtype)),
        device=device,
        measurement=measurement,
    )


class AutoTvm(LineFormat):
    """The format ``autotvm``. A log contains every trial, so slower trials are exported too."""

    every_row = True

    def read_into(self, dataset: Dataset, path: Path, *, device: str | None = None, **_: Any) -> Imported:
        """Store the trials of a log; a given precision is not used, as each line names the dtypes."""
        return import_autotvm(dataset, path, processor=device)

    def line(self, operator: Operator, row: dict[str, Any]) -> str:
        """Return a measurement as a log line of the `tvm_version` that measured it."""
        record = record_of(
            operator,
            template=row["template"],
            knobs=row["knobs"],
            target=row["target"],
            rounds_us=rounds_of(row["samples_us"], row["median_us"]),
        )
        return record.to_json(row["tvm_version"])


FORMAT = AutoTvm()
