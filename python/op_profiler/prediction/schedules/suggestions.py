"""`ScheduleQuery`: the best known schedule of an operator, otherwise schedules that a ranking expects to be best."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.dataset import Dataset, flat_rows
from op_profiler.dataset.draw import GroupDraw
from op_profiler.dataset.formats.parquet import parquet_rows
from op_profiler.errors import ModelError, OpProfilerError
from op_profiler.json_text import brief
from op_profiler.operators.cost import HEAVY
from op_profiler.operators.operator import Operator
from op_profiler.prediction.schedules.proposals import good_schedules, propose
from op_profiler.prediction.schedules.ranking import RankingModel, RankingScore, evaluate, examples, group_of, time_of
from op_profiler.schedules import record_files, records
from op_profiler.schedules.records import Conditions
from op_profiler.schedules.schedule import OWN_TEMPLATE, Schedule
from op_profiler.tuning.candidate import Candidate, TaskSpec

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.tuning.candidate import Runner, TrialResult
    from op_profiler.tuning.task import Task

_FOLDS = 5
MOST_TRIALS = 20_000
"""Largest number of trials; if there are more, a random subset is used. The ranking needs about ten kilobytes per
trial."""
_COLUMNS = (
    *("measurement_key", "operator_key", "anchor", "op_names", "inputs", "params", "outputs", "attrs", "flops"),
    *("template", "knobs", "origin", "tile", "split", "fuse", "reorder", "compute_at", "vectorize", "unroll"),
    *("parallel", "threads", "cache", "device_key", "device_kind", "processor", "host_fingerprint", "median_us"),
)
Rows = Sequence[Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Suggestion:
    """One schedule for an operator.

    Attributes:
        source: ``record`` (from the schedule records), ``measured`` (the best trial in the dataset) or ``predicted``.
        latency_us: time of the schedule that was measured before the query; None for a predicted schedule.
        conditions: thread count and cache state for which the schedule was found; None if a record does not contain
            them.
        verified_us: time that the query measured; None if the query did not measure the schedule.
        error: reason why the query could not measure the schedule; None if it could, or did not try.
    """

    schedule: Schedule
    source: str
    latency_us: float | None
    conditions: Conditions | None = None
    verified_us: float | None = None
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """Suggested schedules of one anchor, the best first; empty if no template of this project computes the anchor."""

    anchor: Operator
    suggestions: tuple[Suggestion, ...]

    __repr__ = brief

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary: operator, anchor, output shape, and the fields of each suggestion."""
        return {
            "operator": self.anchor.key,
            "anchor": self.anchor.anchor,
            "output": self.anchor.outputs[0].shape,
            "schedules": [dataclasses.asdict(one) for one in self.suggestions],
        }


class ScheduleQuery:
    """Suggests schedules for any number of operators, from one set of trials.

    Args:
        rows: rows of the flat table, origin ``trial``; the ranking is fitted to the trials of all devices.
        target: `tvm.target.Target`.
        record_file: file of schedule records; None: no records are used.
        conditions: thread count and cache state with which the operator is to run.
        devices: keys of the devices whose trials count as known schedules.
    """

    def __init__(
        self, rows: Rows, target: Target, record_file: Path | None, conditions: Conditions, devices: Collection[str]
    ) -> None:
        self._rows = [row for row in rows if str(row["template"]).endswith(OWN_TEMPLATE)]
        self._examples = examples(self._rows)
        self._target = target
        self._conditions = conditions
        self._devices = frozenset(devices)
        self._records = record_files.read_records(record_file)[0] if record_file and record_file.is_file() else []
        self._model: RankingModel | None = None

    @property
    def processors(self) -> list[str]:
        """Names of the processors whose trials the ranking is fitted to."""
        return sorted({str(row["processor"]) for row in self._rows})

    @property
    def model(self) -> RankingModel:
        """The ranking model, which is fitted at its first use.

        Raises:
            OpProfilerError: there are too few trials.
        """
        if self._model is None:
            try:
                self._model = RankingModel.train(self._examples)
            except ValueError as error:
                raise OpProfilerError(
                    f"{error}; tune some models first (op-profiler collect --iftune true), or name a dataset that has "
                    "trials with --db"
                ) from error
        return self._model

    def answer(self, anchor: Operator, count: int, runner: Runner | None = None, verify: int = 0) -> Answer:
        """Return the best known schedule of an anchor if there is one and `verify` is 0, otherwise predicted schedules.

        Args:
            anchor: the operator.
            count: number of predicted schedules.
            runner: measures the first `verify` predicted schedules, alternately with the best known schedule. The
                measured schedules come first in the answer, the fastest first. None: nothing is measured.
            verify: number of predicted schedules to measure.
        """
        tasks = [compiler_in_use().task(spec, self._target) for spec in compiler_in_use().own_tasks(anchor)]
        if not tasks:
            return Answer(anchor, ())
        known = self._known(anchor, [task.spec for task in tasks])
        if known is not None and not verify:
            return Answer(anchor, (known,))
        good = good_schedules(self._rows, self._examples)
        proposals = propose(anchor, tasks, self.model, good, count=max(count, verify), threads=self._conditions.threads)
        suggestions = [(Suggestion(p.schedule, "predicted", None, self._conditions), p.candidate) for p in proposals]
        if runner is None or not verify:
            return Answer(anchor, tuple(s for s, _ in suggestions[:count]))
        measured = suggestions[:verify]
        if known is not None:
            candidate = _candidate(known, tasks)
            measured += [(known, candidate)] if candidate is not None else []
        results = runner.compare([c for _, c in measured], rounds=7)
        verified = [_verified(s, r) for (s, _), r in zip(measured, results)]
        verified.sort(key=lambda s: s.verified_us if s.verified_us is not None else float("inf"))
        return Answer(anchor, tuple(verified + [s for s, _ in suggestions[verify:count]]))

    def _known(self, anchor: Operator, specs: Iterable[TaskSpec]) -> Suggestion | None:
        """Return the schedule of the record that a build uses, otherwise that of the best trial of the same operator
        under the same conditions; None if there is neither."""
        chosen = records.choose(self._records, self._conditions)
        for computation in {records.computation_of(spec.template, spec.arguments) for spec in specs} & set(chosen):
            record = chosen[computation]
            schedule = Schedule(record.template, record.knobs, "tuned")
            return Suggestion(schedule, "record", record.mean_seconds * 1e6, record.conditions)
        tried = [
            (example.latency_us, row)
            for row, example in zip(self._rows, self._examples)
            if example.operator == anchor.key and example.latency_us < float("inf") and self._holds(row)
        ]
        if not tried:
            return None
        latency, row = min(tried, key=lambda pair: pair[0])
        schedule = Schedule(str(row["template"]), dict(row["knobs"]), "trial")
        return Suggestion(schedule, "measured", latency, self._conditions)

    def _holds(self, row: Mapping[str, Any]) -> bool:
        """Return whether a trial was made on the requested device and under the requested conditions."""
        conditions = Conditions(int(row["threads"]), str(row["cache"]))
        return row["device_key"] in self._devices and conditions == self._conditions

    def score(self) -> RankingScore:
        """Return the score of the ranking on held-out operators (five folds).

        Raises:
            OpProfilerError: the trials have fewer than five operators.
        """
        keys = sorted({example.operator for example in self._examples})
        if len(keys) < _FOLDS:
            raise OpProfilerError(f"trials of {len(keys)} operators are too few to hold some of them out")
        return evaluate(self._examples, [keys[i::_FOLDS] for i in range(_FOLDS)])


def _candidate(known: Suggestion, tasks: Iterable[Task]) -> Candidate | None:
    for task in tasks:
        point = task.point(known.schedule.knobs) if task.spec.template == known.schedule.template else None
        if point is not None:
            return Candidate(task.spec, point)
    return None


def _verified(suggestion: Suggestion, result: TrialResult) -> Suggestion:
    if result.error is not None:
        return dataclasses.replace(suggestion, error=f"{result.failure}: {result.error}")
    return dataclasses.replace(suggestion, verified_us=result.median_us)


def load_trials(db: str | None, shipped: Path | None, warn: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return the trials of a dataset, and the trials that the package includes.

    If there are more than `MOST_TRIALS`, some are drawn at random. The best trial of each operator on a device, at a
    thread count and cache state, is always included, because other trials are compared with it and a query for this
    operator needs it. Trials with an unknown thread count (imported ones) are left out.

    Args:
        db: SQLAlchemy URL of the dataset; None: only the included trials.
        shipped: Parquet file of the included trials, in the layout of ``op-profiler export``; None: no included trials.
        warn: called with a message if trials are left out.

    Raises:
        OpProfilerError: the dataset cannot be read.
    """
    draw, rows = GroupDraw(MOST_TRIALS), list[dict[str, Any]]()
    best: dict[str, dict[str, Any]] = {}
    of_unknown_threads = 0
    for row in _trials(db, shipped):
        if row["threads"] == 0 and str(row["template"]).endswith(OWN_TEMPLATE):  # GPUs have other templates
            of_unknown_threads += 1
            continue
        if math.isfinite(time_of(row)):
            known = best.setdefault(group_of(row), row)
            if row["median_us"] < known["median_us"]:
                best[group_of(row)] = row
        if draw.takes(row["measurement_key"]):
            rows.append(row)
            if gone := draw.dropped():
                rows = [one for one in rows if one["measurement_key"] not in gone]
    gone = draw.rest()
    rows = [one for one in rows if one["measurement_key"] not in gone]
    if of_unknown_threads:
        warn(f"{of_unknown_threads:,} trials without a thread count are not used")
    if not draw.left_out:
        return rows
    of_all = f"of {len(rows) + draw.left_out:,} trials {len(rows):,}"
    warn(f"{of_all} were drawn by chance; these are used, and the best of each operator")
    drawn = {row["measurement_key"] for row in rows}
    return rows + [row for row in best.values() if row["measurement_key"] not in drawn]


def _trials(db: str | None, shipped: Path | None) -> Iterator[dict[str, Any]]:
    if db is not None:
        with Dataset.open(db, create=False, read_only=True) as dataset:
            yield from flat_rows(dataset, where="origin = 'trial'", columns=_COLUMNS)
    if shipped is not None and shipped.is_file():
        yield from parquet_rows(shipped, _COLUMNS, [("origin", "=", "trial")])


def anchor_of_key(dataset: Dataset, key: str) -> Operator | None:
    """Return the anchor whose key is `key`, or the anchor of the operator whose key is `key`; None if neither exists.

    A dataset contains only the anchors of searches; other anchors are derived from the operators that contain them.

    Raises:
        ModelError: the operator has no heavy op, or cannot be rebuilt from its description.
    """
    found = dataset.find_operator(key)
    if found is None:
        return next((anchor for anchor in _anchors(dataset) if anchor.key == key), None)
    if found.anchor not in HEAVY:
        raise ModelError(
            f"operator {key} ({found.name}) has no heavy op such as a convolution or a dense layer, and nothing else "
            "has schedules to choose from"
        )
    return compiler_in_use().described_anchor(found)


def _anchors(dataset: Dataset) -> Iterator[Operator]:
    for operator in dataset.operators_around(HEAVY):
        try:
            yield compiler_in_use().described_anchor(operator)
        except ModelError:  # the operator is of another compiler or package
            continue
