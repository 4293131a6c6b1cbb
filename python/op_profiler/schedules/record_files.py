"""Files of schedule records: their paths, reading and updates, and detection of logs of other tuners."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from op_profiler.cache import data_folder
from op_profiler.errors import UsageError
from op_profiler.files import atomic_file, locked
from op_profiler.schedules.metaschedule_database import is_database, read_databases, replace_in_databases
from op_profiler.schedules.records import (
    AUTO,
    DATABASES,
    FUNCTION,
    LINES,
    NONE,
    RULE,
    Record,
    lines_of,
    parse_line,
    slug,
)
from op_profiler.shipped import is_checkout, shipped_schedules

_FOLDER_VARIABLE = "OP_PROFILER_SCHEDULES"
_STORED = (AUTO, RULE)
_ADVICE = "give records of AutoTVM 0.2 (TVM 0.7 and later)"
_OLD = f"is a log of AutoTVM 0.1, which TVM 0.7 and later cannot read; tune again with TVM 0.7 or later and {_ADVICE}"
_ANSOR = f"is a log of auto_scheduler (Ansor), whose records name functions by a hash and not by their sizes; {_ADVICE}"
_META = (
    "is a file of MetaSchedule's databases; give the folder that holds it to --schedules with --compiler relax, or "
    f"{_ADVICE}"
)


def default_folder() -> Path:
    """Return the folder to which schedule records are written: ``schedules`` in a checkout of this project, otherwise
    ``schedules`` in the user's data folder.

    The environment variable ``OP_PROFILER_SCHEDULES`` sets another folder.
    """
    named = os.environ.get(_FOLDER_VARIABLE)
    if named:
        return Path(named)
    return shipped_schedules() if is_checkout() else data_folder() / "schedules"


def record_file(schedules: str, target_kind: str, processor: str, form: str = LINES) -> Path | None:
    """Return the file of the records of a processor, which may not exist; None if records are switched off.

    Records that were installed with the package, all of them files of lines, are read from the installation until
    `keep` has copied them for the user.

    Args:
        schedules: ``auto``, ``rule``, ``none``, or a folder; with `DATABASES` also a database that TVM's tools wrote.
        target_kind: kind of the target, which names a folder of records.
        processor: name of the processor, such as ``AMD EPYC znver5``.
        form: `LINES`, a file, or `DATABASES`, a folder.
    """
    if schedules == NONE:
        return None
    if form == DATABASES and schedules not in _STORED and is_database(Path(schedules)):
        return Path(schedules).resolve()  # the lock file is named after the folder, and `.` has no name
    name = Path(target_kind, f"{slug(processor)}{form}")
    if schedules not in _STORED:
        return Path(schedules) / name
    own, shipped = default_folder() / name, shipped_schedules() / name
    if own.exists() or os.environ.get(_FOLDER_VARIABLE) or not shipped.is_file():
        return own
    return shipped


def check_folder(schedules: str) -> None:
    """Reject a value of ``--schedules`` that names a missing folder.

    Without this check, the compiler's own schedules would be measured silently.

    Raises:
        UsageError: `schedules` is neither a folder nor ``auto``, ``rule`` or ``none``.
    """
    if Path(schedules).is_file():
        kind = foreign_records(Path(schedules))
        raise UsageError(
            f"--schedules {schedules!r} {kind or 'is a file'}; the option takes a folder, with records of AutoTVM 0.2 "
            f"in TARGET/PROCESSOR{LINES}"
        )
    if schedules not in (AUTO, RULE, NONE) and not Path(schedules).is_dir():
        raise UsageError(f"--schedules {schedules!r}: there is no such folder; give one, or {AUTO}, {RULE} or {NONE}")


def read_records(path: Path) -> tuple[list[Record], int]:
    """Return all records of a path from `record_file`, and the number of its lines that are not records.

    Raises:
        OpProfilerError: a file cannot be read.
    """
    numbered, unreadable = numbered_records(path)
    return list(numbered.values()), unreadable


def numbered_records(path: Path) -> tuple[dict[int, Record], int]:
    """Return all records of a path by the number of their line, from 1, and the number of lines that are not records.

    In a folder of databases, the number is the position of the record. A line that begins with ``#`` is a comment, as
    in AutoTVM.
    """
    if path.is_dir():
        records, unreadable = read_databases(path)
        return dict(enumerate(records, 1)), unreadable
    parsed = {number: parse_line(line) for number, line in lines_of(path).items() if not line.startswith("#")}
    found = {number: record for number, record in parsed.items() if record is not None}
    return found, len(parsed) - len(found)


def keep(path: Path, record: Record, beaten: Iterable[Record] = ()) -> bool:
    """Store a record as the only record of its computation and conditions. Several processes may do this at once.

    Args:
        path: file or folder of the records (`record_file`).
        record: the record.
        beaten: records that were slower than `record` in an alternating measurement.

    Returns:
        Whether the record was stored. It is not stored if the file has a record of the same computation and conditions
        that is not in `beaten`, for example because another process stored it meanwhile.
    """
    beaten = list(beaten)
    own = _writable(path)
    with locked(own.with_suffix(".lock")):
        known = own if own.exists() else path
        rivals = [one for one in (read_records(known)[0] if known.exists() else []) if _same_place(one, record)]
        if any(rival not in beaten for rival in rivals):
            return False
        if FUNCTION in record.arguments[:1]:
            replace_in_databases(own, rivals, record)
        else:
            tvm_version = getattr(sys.modules.get("tvm"), "__version__", "unknown")  # the TVM of this process
            lines = list(lines_of(known).values()) if known.exists() else []
            kept = [line for line in lines if parse_line(line) not in rivals]
            text = "".join(line + "\n" for line in (*kept, record.to_json(tvm_version)))
            with atomic_file(own) as partial:
                partial.write_text(text, encoding="utf-8")
    return True


def foreign_records(path: Path) -> str | None:
    """Return a text that names the other tuner that wrote a file, with a hint for the user; None if the first line is
    not of a known other tuner.

    Raises:
        OpProfilerError: the file cannot be read.
    """
    for line in lines_of(path).values():
        if not line.startswith("#"):
            try:
                return _kind(json.loads(line))
            except (ValueError, RecursionError):
                return None
    return None


def _kind(fields: object) -> str | None:
    if isinstance(fields, list) and len(fields) == 2 and (isinstance(fields[1], list) or isinstance(fields[0], str)):
        return _META
    if not isinstance(fields, dict) or not {"i", "r"} <= fields.keys():
        return None
    return _ANSOR if isinstance(fields["i"], list) and [type(one) for one in fields["i"][:1]] == [list] else _OLD


def _writable(path: Path) -> Path:
    """Return the file to which records are written: a copy for the user if the file belongs to an installed package."""
    if is_checkout() or not path.is_relative_to(shipped_schedules()):
        return path
    return default_folder() / path.relative_to(shipped_schedules())


def _same_place(one: Record, other: Record) -> bool:
    return one.computation == other.computation and one.conditions == other.conditions
