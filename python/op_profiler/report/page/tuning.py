"""Searches for the heavy ops of a model on a page."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Select, select

from op_profiler.dataset import convert, schema
from op_profiler.dataset.draw import GroupDraw
from op_profiler.dataset.statements import labelled
from op_profiler.operators.operator import Operator as Described
from op_profiler.report.page.document import Alone, FactorPart, SearchPart, TrialPart, Tuning
from op_profiler.report.page.operators import factors_part, tensor_text
from op_profiler.schedules.schedule import OWN_TEMPLATE, Schedule

if TYPE_CHECKING:
    from op_profiler.dataset import Dataset

_BEST = 10
_FEWEST_TRIALS = 10
_MOST_STEPS = 400
_MOST_COMPARED = 5000
_ROWS = 1000  # that are read at a time

_Row = Mapping[str, Any]
_Place = tuple[str, str, int]  # template, state of the caches, thread count


def anchors_of(dataset: Dataset, operators: Sequence[Described], device_key: str) -> dict[str, list[str]]:
    """Return the heavy ops that were measured in isolation on a device, with the fused operators that contain them.

    An operator counts as containing a heavy op if one of its ops has the same attributes, and if the operator itself
    reads all tensors that the heavy op reads.

    Returns:
        Workload keys of the fused operators, by the workload key of the heavy op.
    """
    table = schema.measurements
    searched = select(table.c.operator_key).where(table.c.model_key.is_(None), table.c.device_key == device_key)
    kinds = {operator.anchor for operator in operators}
    query = select(schema.operators).where(schema.operators.c.anchor.in_(kinds), schema.operators.c.key.in_(searched))
    found: dict[str, list[str]] = {}
    for row in _read(dataset, query):
        anchor = convert.build(Described, row)
        if len(anchor.op_names) == 1:
            holders = [operator.key for operator in operators if _holds(operator, anchor)]
            if holders:
                found[anchor.key] = holders
    return found


def _read(dataset: Dataset, query: Select[Any]) -> Iterator[_Row]:
    with dataset.read() as connection:
        yield from cast("Iterable[_Row]", connection.execute(query.execution_options(yield_per=_ROWS)).mappings())


def _holds(operator: Described, anchor: Described) -> bool:
    if operator.anchor != anchor.anchor:
        return False
    attrs = [a for name, a in zip(operator.op_names, operator.attrs) if name == anchor.anchor]
    here = Counter((*operator.inputs, *operator.params))
    return anchor.attrs[0] in attrs and not Counter((*anchor.inputs, *anchor.params)) - here


def tunings_of(
    dataset: Dataset, anchors: Mapping[str, Sequence[str]], device_key: str
) -> tuple[list[Tuning], dict[str, list[Alone]]]:
    """Return the searches for the heavy ops in `anchors`, and their latest times in isolation that are not trials.

    Only what a page shows is kept in memory, because a search may have any number of trials.

    Args:
        anchors: result of `anchors_of`.

    Returns:
        One `Tuning` for each heavy op with trials; and the times of heavy ops (vendor's kernels, tuned and other
        schedules) by the key of each fused operator that contains the heavy op.
    """
    tunings: list[Tuning] = []
    vendor: dict[str, list[Alone]] = {}
    for key, holders in anchors.items():
        described = dataset.find_operator(key)
        assert described is not None
        times = _Times()
        for row in _read(dataset, _measured_alone(key, device_key)):
            times.note(row)
        if times.searches:
            tunings.append(
                Tuning(
                    key=key,
                    anchor=described.anchor,
                    shape=" · ".join(map(tensor_text, (*described.inputs, *described.params))),
                    operators=list(holders),
                    searches=[search.part(times.finalists) for search in times.searches.values()],
                    factors=times.factors(),
                )
            )
        if times.finished:
            vendor |= dict.fromkeys(holders, list(times.finished.values()))
    return tunings, vendor


def _measured_alone(key: str, device_key: str) -> Select[Any]:
    """Return measurements in isolation without samples, because a search has thousands of them."""
    table = schema.measurements.c
    names = ("key", "median_us", "ci_low_us", "ci_high_us", "foreign_load", "disturbed_by", "error")
    return (
        select(*(table[name] for name in names), *labelled(schema.schedules), *labelled(schema.settings))
        .join(schema.schedules, schema.schedules.c.key == table.schedule_key)
        .join(schema.settings, schema.settings.c.key == table.settings_key)
        .where(table.operator_key == key, table.device_key == device_key, table.model_key.is_(None), table.complete)
        .order_by(table.measured_at)
    )


class _Times:
    """The times of one op in isolation that a page shows; times are added in order of age, the oldest first.

    Attributes:
        finished: the latest measurements that are not trials, by template, origin and cache state.
        finalists: latest time of a tuned schedule in microseconds, by template, cache state and thread count; the times
            of one search were measured alternately.
        searches: one search for each cache state and thread count of the trials.
    """

    def __init__(self) -> None:
        self.finished: dict[tuple[Any, ...], Alone] = {}
        self.finalists: dict[_Place, float] = {}
        self.searches: dict[tuple[str, int], _SearchRows] = {}
        self._compared: dict[_Place, _ComparableTrials] = {}

    def note(self, row: _Row) -> None:
        """Add a row."""
        place = row["schedules_template"], row["settings_cache"], row["settings_threads"]
        timed = row["median_us"] is not None
        if row["schedules_origin"] == "trial":
            self.searches.setdefault(place[1:], _SearchRows(*place[1:])).note(row)
            if timed:
                self._compared.setdefault(place, _ComparableTrials()).note(row)
        elif timed:
            one = _alone(row)
            self.finished[one.what, one.origin, one.cache, one.threads] = one
            if row["schedules_origin"] == "tuned":
                self.finalists[place] = float(row["median_us"])

    def factors(self) -> list[FactorPart]:
        """Return the correlations of the time with properties of the schedule, the strongest first.

        They are computed from the largest set of trials that have the same template and conditions.
        """
        most = max(self._compared.values(), key=lambda one: one.count, default=None)
        return most.factors() if most is not None else []


class _SearchRows:
    """Trials of one search under the same conditions."""

    def __init__(self, cache: str, threads: int) -> None:
        self._place = cache, threads
        self._trials = self._failed = 0
        self._best: list[_Row] = []
        self._steps: dict[str, list[tuple[int, float]]] = {}  # by template: where the best so far fell
        self._last: dict[str, int] = {}

    def note(self, row: _Row) -> None:
        """Add a trial."""
        template, us = row["schedules_template"], row["median_us"]
        self._trials += 1
        self._last[template] = self._trials
        steps = self._steps.setdefault(template, [])
        if us is None:
            self._failed += 1
            return
        self._best = sorted([*self._best, row], key=lambda one: float(one["median_us"]))[:_BEST]
        if (not steps or us < steps[-1][1]) and len(steps) < _MOST_STEPS:
            steps.append((self._trials, us))

    def part(self, finalists: Mapping[_Place, float]) -> SearchPart:
        """Return the search as a part of the page."""
        mine = {template: us for (template, *place), us in finalists.items() if tuple(place) == self._place}
        return SearchPart(
            cache=self._place[0],
            threads=self._place[1],
            trials=self._trials,
            failed=self._failed,
            progress={template: self._to_its_end(template) for template in self._steps},
            best=[_trial(row) for row in self._best],
            default_us=next((us for name, us in mine.items() if not name.endswith(OWN_TEMPLATE)), None),
            best_us=min(mine.values(), default=None),
        )

    def _to_its_end(self, template: str) -> list[tuple[int, float]]:
        """Return pairs of the number of a trial and the best time so far: for each improvement, and for the template's
        last trial."""
        steps, last = self._steps[template], self._last[template]
        return [*steps, (last, steps[-1][1])] if steps and steps[-1][0] != last else steps


class _ComparableTrials:
    """Trials of one template under the same conditions; a random subset of `_MOST_COMPARED` is kept."""

    def __init__(self) -> None:
        self.count = 0
        self._draw = GroupDraw(_MOST_COMPARED)
        self._trials: dict[str, tuple[dict[str, float], float]] = {}

    def note(self, row: _Row) -> None:
        """Add a trial that has a time."""
        self.count += 1
        if self._draw.takes(row["key"]):
            self._trials[row["key"]] = _numbers(convert.build(Schedule, row, "schedules_")), float(row["median_us"])
            for key in self._draw.dropped():
                del self._trials[key]

    def factors(self) -> list[FactorPart]:
        """Return Spearman's correlation of the time with each numeric property of a schedule, the strongest first."""
        from scipy.stats import spearmanr

        for key in self._draw.rest():
            del self._trials[key]
        trials, found = list(self._trials.values()), []
        for name in dict.fromkeys(name for numbers, _ in trials for name in numbers):
            pairs = [(numbers[name], us) for numbers, us in trials if name in numbers]
            values = [value for value, _ in pairs]
            if len(pairs) >= _FEWEST_TRIALS and statistics.pvariance(values) > 0:
                result = spearmanr(values, [us for _, us in pairs])
                found.append(FactorPart(name=name, spearman=float(result[0]), p=float(result[1]), trials=len(pairs)))
        return sorted(found, key=lambda factor: -abs(factor.spearman))


def _alone(row: Mapping[str, Any]) -> Alone:
    knobs = row["schedules_knobs"] or {}
    vendor = row["schedules_origin"] == "vendor"
    return Alone(
        what=str(knobs.get("kernel", row["schedules_template"])) if vendor else row["schedules_template"],
        origin=row["schedules_origin"],
        cache=row["settings_cache"],
        threads=row["settings_threads"],
        of_anchor=True,
        median_us=row["median_us"],
        low_us=row["ci_low_us"],
        high_us=row["ci_high_us"],
        disturbed=bool(row["foreign_load"] or row["disturbed_by"]),
    )


def _trial(row: Mapping[str, Any]) -> TrialPart:
    schedule = convert.build(Schedule, row, "schedules_")
    return TrialPart(
        template=schedule.template,
        us=row["median_us"],
        knobs=schedule.knobs,
        factors=factors_part(schedule.factors),
        error=row["error"],
    )


def _numbers(schedule: Schedule) -> dict[str, float]:
    """Return the numeric properties of a schedule: ``tile.oc``, ``fuse``."""
    found: dict[str, float] = {}
    for name, value in factors_part(schedule.factors).items():
        if isinstance(value, dict):
            found |= {f"{name}.{axis}": float(size) for axis, size in value.items()}
        elif isinstance(value, (int, float)):
            found[name] = float(value)
    return found
