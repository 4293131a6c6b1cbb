"""What searches found for the heavy ops of a model, as parts of a page."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from op_profiler.dataset import convert, schema
from op_profiler.dataset.statements import labelled
from op_profiler.operators.operator import Operator as Described
from op_profiler.report.page.document import Alone, Factor, Search, Trial, Tuning
from op_profiler.report.page.operators import factors_part, tensor_text
from op_profiler.schedules.schedule import OWN_TEMPLATE, Schedule

if TYPE_CHECKING:
    from op_profiler.dataset import Dataset

_BEST = 10
_FEWEST_TRIALS = 10
_MOST_STEPS = 400


def anchors_of(dataset: Dataset, operators: Sequence[Described], device_key: str) -> dict[str, list[str]]:
    """Heavy ops that were measured alone on a device, and the fused operators among `operators` that hold them.

    An operator holds an op that has the same attributes and reads tensors that it reads itself.

    Returns:
        Workload keys of operators by that of the op.
    """
    table = schema.measurements
    searched = select(table.c.operator_key).where(table.c.model_key.is_(None), table.c.device_key == device_key)
    kinds = {operator.anchor for operator in operators}
    query = select(schema.operators).where(schema.operators.c.anchor.in_(kinds), schema.operators.c.key.in_(searched))
    found: dict[str, list[str]] = {}
    for row in dataset.rows(query):
        anchor = convert.build(Described, row)
        if len(anchor.op_names) == 1:
            holders = [operator.key for operator in operators if _holds(operator, anchor)]
            if holders:
                found[anchor.key] = holders
    return found


def _holds(operator: Described, anchor: Described) -> bool:
    if operator.anchor != anchor.anchor:
        return False
    attrs = [a for name, a in zip(operator.op_names, operator.attrs) if name == anchor.anchor]
    here = Counter((*operator.inputs, *operator.params))
    return anchor.attrs[0] in attrs and not Counter((*anchor.inputs, *anchor.params)) - here


def tunings_of(
    dataset: Dataset, anchors: Mapping[str, Sequence[str]], device_key: str
) -> tuple[list[Tuning], dict[str, list[Alone]]]:
    """Searches by heavy op; and what the vendor's kernels took, by the keys of the operators that hold it."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in dataset.rows(_measured_alone(list(anchors), device_key)):
        rows.setdefault(row["operator_key"], []).append(row)
    tunings: list[Tuning] = []
    vendor: dict[str, list[Alone]] = {}
    for key, mine in rows.items():
        described = dataset.find_operator(key)
        assert described is not None
        searches = _searches(mine)
        if searches:
            tunings.append(
                Tuning(
                    key=key,
                    anchor=described.anchor,
                    shape=" · ".join(map(tensor_text, (*described.inputs, *described.params))),
                    operators=list(anchors[key]),
                    searches=searches,
                    factors=_factors(mine),
                )
            )
        vendor |= dict.fromkeys(anchors[key], _finished(mine))
    return tunings, vendor


def _measured_alone(keys: Sequence[str], device_key: str) -> Any:
    """Without the samples, of which a search has thousands."""
    table = schema.measurements.c
    names = ("operator_key", "median_us", "ci_low_us", "ci_high_us", "error", "measured_at")
    return (
        select(*(table[name] for name in names), *labelled(schema.schedules), *labelled(schema.settings))
        .join(schema.schedules, schema.schedules.c.key == table.schedule_key)
        .join(schema.settings, schema.settings.c.key == table.settings_key)
        .where(table.operator_key.in_(keys), table.device_key == device_key, table.model_key.is_(None), table.complete)
        .order_by(table.measured_at)
    )


def _finished(rows: Sequence[Mapping[str, Any]]) -> list[Alone]:
    """What is no trial: the newest of each template, origin and state of the caches."""
    times = [_alone(row) for row in rows if row["schedules_origin"] != "trial" and row["median_us"] is not None]
    return list({(one.what, one.origin, one.cache, one.threads): one for one in times}.values())


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
    )


def _searches(rows: Sequence[Mapping[str, Any]]) -> list[Search]:
    """One for each state of the caches and thread count that trials met."""
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["schedules_origin"] == "trial":
            found.setdefault((row["settings_cache"], row["settings_threads"]), []).append(row)
    searches = []
    for (cache, threads), trials in found.items():
        timed = [row for row in trials if row["median_us"] is not None]
        finalists = {  # the newest of each template: those of the last search, which ran in turns
            row["schedules_template"]: float(row["median_us"])
            for row in rows
            if (row["settings_cache"], row["settings_threads"], row["schedules_origin"]) == (cache, threads, "tuned")
            and row["median_us"] is not None
        }
        searches.append(
            Search(
                cache=cache,
                threads=threads,
                trials=len(trials),
                failed=len(trials) - len(timed),
                progress=_progress(trials),
                best=[_trial(row) for row in sorted(timed, key=lambda row: row["median_us"])[:_BEST]],
                default_us=next((us for name, us in finalists.items() if not name.endswith(OWN_TEMPLATE)), None),
                best_us=min(finalists.values(), default=None),
            )
        )
    return searches


def _progress(trials: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """By template the best so far: where it fell, and where its trials end."""
    found: dict[str, list[tuple[int, float]]] = {}
    last: dict[str, int] = {}
    for number, row in enumerate(trials, 1):
        template, us = row["schedules_template"], row["median_us"]
        last[template] = number
        steps = found.setdefault(template, [])
        if us is not None and (not steps or us < steps[-1][1]) and len(steps) < _MOST_STEPS:
            steps.append((number, us))
    for template, steps in found.items():
        if steps and steps[-1][0] != last[template]:
            steps.append((last[template], steps[-1][1]))
    return found


def _trial(row: Mapping[str, Any]) -> Trial:
    schedule = convert.build(Schedule, row, "schedules_")
    return Trial(
        template=schedule.template,
        us=row["median_us"],
        knobs=schedule.knobs,
        factors=factors_part(schedule.factors),
        error=row["error"],
    )


def _factors(rows: Sequence[Mapping[str, Any]]) -> list[Factor]:
    """Spearman's correlation of the time with each number that a schedule sets, the strongest first.

    Trials of one template under the same conditions are compared; where there are several groups, in the largest.
    """
    from scipy.stats import spearmanr

    groups: dict[tuple[Any, ...], list[tuple[dict[str, float], float]]] = {}
    for row in rows:
        if row["schedules_origin"] == "trial" and row["median_us"] is not None:
            place = row["schedules_template"], row["settings_cache"], row["settings_threads"]
            numbers = _numbers(convert.build(Schedule, row, "schedules_"))
            groups.setdefault(place, []).append((numbers, row["median_us"]))
    trials = max(groups.values(), key=len, default=[])
    found = []
    for name in dict.fromkeys(name for numbers, _ in trials for name in numbers):
        pairs = [(numbers[name], us) for numbers, us in trials if name in numbers]
        values = [value for value, _ in pairs]
        if len(pairs) >= _FEWEST_TRIALS and statistics.pvariance(values) > 0:
            result = spearmanr(values, [us for _, us in pairs])
            found.append(Factor(name=name, spearman=float(result[0]), p=float(result[1]), trials=len(pairs)))
    return sorted(found, key=lambda factor: -abs(factor.spearman))


def _numbers(schedule: Schedule) -> dict[str, float]:
    """What a schedule sets to a number: ``tile.oc``, ``fuse``."""
    found: dict[str, float] = {}
    for name, value in factors_part(schedule.factors).items():
        if isinstance(value, dict):
            found |= {f"{name}.{axis}": float(size) for axis, size in value.items()}
        elif isinstance(value, (int, float)):
            found[name] = float(value)
    return found
