"""Schedule records as MetaSchedule's JSON databases, which the pass `MetaScheduleApplyDatabase` of Relax reads.

A database is a folder with two files of lines. ``database_workload.json`` has a function of TIR and its hash in each
line. ``database_tuning_record.json`` has the number of such a line, the trace of a schedule and its times. Neither
file contains the thread count and the cache state of the times. The records of a processor are therefore a folder
``<processor>.metaschedule`` with a database for each combination of both, such as ``2-threads-model``. If the folder
itself is a database, as tools of TVM write it, its conditions are unknown. The traces of this project's templates end
with an annotation that contains the knobs.

Workloads are only added, and both files are replaced as a whole, workloads first. A concurrent reader therefore always
finds the workload of a record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from op_profiler.files import atomic_file
from op_profiler.schedules.records import FUNCTION, Conditions, Record, conditions_of, costs_of, lines_of

ANNOTATION = "op_profiler"
"""Key of the annotation of a trace that contains the template and the knobs (`note_of`)."""
OTHER_TEMPLATE = "metaschedule"
"""Name of the template of traces without the annotation `ANNOTATION`."""

_WORKLOADS, _RECORDS = "database_workload.json", "database_tuning_record.json"
_NAME = re.compile(r"(\d{1,7})-threads-(\w+)")


def is_database(folder: Path) -> bool:
    """Return whether a folder is a database of MetaSchedule."""
    return (folder / _WORKLOADS).is_file()


def read_databases(folder: Path) -> tuple[list[Record], int]:
    """Return all records of a folder and of the databases in it, and the number of lines that are not records.

    Raises:
        OpProfilerError: a file cannot be read.
    """
    records, skipped = _read(folder, None)
    for inner in sorted(folder.iterdir()) if folder.is_dir() else []:
        conditions = _conditions(inner.name)
        if conditions is not None and is_database(inner):
            more, unread = _read(inner, conditions)
            records, skipped = records + more, skipped + unread
    return records, skipped


def replace_in_databases(folder: Path, gone: Collection[Record], record: Record) -> None:
    """Store a record in the database of its thread count and cache state, in place of other records.

    Args:
        folder: folder of the processor's records.
        gone: records that are removed.
        record: the new record.
    """
    database = folder if record.conditions is None else folder / _folder_name(record.conditions)
    database.mkdir(parents=True, exist_ok=True)
    workloads = _lines(database / _WORKLOADS)
    kept = [line for line, one in _parsed(database, record.conditions) if one is None or one not in gone]
    workload = json.dumps(list(record.arguments[1:3]))
    known = [_same_workload(line, record) for line in workloads]
    if True not in known:
        workloads.append(workload)
        known.append(True)
        _write(database / _WORKLOADS, workloads)
    _write(database / _RECORDS, [*kept, json.dumps([known.index(True), _entry(record)])])


def _entry(record: Record) -> list[Any]:
    """Return a record in MetaSchedule's form: trace, seconds, target, types of the arguments."""
    costs = list(record.seconds) or None
    return [record.config["trace"], costs, json.loads(record.target), record.config["args_info"]]


def _read(folder: Path, conditions: Conditions | None) -> tuple[list[Record], int]:
    parsed = [record for _, record in _parsed(folder, conditions)]
    return [record for record in parsed if record is not None], sum(record is None for record in parsed)


def _parsed(folder: Path, conditions: Conditions | None) -> list[tuple[str, Record | None]]:
    """Return every line of a database's records with its record, None for a line that is not a record.

    The records are read before the workloads that they refer to.
    """
    lines = _lines(folder / _RECORDS)
    workloads = [_workload(line) for line in _lines(folder / _WORKLOADS)]
    return [(line, _record(line, workloads, conditions)) for line in lines]


def _lines(path: Path) -> list[str]:
    return list(lines_of(path).values()) if path.is_file() else []


def _workload(line: str) -> tuple[str, str] | None:
    try:
        digest, text = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    return (digest, text) if isinstance(digest, str) and isinstance(text, str) else None


def _same_workload(line: str, record: Record) -> bool:
    return _workload(line) == tuple(record.arguments[1:3])


def _record(line: str, workloads: Sequence[tuple[str, str] | None], conditions: Conditions | None) -> Record | None:
    """Return the record in a line; None for a line that is truncated, damaged or of another tool, or whose workload is
    missing."""
    try:
        number, (trace, costs, target, kinds) = json.loads(line)
        instructions, decisions = trace
        workload = workloads[number] if isinstance(number, int) and number >= 0 else None
        if workload is None or not isinstance(instructions, list) or not isinstance(decisions, list):
            return None
        seconds = costs_of(costs or [])
        template, knobs = _noted(instructions)
        config = {
            "index": 0,
            "entity": [[name, "ot", value] for name, value in knobs.items()],
            "trace": trace,
            "args_info": kinds,
        }
        arguments = (FUNCTION, *workload)
        return Record(json.dumps(target), template, arguments, config, seconds, int(not seconds), conditions=conditions)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def note_of(template: str, knobs: Mapping[str, int | list[int]]) -> str:
    """Return the value of the annotation of a trace: the template and its knobs.

    The text contains no quotes, because a trace does not escape them.
    """
    texts = {name: ",".join(map(str, value)) if isinstance(value, list) else value for name, value in knobs.items()}
    return " ".join([template, *(f"{name}={text}" for name, text in texts.items())])


def _noted(instructions: Sequence[Any]) -> tuple[str, dict[str, int | list[int]]]:
    """Return the template and knobs in the annotation of a trace; `OTHER_TEMPLATE` without knobs if there is none."""
    for kind, inputs, attrs, _ in reversed(instructions):
        if kind == "Annotate" and attrs == [ANNOTATION]:
            template, *values = inputs[1].strip('"').split()
            pairs = (value.split("=") for value in values)
            return template, {name: _value(value) for name, value in pairs}
    return OTHER_TEMPLATE, {}


def _value(text: str) -> int | list[int]:
    """Return the value of a knob as text; the parts of a split are separated by commas."""
    return [int(part) for part in text.split(",")] if "," in text else int(text)


def _folder_name(conditions: Conditions) -> str:
    return f"{conditions.threads}-threads-{conditions.cache}"


def _conditions(name: str) -> Conditions | None:
    found = _NAME.fullmatch(name)
    return None if found is None else conditions_of({"threads": int(found[1]), "cache": found[2]})


def _write(path: Path, lines: Sequence[str]) -> None:
    with atomic_file(path) as partial:
        partial.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
