"""Rules that decide which rows of a dataset a predictor is fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.frontends.sample import AROUND_SAMPLED, shares_inputs
from op_profiler.measure.disturbance import CORES_SLOW, UNSTEADY, cores_were_apart, spoils
from op_profiler.measure.measurement import RESOURCE_FIELDS
from op_profiler.prediction.latency.scheduled import PREDICTED

if TYPE_CHECKING:
    from sqlalchemy import Select

COLUMNS = (
    *("origin", "error", "median_us", "complete", "foreign_load", "disturbed_by", *RESOURCE_FIELDS, "model_source"),
    *("op_names", "model_name", "inputs", "model_key", "cache", "executor", "call_overhead_us", "timing_details"),
)
"""Columns of the flat table that `reason_against` reads."""
DENORMAL = "in a model that computes with denormal numbers"
SHARED = "sampled with one tensor in place of several inputs"


def reason_against(row: Mapping[str, Any]) -> str | None:
    """Return why a row of the flat table is not used; None if it is used.

    A model whose operators write denormal numbers (`op_profiler.collection.denormals`) is not used: operators that read
    these numbers take up to a hundred times as long, and no description of an operator shows that.
    """
    if row["origin"] not in PREDICTED:
        return f"schedule {row['origin']}"
    if row["error"] is not None or row["median_us"] is None:
        return "failed"
    if not row["complete"]:
        return "not complete"
    if row["foreign_load"]:
        return "under background load"
    if cores_were_apart(row["timing_details"] or {}):  # times on slow cores are corrected by `steady_times`
        return "with cores further apart than usual"
    if spoils(row["disturbed_by"]):
        return UNSTEADY
    if any(row[name] is not None for name in RESOURCE_FIELDS):
        return "of a sweep"
    if row["model_source"] == "sample" and row["op_names"] in AROUND_SAMPLED:
        return "around sampled operators"
    if row["model_source"] == "sample" and shares_inputs(row["model_name"]) and _alike(row["inputs"]):
        return SHARED
    if not row["model_key"] or row["cache"] != "model" or row["executor"] == "vm":
        return "not in a model"
    if (row["timing_details"] or {}).get("denormal"):
        return DENORMAL
    if row["median_us"] <= call_us(row):
        return "shorter than its call"
    return None


def with_disturbed(rows: Iterable[Mapping[str, Any]], note: Callable[[str], None]) -> Iterator[Mapping[str, Any]]:
    """Yield all rows; remove the marks of background load and unsteady rounds from rows that are otherwise usable.

    Args:
        note: called after the last row with the number of rows whose marks were removed; not called for 0.
    """
    disturbed = 0
    for row in rows:
        unmarked = {**row, "foreign_load": False, "disturbed_by": None}
        marked = reason_against(row) is not None and reason_against(unmarked) is None
        disturbed += marked
        yield unmarked if marked else row
    if disturbed:
        note(f"{disturbed:,} of the times that are used were disturbed (background load or unsteady rounds)")


def _alike(inputs: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether two of the inputs have the same shape and dtype."""
    seen = [(tuple(tensor["shape"]), tensor["dtype"]) for tensor in inputs]
    return len(set(seen)) < len(seen)


def keys_of_devices(*, noisy: bool = False) -> Select[tuple[str]]:
    """Return the query for the keys of devices that have a usable row.

    The query applies only those rules of `reason_against` that need no JSON details of a row.

    Args:
        noisy: whether disturbed times are usable.
    """
    from sqlalchemy import and_, or_, select, true

    from op_profiler.dataset import schema

    row, setting, model = schema.measurements.c, schema.settings.c, schema.models.c
    quiet = and_(~row.foreign_load, or_(row.disturbed_by.is_(None), row.disturbed_by == CORES_SLOW))
    sampled = and_(*(schema.operators.c.op_names != names for names in AROUND_SAMPLED))
    return (
        select(row.device_key)
        .join(schema.schedules, schema.schedules.c.key == row.schedule_key)
        .join(schema.settings, setting.key == row.settings_key)
        .join(schema.models, model.key == row.model_key)
        .join(schema.operators, schema.operators.c.key == row.operator_key)
        .where(schema.schedules.c.origin.in_(PREDICTED), row.error.is_(None), row.median_us.is_not(None))
        .where(row.complete, true() if noisy else quiet, *(setting[name].is_(None) for name in RESOURCE_FIELDS))
        .where(or_(model.source != "sample", sampled))
        .where(setting.cache == "model", setting.executor != "vm")
        .distinct()
    )


def call_us(row: Mapping[str, Any]) -> float:
    """Return the call overhead that the median still contains, in microseconds.

    The result is 0 for rows with `call_overhead_us`, in which the overhead is already subtracted. In rows of earlier
    versions, it is not subtracted; the details of these rows contain the overhead of a call.
    """
    if row["call_overhead_us"] is not None:
        return 0.0
    return float((row["timing_details"] or {}).get("call_overhead_us") or 0.0)
