"""Schedule records: which schedule an operator gets, in the form that the compiler's own tools read.

For Relay these are lines that `autotvm.apply_history_best` reads, one file a processor,
``<folder>/<target>/<processor>.jsonl``; for Relax databases of MetaSchedule (`metaschedule_database.py`).

A record holds under conditions (`Conditions`): what is
the fastest on two threads that read their weights from memory says little of one thread with warm caches. There is one
record for each computation and each of its conditions. Times decide nothing here: they are of different minutes.
Whoever replaces a record has measured it and the new one in turns (`record_files.keep`).

The conditions stand in a member ``conditions`` of a line, which AutoTVM does not look at. Lines without it, as
AutoTVM and older versions write them, are of unknown conditions: they are used only where there is nothing else.
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
"""Of ``--schedules``: stored records, else the compiler's own schedules; stored records, else the project's rule; the
compiler's own schedules."""
PADDED = "_padded"
"""Ends the family of a template that computes more rows and columns than asked for."""
FUNCTION = "function"
"""First argument of a task that is a function of TIR; its hash and its text follow."""
LINES, DATABASES = ".jsonl", ".metaschedule"
"""How the names of records end: of a file of lines, and of a folder of databases."""
_LOG_VERSION = 0.2
_FAILED_SECONDS = 1e8  # AutoTVM writes 1e9 for a failure
_LAST_SECOND = 253402300799.0  # of the year 9999, where calendars end
_MOST_THREADS, _LARGEST = 2**20, 2**53
_MOST_LEVELS = 8  # of lists in lists, in the arguments of a task
_NEAREST = {
    "model": ("model", "cold", "hot"),
    "hot": ("hot", "model", "cold"),
    "cold": ("cold", "model", "hot"),
}


@dataclasses.dataclass(frozen=True)
class Conditions:
    """What a schedule is the best for, on a processor.

    Attributes:
        threads: that the kernel runs with; 0 on a GPU, whose schedules decide it themselves.
        cache: ``model``: decided in a model, with the caches as the other operators leave them; ``hot`` and ``cold``:
            decided alone.
    """

    threads: int
    cache: str = "model"

    def distance(self, other: Conditions | None) -> tuple[float, int, int]:
        """Less is nearer: the number of threads decides first. Unknown conditions (None) are the farthest."""
        if other is None:
            return math.inf, 0, 0
        return abs(other.threads - self.threads), other.threads, _NEAREST[self.cache].index(other.cache)

    def __str__(self) -> str:
        where = {"model": "in a model", "hot": "hot caches", "cold": "cold caches"}[self.cache]
        return f"{self.threads} thread{'' if self.threads == 1 else 's'}, {where}"


@dataclasses.dataclass(frozen=True)
class Record:
    """One line of an AutoTVM log, or a record of a database of MetaSchedule's.

    Attributes:
        target: the target, as the compiler writes it.
        template, arguments: the task, in AutoTVM's serialized form, or a function of TIR.
        config: the point of its space, as AutoTVM writes it; with a ``trace`` where MetaSchedule reads it.
        seconds: costs; empty where the trial failed.
        error_no: AutoTVM's number of the failure, 0 where there is none.
        timestamp: seconds since 1970.
        conditions: None where they are not known.
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
        """Mean of the costs, which AutoTVM compares by; inf where the trial failed."""
        return sum(self.seconds) / len(self.seconds) if self.seconds else float("inf")

    @property
    def task(self) -> str:
        """Equal for records of one task."""
        return json.dumps([self.template, self.arguments])

    @property
    def knobs(self) -> dict[str, Any]:
        """Values of the knobs by name."""
        return {str(name): value for name, _, value in self.config["entity"]}

    @functools.cached_property
    def computation(self) -> str:
        """As `computation_of`."""
        return computation_of(self.template, self.arguments)

    def to_json(self, tvm_version: str) -> str:
        """The line."""
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
    """16 hex digits of what a task computes: equal for all templates of one operator, Winograd's too.

    Records of one computation exclude each other, since a build takes one template for an operator. A task that is a
    function computes that function, whatever the template.
    """
    if arguments and arguments[0] == FUNCTION:
        return hashlib.sha256(str(arguments[1]).encode()).hexdigest()[:16]
    family = template.partition(".")[0].removesuffix(PADDED)
    if family.endswith("_winograd"):
        family = family.removesuffix("_winograd")
        arguments = _of_direct(arguments)
    return hashlib.sha256(json.dumps([family, _comparable(arguments)]).encode()).hexdigest()[:16]


def _comparable(value: Any) -> Any:
    """The same for what the compiler hands over and for what is read back from a line."""
    if isinstance(value, (list, tuple)):
        return [_comparable(v) for v in value]
    if value is None or isinstance(value, str):
        return value
    return int(value) if isinstance(value, (bool, int)) else str(value)


def _of_direct(arguments: Sequence[Any]) -> Sequence[Any]:
    """The arguments of the direct convolution that one with transformed weights stands for; others as they are.

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
    """A record from a line of an AutoTVM log; None for a line that is truncated, foreign, damaged or too old."""
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
    """Whether AutoTVM can make a point of a space of it: names of knobs, their kinds and plain values."""
    return isinstance(config["entity"], list) and all(
        isinstance(knob, list) and len(knob) == 3 and isinstance(knob[0], str) and _is_knob(*knob[1:])
        for knob in config["entity"]
    )


def _is_knob(kind: Any, value: Any) -> bool:
    """Sizes of a split, order of a reorder, annotations, or any one value."""
    if kind in ("sp", "re"):
        return isinstance(value, list) and all(isinstance(v, int) and abs(v) <= _LARGEST for v in value)
    if kind == "an":
        return isinstance(value, list) and all(isinstance(v, str) for v in value)
    if isinstance(value, float):
        return kind == "ot" and math.isfinite(value)
    return kind == "ot" and (value is None or isinstance(value, (str, int)))


def costs_of(values: Iterable[Any]) -> tuple[float, ...]:
    """Seconds of a trial; none where one of them stands for a failure."""
    costs = tuple(float(value) for value in values)
    return costs if all(0 < cost < _FAILED_SECONDS for cost in costs) else ()


def conditions_of(fields: Any) -> Conditions | None:
    """Return the conditions of a line; None if it states none that can be parsed."""
    if not isinstance(fields, dict):
        return None
    threads, cache = fields.get("threads"), fields.get("cache")
    if not isinstance(threads, int) or not 0 <= threads <= _MOST_THREADS:
        return None
    return Conditions(threads, cache) if isinstance(cache, str) and cache in _NEAREST else None


def lines_of(path: Path) -> dict[int, str]:
    """Lines of a file that hold something, by their numbers from 1."""
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
    """A name as a part of a path: lower case, one dash between the words."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"


def choose(records: Iterable[Record], wanted: Conditions) -> dict[str, Record]:
    """The record that a build takes for each computation: the one whose conditions are the nearest.

    Of several with the same conditions, as logs of AutoTVM hold them, the fastest, as AutoTVM chooses.
    """
    best: dict[str, Record] = {}
    for record in records:
        known = best.get(record.computation)
        if record.seconds and (known is None or _rank(record, wanted) < _rank(known, wanted)):
            best[record.computation] = record
    return best


def _rank(record: Record, wanted: Conditions) -> tuple[Any, ...]:
    return *wanted.distance(record.conditions), record.mean_seconds
