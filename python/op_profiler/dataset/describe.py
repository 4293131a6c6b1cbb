"""Creates two tables that describe a dataset: one of its operators, one of its hardware and settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Select, and_, func, select

from op_profiler.dataset import schema
from op_profiler.dataset.store import Dataset
from op_profiler.measure.measurement import RESOURCE_FIELDS, effective
from op_profiler.option_values import size_text


@dataclasses.dataclass(frozen=True)
class Table:
    """A table to print; every cell is text."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def operator_table(dataset: Dataset, *, model_key: str | None = None) -> Table:
    """Return one row for each measured operator and schedule; operators without a measurement have one row without a
    schedule.

    Args:
        model_key: only the operators of this model; None: all operators.

    Raises:
        DatasetError: the database cannot be read.
    """
    headers = ("main op", "models", "input data", "parameter data", "schedule configuration")
    models: dict[str, list[str]] = {}
    for use in dataset.rows(_uses(model_key)):
        models.setdefault(use["operator_key"], []).append(f"{use['name']} x{use['occurrences']}")
    rows = [
        (
            row["anchor"],
            ", ".join(dict.fromkeys(models.get(row["key"], ()))),
            _tensors(row["inputs"]),
            _tensors(row["params"]),
            _schedule(row),
        )
        for row in dataset.rows(_operators_with_schedules(model_key))
    ]
    return Table(headers, tuple(rows))


def hardware_table(dataset: Dataset, *, model_key: str | None = None) -> Table:
    """Return one row per hardware setting, with the requested values and the effective values.

    Args:
        model_key: only measurements of operators inside this model; None: all measurements.

    Raises:
        DatasetError: the database cannot be read.
    """
    settings = dataset.rows(_used(schema.settings, "settings_key", model_key))
    devices = dataset.rows(_used(schema.devices, "device_key", model_key))
    limits = dataset.rows(_limits(model_key))[0]
    rows = [
        ("processor", _each(devices, "processor"), f"{_each(devices, 'cores')} cores, {_clock(devices)}"),
        ("caches L1, L2, L3", "; ".join(dict.fromkeys(map(_caches, devices))), ""),
        ("memory", ", ".join(dict.fromkeys(_known_size(d["memory_bytes"]) for d in devices)), _moved(limits)),
        ("threads", _each(settings, "threads"), f"{_each(settings, 'threads_effective')} running"),
        ("core set", _each(settings, "core_set"), _each(settings, "core_set_effective")),
        *_resources(settings),
        ("cache", _each(settings, "cache"), _each(settings, "cache_mechanism")),
        ("parallel type", _each(settings, "parallel_type"), f"{_each(settings, 'streams')} streams"),
        ("precision", _each(settings, "precision"), ""),
        ("executor", _each(settings, "executor"), ""),
        ("load of others", "0 to 1", _range(*_least_and_most(limits), ".2f")),
        ("energy per call", "", _range(limits["energy_least"], limits["energy_most"], ".3f", " mJ")),
    ]
    return Table(("hardware setting", "range", "resource usage"), tuple(rows))


def _uses(model_key: str | None) -> Select[Any]:
    """Select the pairs of an operator and a model that calls it; only operators of one model if a key is given."""
    link, models = schema.model_operators.c, schema.models
    query = select(link.operator_key, link.occurrences, models.c.name).join(models, models.c.key == link.model_key)
    if model_key is not None:
        query = query.where(link.operator_key.in_(select(link.operator_key).where(link.model_key == model_key)))
    return query.order_by(models.c.name)


def _operators_with_schedules(model_key: str | None) -> Select[Any]:
    table, measured, schedules = schema.operators, schema.measurements, schema.schedules
    query = (
        select(table, schedules.c.template, schedules.c.knobs, schedules.c.origin)
        .outerjoin(measured, measured.c.operator_key == table.c.key)
        .outerjoin(schedules, schedules.c.key == measured.c.schedule_key)
        .distinct()
        .order_by(table.c.anchor, table.c.key, schedules.c.origin, schedules.c.template)
    )
    if model_key is None:
        return query
    link = schema.model_operators.c
    return query.join(schema.model_operators, and_(link.operator_key == table.c.key, link.model_key == model_key))


def _used(table: Any, column: str, model_key: str | None) -> Select[Any]:
    keys = select(schema.measurements.c[column])
    if model_key is not None:
        keys = keys.where(schema.measurements.c.model_key == model_key)
    order = (table.c.threads, table.c.key) if "threads" in table.c else (table.c.key,)
    return select(table).where(table.c.key.in_(keys)).order_by(*order)


def _least_and_most(limits: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the smallest and the largest background load before or after the measurements."""
    read = [limits[f"{which}_{when}"] for which in ("least", "most") for when in ("before", "after")]
    known = [load for load in read if load is not None]
    return min(known, default=None), max(known, default=None)


def _limits(model_key: str | None) -> Select[Any]:
    measured, operators = schema.measurements.c, schema.operators.c
    moved = operators.bytes_read + operators.bytes_written
    query = (
        select(
            func.min(measured.load_before).label("least_before"),
            func.max(measured.load_before).label("most_before"),
            func.min(measured.load_after).label("least_after"),
            func.max(measured.load_after).label("most_after"),
            func.min(measured.energy_mj).label("energy_least"),
            func.max(measured.energy_mj).label("energy_most"),
            func.max(moved).label("most_moved_bytes"),
        )
        .select_from(schema.measurements)
        .join(schema.operators, operators.key == measured.operator_key)
    )
    return query if model_key is None else query.where(measured.model_key == model_key)


def _tensors(tensors: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(f"{tensor['dtype']}[{'x'.join(map(str, tensor['shape']))}]" for tensor in tensors)


def _schedule(row: Mapping[str, Any]) -> str:
    if row["origin"] is None:
        return "not measured"
    knobs = ", ".join(f"{name}={value}" for name, value in row["knobs"].items())
    name = row["template"] if row["template"] == row["origin"] else f"{row['template']} ({row['origin']})"
    return f"{name}: {knobs}" if knobs else name


def _each(rows: Iterable[Mapping[str, Any]], column: str) -> str:
    """Return the distinct values of a column as text, separated by commas, in order of appearance."""
    values = [row[column] for row in rows if row[column] not in (None, "", [])]
    return ", ".join(dict.fromkeys(map(str, values)))


def _resources(settings: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return a table row for each of `RESOURCE_FIELDS` that has a requested or an effective value."""
    rows = [
        (name.replace("_", " "), _each(settings, name), _each(settings, effective(name))) for name in RESOURCE_FIELDS
    ]
    return [row for row in rows if row[1] or row[2]]


def _clock(devices: Iterable[Mapping[str, Any]]) -> str:
    clocks = [device["clock_mhz"] for device in devices if device["clock_mhz"] is not None]
    return f"{_range(min(clocks), max(clocks), '.0f', ' MHz')}" if clocks else "clock unknown"


def _caches(device: Mapping[str, Any]) -> str:
    return ", ".join(_known_size(device[f"l{level}_bytes"]) for level in (1, 2, 3))


def _known_size(count: int | None) -> str:
    return "unknown" if count is None else size_text(count)


def _moved(limits: Mapping[str, Any]) -> str:
    most = limits["most_moved_bytes"]
    return "" if most is None else f"up to {size_text(most)} read and written by one operator"


def _range(least: float | None, most: float | None, form: str, unit: str = "") -> str:
    if least is None or most is None:
        return "not measured"
    low, high = f"{least:{form}}", f"{most:{form}}"
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"
