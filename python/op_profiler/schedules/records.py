"""Schedule records: the best schedules per target and processor, as lines that `autotvm.apply_history_best` reads.

One file a processor, ``<folder>/<target>/<processor>.jsonl``, one line a task: the fastest that any run found.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from op_profiler.compiler import load_tvm
from op_profiler.errors import OpProfilerError, UsageError

AUTO, NONE = "auto", "none"
_LOG_VERSION = 0.2
_FAILED_SECONDS = 1e8  # AutoTVM writes 1e9 for a failure


@dataclasses.dataclass(frozen=True)
class Record:
    """One line of an AutoTVM log.

    Attributes:
        target: the target string.
        template, arguments: the task, in AutoTVM's serialized form.
        config: the point of its space, as AutoTVM writes it.
        seconds: costs; empty where the trial failed.
        error_no: AutoTVM's number of the failure, 0 where there is none.
        timestamp: seconds since 1970.
    """

    target: str
    template: str
    arguments: tuple[Any, ...]
    config: dict[str, Any]
    seconds: tuple[float, ...]
    error_no: int = 0
    timestamp: float = 0.0

    @property
    def mean_seconds(self) -> float:
        """Mean of the costs, which AutoTVM compares by; inf where the trial failed."""
        return sum(self.seconds) / len(self.seconds) if self.seconds else float("inf")

    @property
    def task(self) -> str:
        """Equal for records of one task."""
        return json.dumps([self.template, self.arguments])

    def to_json(self, tvm_version: str) -> str:
        """The line."""
        costs = list(self.seconds) or [1e9]
        return json.dumps(
            {
                "input": [self.target, self.template, self.arguments, {}],
                "config": self.config,
                "result": [costs, self.error_no, 0.0, self.timestamp],
                "version": _LOG_VERSION,
                "tvm_version": tvm_version,
            }
        )


def parse_line(line: str) -> Record | None:
    """A record from a line of an AutoTVM log; None for a line that is truncated, foreign, or of another version."""
    try:
        fields = json.loads(line)
        target, template, arguments, keywords = fields["input"]
        costs, error_no, _, timestamp = fields["result"]
        config = fields["config"]
        texts = isinstance(target, str) and isinstance(template, str) and isinstance(config["entity"], list)
        if not texts or keywords or not isinstance(arguments, list):
            return None
        numbers = tuple(float(c) for c in costs)
        failed = int(error_no) != 0 or not numbers or any(not 0 < c < _FAILED_SECONDS for c in numbers)
        return Record(
            target,
            template,
            _tuples(arguments),
            config,
            () if failed else numbers,
            int(error_no) if int(error_no) else int(failed),
            float(timestamp),
        )
    except (ValueError, TypeError, KeyError):
        return None


def read_records(path: Path) -> tuple[list[Record], int]:
    """All records of a file, and how many of its lines are none.

    Raises:
        OpProfilerError: the file cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise OpProfilerError(f"{path} cannot be read: {error.strerror}") from error
    parsed = [parse_line(line) for line in lines if line.strip()]
    return [record for record in parsed if record is not None], sum(record is None for record in parsed)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def default_folder() -> Path:
    """Where schedule records lie: beside the package in a source tree, else among the user's data.

    ``OP_PROFILER_SCHEDULES`` names another folder.
    """
    named = os.environ.get("OP_PROFILER_SCHEDULES")
    if named:
        return Path(named)
    source = Path(__file__).resolve().parents[3] / "schedules"
    if (source / "README.md").is_file():
        return source
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "op_profiler" / "schedules"


def record_file(schedules: str, target_kind: str, processor: str) -> Path | None:
    """The file of a processor; None where records are switched off.

    Args:
        schedules: ``auto``, ``none``, or a folder.
        processor: its name, e.g. ``AMD EPYC znver5``.
    """
    if schedules == NONE:
        return None
    folder = default_folder() if schedules == AUTO else Path(schedules)
    return folder / target_kind / f"{slug(processor)}.jsonl"


def check_folder(schedules: str) -> None:
    """Refuse a folder that is not there: without a word, the compiler's own schedules would be measured.

    Raises:
        UsageError: neither a folder nor ``auto`` or ``none``.
    """
    if schedules not in (AUTO, NONE) and not Path(schedules).is_dir():
        raise UsageError(f"--schedules {schedules!r}: there is no such folder; give one, or {AUTO} or {NONE}")


def slug(name: str) -> str:
    """A name as a part of a path: lower case, one dash between the words."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"


def fingerprint(path: Path | None) -> str:
    """16 hex digits over a file's content; empty where there is none."""
    if path is None or not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def keep_best(path: Path, records: Iterable[Record]) -> int:
    """Merge records into a file; of each task the fastest stays. Safe beside other processes that do the same.

    Returns:
        How many lines the file has now.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path.with_suffix(".lock")):
        present = read_records(path)[0] if path.exists() else []
        best: dict[str, Record] = {}
        for record in (*present, *records):
            known = best.get(record.task)
            if record.seconds and (known is None or record.mean_seconds <= known.mean_seconds):
                best[record.task] = record
        version = str(load_tvm().__version__)
        lines = [best[task].to_json(version) + "\n" for task in sorted(best)]
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text("".join(lines), encoding="utf-8")
        partial.replace(path)
    return len(lines)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclasses.dataclass(frozen=True)
class Applied:
    """How many records of a file are in use, and how many of its lines were skipped since they are none."""

    count: int = 0
    skipped: int = 0


@contextlib.contextmanager
def applied(path: Path | None) -> Iterator[Applied]:
    """Compile with the records of a file inside this block; without any where there is no file."""
    records, skipped = read_records(path) if path is not None and path.is_file() else ([], 0)
    if not records:
        yield Applied(skipped=skipped)
        return
    from op_profiler.schedules.templates import register_templates

    register_templates()
    autotvm = load_tvm().autotvm
    version = str(load_tvm().__version__)
    pairs = [autotvm.record.decode(record.to_json(version)) for record in records if record.seconds]
    with autotvm.apply_history_best([pair for pair in pairs if pair is not None]):
        yield Applied(len(pairs), skipped)
