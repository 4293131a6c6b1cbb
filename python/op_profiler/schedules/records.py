"""Schedule records, which define the schedule of an operator, in the format that the compiler's own tools read.

For Relay these are lines that `autotvm.apply_history_best` reads, in one file for each processor,
``<folder>/<target>/<processor>.jsonl``. For Relax they are databases of MetaSchedule (`metaschedule_database.py`).

A record is valid under conditions (`Conditions`): the fastest schedule for two threads that read their weights from
memory may be slow for one thread with warm caches. There is one record for each computation and each of its conditions.
Times of records are not compared, because they were measured at different moments. Before a record is replaced, the old
and the new schedule are measured alternately (`record_files.keep`).

The conditions are in the field ``conditions`` of a line, which AutoTVM ignores. Lines without this field, as AutoTVM
and older versions write them, have unknown conditions: they are used only if there is no other record.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from op_profiler.errors import OpProfilerError

AUTO, RULE, NONE = "auto", "rule", "none"
"""Values of ``--schedules``. ``auto``: stored records; for operators without a record, the compiler's own schedules.
``rule``: stored records; for operators without a record, the project's rule. ``none``: the compiler's own schedules.
"""
PADDED = "_padded"
"""Suffix of the family of a template that computes more rows and columns than the operator has."""
FUNCTION = "function"
"""First argument of a task that is a function of TIR; the hash and the text of the function follow."""
LINES, DATABASES = ".jsonl", ".metaschedule"
"""Suffixes of the names of a file of records in lines, and of a folder of databases."""
_LOG_VERSION = 0.2
_FAILED_SECONDS = 1e8  # AutoTVM stores 1e9 for a failure
_LAST_SECOND = 253402300799.0  # end of the year 9999, the last year of datetime
_MOST_THREADS, _LARGEST = 2**20, 2**53
_MOST_LEVELS = 8  # nesting depth of lists in the arguments of a task
_NEAREST = {
    "model": ("model", "cold", "hot"),
    "hot": ("hot", "model", "cold"),
    "cold": ("cold", "model", "hot"),
}


@dataclasses.dataclass(frozen=True)
class Conditions:
    """Conditions under which a schedule is the best known one on a processor.

    Attributes:
        threads: thread count of the kernel; 0 on a GPU, where the schedule defines the threads.
        cache: ``model``: chosen inside a model, with the caches as the other operators leave them; ``hot`` and
            ``cold``: chosen in isolation.
    """

    threads: int
    cache: str = "model"

    def distance(self, other: Conditions | None) -> tuple[float, int, int]:
        """Return the distance to other conditions as a tuple to compare: first by thread count, then by cache state.

        Args:
            other: the other conditions; None (unknown) is the farthest.
        """
        if other is None:
            return math.inf, 0, 0
        return abs(other.threads - self.threads), other.threads, _NEAREST[self.cache].index(other.cache)

    def __str__(self) -> str:
        where = {"model": "in a model", "hot": "hot caches", "cold": "cold caches"}[self.cache]
        return f"{self.threads} thread{'' if self.threads == 1 else 's'}, {where}"


@dataclasses.dataclass(frozen=True)
class Record:
    """One schedule record: a line of an AutoTVM log, or a record of a MetaSchedule database.

    Attributes:
        target: the target, as the compiler writes it.
        template, arguments: the task, in AutoTVM's serialized form, or a function of TIR.
        config: the schedule as AutoTVM writes it: index in the task's space, and knob values. In a record of
            MetaSchedule, the index is 0, and ``trace`` contains the complete schedule.
        seconds: measured times; empty if the trial failed.
        error_no: AutoTVM's number of the failure; 0 if the trial succeeded.
        timestamp: time of the measurement in seconds since 1970; 0 if unknown.
        conditions: conditions under which the schedule was chosen; None if unknown.
    """

    target: str
    template: str
    arguments: tuple[Any, ...]
    config: dict[str, Any]
    seconds: tuple[float, ...]
    error_no: int = 0
    timestamp: float = 0.0
    conditions: Conditions | None = None

    @property
    def mean_seconds(self) -> float:
        """Mean of the measured times in seconds, by which AutoTVM compares records; inf if the trial failed."""
        return sum(self.seconds) / len(self.seconds) if self.seconds else float("inf")

    @property
    def task(self) -> str:
        """Template and arguments as text; equal for all records of one task."""
        return json.dumps([self.template, self.arguments])

    @property
    def knobs(self) -> dict[str, Any]:
        """Return the values of the knobs by name."""
        return {str(name): value for name, _, value in self.config["entity"]}

    @functools.cached_property
    def computation(self) -> str:
        """Result of `computation_of` for the record's task."""
        return computation_of(self.template, self.arguments)

    def to_json(self, tvm_version: str) -> str:
        """Return the record as a line of an AutoTVM log.

        Args:
            tvm_version: version of TVM that is written into the line.
        """
        costs = list(self.seconds) or [1e9]
        fields = {
            "input": [self.target, self.template, self.arguments, {}],
            "config": self.config,
            "result": [costs, self.error_no, 0.0, self.timestamp],
            "version": _LOG_VERSION,
            "tvm_version": tvm_version,
        }
        if self.conditions is not None:
            fields["conditions"] = dataclasses.asdict(self.conditions)
        return json.dumps(fields)


def computation_of(template: str, arguments: Sequence[Any]) -> str:
    """Return a digest (16 hex digits) of what a task computes, equal for all templates of one operator.

    Templates of Winograd's method compute the same as the direct ones. Only one record of a computation can be used,
    because a build uses one template for an operator. For a task that is a function of TIR, the digest depends only on
    the function, not on the template.
    """
    if arguments and arguments[0] == FUNCTION:
        return hashlib.sha256(str(arguments[1]).encode()).hexdigest()[:16]
    family = template.partition(".")[0].removesuffix(PADDED)
    if family.endswith("_winograd"):
        family = family.removesuffix("_winograd")
        arguments = _of_direct(arguments)
    return hashlib.sha256(json.dumps([family, _comparable(arguments)]).encode()).hexdigest()[:16]


def _comparable(value: Any) -> Any:
    """Return the same value for arguments from the compiler and for arguments that were read from a line."""
    if isinstance(value, (list, tuple)):
        return [_comparable(v) for v in value]
    if value is None or isinstance(value, str):
        return value
    return int(value) if isinstance(value, (bool, int)) else str(value)


def _of_direct(arguments: Sequence[Any]) -> Sequence[Any]:
    """Return the arguments of the direct convolution that a convolution with transformed weights replaces; return other
    arguments unchanged.

    The transformed weight is [6, 6, O, I * i, o], the direct one [O, I, 3, 3, i, o], with the data's block for i.
    """
    try:
        (_, data, _), (kind, weight, dtype), *rest = arguments
        alpha, _, chunks, channels, lanes = weight
        block = data[4]
        return [arguments[0], (kind, (chunks, channels // block, 3, 3, block, lanes), dtype), *rest]
    except (TypeError, ValueError, IndexError, ZeroDivisionError):
        return arguments


def parse_line(line: str) -> Record | None:
    """Return the record in a line of an AutoTVM log; None for a line that is truncated, damaged, too old, or of another
    tool."""
    try:
        fields = json.loads(line)
        target, template, arguments, keywords = fields["input"]
        costs, error_no, _, timestamp = fields["result"]
        config = fields["config"]
        texts = isinstance(target, str) and isinstance(template, str) and f"{target}{template}".isprintable()
        if not texts or keywords or not isinstance(arguments, list) or not _is_config(config):
            return None
        numbers = costs_of(costs)
        if not 0 <= float(timestamp) <= _LAST_SECOND:
            return None
        failed = int(error_no) != 0 or not numbers
        return Record(
            target,
            template,
            _tuples(arguments),
            config,
            () if failed else numbers,
            int(error_no) if int(error_no) else int(failed),
            float(timestamp),
            conditions_of(fields.get("conditions")),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _is_config(config: Any) -> bool:
    """Return whether AutoTVM can create a point of a space from a value: names of knobs, their kinds and plain
    values."""
    return isinstance(config["entity"], list) and all(
        isinstance(knob, list) and len(knob) == 3 and isinstance(knob[0], str) and _is_knob(*knob[1:])
        for knob in config["entity"]
    )


def _is_knob(kind: Any, value: Any) -> bool:
    """Return whether a value is valid for a knob: sizes of a split, an order, annotations, or any single value."""
    if kind in ("sp", "re"):
        return isinstance(value, list) and all(isinstance(v, int) and abs(v) <= _LARGEST for v in value)
    if kind == "an":
        return isinstance(value, list) and all(isinstance(v, str) for v in value)
    if isinstance(value, float):
        return kind == "ot" and math.isfinite(value)
    return kind == "ot" and (value is None or isinstance(value, (str, int)))


def costs_of(values: Iterable[Any]) -> tuple[float, ...]:
    """Return the times of a trial in seconds; empty if a value marks a failure."""
    costs = tuple(float(value) for value in values)
    return costs if all(0 < cost < _FAILED_SECONDS for cost in costs) else ()


def conditions_of(fields: Any) -> Conditions | None:
    """Return the conditions in the field ``conditions`` of a line; None if the field is missing or cannot be parsed."""
    if not isinstance(fields, dict):
        return None
    threads, cache = fields.get("threads"), fields.get("cache")
    if not isinstance(threads, int) or not 0 <= threads <= _MOST_THREADS:
        return None
    return Conditions(threads, cache) if isinstance(cache, str) and cache in _NEAREST else None


def lines_of(path: Path) -> dict[int, str]:
    """Return the lines of a file that are not blank, by their numbers from 1.

    Raises:
        OpProfilerError: the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise OpProfilerError(f"{path} cannot be read: {error.strerror}") from error
    return {number: line for number, line in enumerate(text.split("\n"), 1) if line.strip()}


def _tuples(value: Any, levels: int = _MOST_LEVELS) -> Any:
    if levels == 0:
        raise ValueError("nested deeper than any task")
    return tuple(_tuples(v, levels - 1) for v in value) if isinstance(value, list) else value


def slug(name: str) -> str:
    """Return a name as a part of a path: lower case, with one dash between the words."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"


def choose(records: Iterable[Record], wanted: Conditions) -> dict[str, Record]:
    """Return the record that a build uses for each computation: the record with the most similar conditions.

    If several records have the same conditions, as in logs of AutoTVM, the fastest of them is used, as in AutoTVM.
    Failed trials are ignored.
    """
    best: dict[str, Record] = {}
    for record in records:
        known = best.get(record.computation)
        if record.seconds and (known is None or _rank(record, wanted) < _rank(known, wanted)):
            best[record.computation] = record
    return best


def _rank(record: Record, wanted: Conditions) -> tuple[Any, ...]:
    return *wanted.distance(record.conditions), record.mean_seconds
