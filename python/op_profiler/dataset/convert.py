"""Conversions between dataclasses and rows of the tables."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from op_profiler.dataset import keys
from op_profiler.dataset.row import Row, StoredMeasurement, StoredTiming
from op_profiler.json_text import finite
from op_profiler.measure.failures import cause_of
from op_profiler.measure.measurement import Device, Measurement, ModelTiming, Settings
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.schedule import Schedule

Columns = dict[str, Any]
T = TypeVar("T")

_BESIDE = ("before_us", "after_us", "sum_of_operators_us", "coverage")
"""Columns of a model's timing that do not belong to the measurement of the whole model."""
_FACTOR = "factor_"  # stands before the names of the factors among the columns of a schedule


def to_columns(item: Operator | Schedule | Settings | Device) -> Columns:
    """Return the fields of an item as columns, with its key; each factor of a schedule becomes a separate column."""
    columns = {"key": item.key} | dataclasses.asdict(item)
    for name, value in columns.pop("factors", {}).items():
        columns[_FACTOR + name] = value
    return columns


def measurement_columns(measurement: Measurement) -> Columns:
    """Return one column per field of a measurement, the cause of its failure, and the number of rounds."""
    columns: Columns = {f.name: getattr(measurement, f.name) for f in dataclasses.fields(measurement)}
    if measurement.error is not None:
        columns["error"] = storable(measurement.error)
    columns["error_cause"] = None if measurement.error is None else cause_of(measurement.error)
    return columns | {"rounds": len(measurement.samples_us)}


def row_columns(row: Row) -> Columns:
    """Return the columns of one measurement, without ``measured_at``."""
    device_key, schedule_key = row.device.key, row.schedule.key
    return measurement_columns(row.measurement) | {
        "key": keys.measurement_key(row.operator_key, schedule_key, device_key, row.settings, row.model_key),
        "operator_key": row.operator_key,
        "schedule_key": schedule_key,
        "settings_key": row.settings.key,
        "device_key": device_key,
        "model_key": row.model_key or None,
        "complete": row.complete,
        "run_id": row.run_id,
    }


def storable(text: str) -> str:
    """Return text without NUL and unpaired surrogates, which PostgreSQL cannot store."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def timing_columns(timing: ModelTiming) -> Columns:
    """Return the columns of a model's timing, including those of `ModelTiming.whole_model`."""
    beside = {name: getattr(timing, name) for name in (*_BESIDE, "unmeasured")}
    return beside | {"details": finite(timing.details)} | measurement_columns(timing.whole_model)


def build(kind: type[T], row: Mapping[str, Any], prefix: str = "") -> T:
    """Create an instance of a dataclass from the columns with the names of its fields.

    Args:
        prefix: prefix of the column names, for rows that contain several dataclasses.
    """
    values = {name: read(row[prefix + name]) for name, read in _readers(kind).items()}  # type: ignore[arg-type]
    if kind is Schedule:
        values["factors"] = build(Factors, row, prefix + _FACTOR)
    return kind(**values)


@functools.cache
def _readers(kind: Any) -> dict[str, Callable[[Any], Any]]:
    """Return the functions that read the fields of a dataclass, by field name; a schedule's factors are left out."""
    hints = typing.get_type_hints(kind)
    return {f.name: _reader(hints[f.name]) for f in dataclasses.fields(kind) if f.name != "factors"}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return a function that converts a stored value to a type hint: JSON has no tuples, but the dataclasses do."""
    if typing.get_origin(hint) is types.UnionType:
        (read, *_) = map(_reader, typing.get_args(hint))
        return lambda value: None if value is None else read(value)
    if typing.get_origin(hint) is not tuple:
        return lambda value: value
    (inner, *_) = typing.get_args(hint)
    if inner is TensorSpec:
        return lambda tensors: tuple(TensorSpec(tuple(tensor["shape"]), tensor["dtype"]) for tensor in tensors)
    return (lambda lists: tuple(map(tuple, lists))) if typing.get_origin(inner) is tuple else tuple


def stored_measurement(row: Mapping[str, Any]) -> StoredMeasurement:
    """Return the measurement in a result row of the query `queries.measurements`."""
    return StoredMeasurement(
        **{name: row[name] for name in ("operator_key", "device_key", "complete", "measured_at", "run_id")},
        schedule=build(Schedule, row, "schedules_"),
        settings=build(Settings, row, "settings_"),
        model_key=row["model_key"] or "",
        measurement=build(Measurement, row),
    )


def stored_timing(row: Mapping[str, Any]) -> StoredTiming:
    """Return the timing in a result row of the query `queries.model_timing`."""
    beside = {name: row[name] for name in (*_BESIDE, "details")} | {"unmeasured": tuple(row["unmeasured"])}
    names = ("model_key", "device_key", "complete", "measured_at", "run_id", "project_revision", "user_revision")
    return StoredTiming(
        **{name: row[name] for name in names},
        settings=build(Settings, row, "settings_"),
        timing=ModelTiming(whole_model=build(Measurement, row), **beside),
    )


def distinct(items: Iterable[Operator | Schedule | Settings | Device]) -> Sequence[Columns]:
    """Return each item once, as columns, ordered by key, so that two processes write the items in the same order."""
    by_key = {item.key: item for item in items}
    return [to_columns(by_key[key]) for key in sorted(by_key)]
