"""Summarizes the contents of a dataset by model, and removes models."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    Table,
    case,
    cast,
    delete,
    false,
    func,
    or_,
    select,
    text,
    true,
)

from op_profiler.dataset import schema
from op_profiler.dataset.row import ModelIdentity
from op_profiler.dataset.store import Dataset


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelContents(ModelIdentity):
    """One model of a dataset, with the numbers of its measurements.

    Attributes:
        device: processor on which the whole model was timed; None if it was not timed.
        compiler, pipeline: compiler and pipeline of its kernels; None if unknown.
        tuned: whether its build used schedule records; None if unknown.
        threads: thread counts at which the whole model was timed, completely or not.
        operators: number of distinct operators.
        measured: number of operator measurements with a time; an operator counts once per combination of settings.
        failed: number of failed measurements of operators and of the whole model.
        foreign_load: number of times in `measured` that were measured under background load.
        unsettled: number of times in `measured` that did not converge.
        unfinished: number of checkpoints of operator measurements in runs that did not finish.
        added_at: when the model was first stored, UTC, ISO 8601.
    """

    device: str | None
    compiler: str | None
    pipeline: str | None
    tuned: bool | None
    threads: tuple[int, ...]
    operators: int
    measured: int
    failed: int
    foreign_load: int
    unsettled: int
    unfinished: int
    added_at: str


@dataclasses.dataclass(frozen=True)
class Contents:
    """Summary of the contents of a dataset.

    Attributes:
        version: version of the tables.
        size_bytes: size of the SQLite file, or of the tables in PostgreSQL.
        devices: for each device its ``key``, ``kind``, ``processor``, ``cores``, and the number of its measurements
            (``rows``).
        elsewhere: number of measurements outside models (hot or cold caches, trials, tuned, vendor), by the origin of
            the schedule.
        coruns: number of groups of operators that ran side by side.
        failures: number of all failures, including failures of operators with a time from another run.
    """

    version: int
    size_bytes: int
    devices: tuple[dict[str, Any], ...]
    models: tuple[ModelContents, ...]
    elsewhere: dict[str, int]
    coruns: int
    failures: int


def contents(dataset: Dataset) -> Contents:
    """Return a summary of the contents of a dataset.

    Raises:
        DatasetError: the database cannot be read.
    """
    measured, devices = schema.measurements, schema.devices.c
    per_device = select(devices.key, devices.kind, devices.processor, devices.cores)
    per_device = per_device.order_by(devices.processor, devices.key)
    outside = (
        select(schema.schedules.c.origin, func.count().label("n"))
        .join(schema.schedules, schema.schedules.c.key == measured.c.schedule_key)
        .where(measured.c.model_key.is_(None))
        .group_by(schema.schedules.c.origin)
    )
    with dataset.read() as connection:
        counts = [dict(row) for row in dataset.rows(_counted(schema.measurements))]
        rows: collections.Counter[str] = collections.Counter()
        for count in counts:
            rows[count["device_key"]] += count["rows"]
        return Contents(
            version=schema.VERSION,
            size_bytes=_size_bytes(connection),
            devices=tuple({**device, "rows": rows[device["key"]]} for device in dataset.rows(per_device)),
            models=_models(dataset, counts),
            elsewhere={row["origin"]: row["n"] for row in dataset.rows(outside)},
            coruns=connection.execute(select(func.count()).select_from(schema.coruns)).scalar_one(),
            failures=connection.execute(select(func.count()).select_from(schema.failures)).scalar_one(),
        )


def _size_bytes(connection: Connection) -> int:
    if connection.dialect.name == "sqlite":
        pages, size = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("page_count", "page_size")
        )
        return int(pages) * int(size)
    sizes = [
        connection.execute(text("SELECT pg_total_relation_size(to_regclass(:name))"), {"name": name}).scalar_one()
        for name in schema.metadata.tables
    ]
    return sum(map(int, sizes))


def _counted(table: Table) -> Select[Any]:
    """Select the number of rows of each kind (with a time, failed, not converged, ...), by model and device.

    The subquery counts rows that are equal in all these columns, if possible in the order of an index, and the
    conditions are checked once per count: checking them for each row takes twice as long.
    """
    names = ("model_key", "device_key", "complete", "error_cause", "foreign_load", "settled")
    columns = [table.c[name] for name in names]
    alike = select(*columns, func.count().label("rows")).group_by(*columns).subquery("alike")
    failed = alike.c.error_cause.is_not(None)
    timed = alike.c.complete & ~failed

    def rows(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return cast(func.sum(case((condition, alike.c.rows), else_=0)), BigInteger)

    return select(
        alike.c.model_key,
        alike.c.device_key,
        rows(true()).label("rows"),
        rows(timed).label("measured"),
        rows(failed).label("failed"),
        rows(timed & alike.c.foreign_load).label("foreign_load"),
        rows(timed & alike.c.settled.is_(false())).label("unsettled"),
        rows(alike.c.complete.is_(false())).label("unfinished"),
    ).group_by(alike.c.model_key, alike.c.device_key)


def _by_model(counts: Sequence[Mapping[str, Any]]) -> dict[str | None, collections.Counter[str]]:
    """Return the counts of `_counted` by model, summed over devices."""
    found: dict[str | None, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for row in counts:
        found[row["model_key"]].update({name: n for name, n in row.items() if name not in ("model_key", "device_key")})
    return found


def _models(dataset: Dataset, counts: Sequence[Mapping[str, Any]]) -> tuple[ModelContents, ...]:
    operators, wholes = _by_model(counts), _by_model(dataset.rows(_counted(schema.model_timings)))
    timing, link = schema.model_timings.c, schema.model_operators.c
    used = select(timing.model_key, schema.settings.c.threads, schema.devices.c.processor).distinct()
    used = used.select_from(schema.model_timings).join(schema.settings).join(schema.devices)
    threads: dict[str, set[int]] = {}
    processors: dict[str, str] = {}
    for row in dataset.rows(used):
        threads.setdefault(row["model_key"], set()).add(row["threads"])
        processors[row["model_key"]] = row["processor"]
    per_model = select(link.model_key, func.count().label("n")).group_by(link.model_key)
    distinct = {row["model_key"]: row["n"] for row in dataset.rows(per_model)}
    compilers = {
        row["key"]: row["compiler"] for row in dataset.rows(select(schema.devices.c.key, schema.devices.c.compiler))
    }
    table = schema.models.c
    columns = [table[name] for name in (*(field.name for field in dataclasses.fields(ModelIdentity)), "added_at")]
    found = []
    for row in dataset.rows(
        select(*columns, table.base_key, table.device_key, table.recipe).order_by(table.name, table.added_at)
    ):
        model = {column.name: row[column.name] for column in columns}
        key, asked = model["key"], (row["recipe"] or {}).get("request", {})
        rows = operators[key]
        found.append(
            ModelContents(
                **model,
                device=processors.get(key),
                compiler=compilers.get(row["device_key"]),
                pipeline=asked.get("pipeline"),
                tuned=None if row["base_key"] is None else row["base_key"] != key,
                threads=tuple(sorted(threads.get(key, ()))),
                operators=distinct.get(key, 0),
                failed=rows["failed"] + wholes[key]["failed"],
                measured=rows["measured"],
                foreign_load=rows["foreign_load"],
                unsettled=rows["unsettled"],
                unfinished=rows["unfinished"],
            )
        )
    return tuple(found)


def remove_models(dataset: Dataset, keys: Collection[str]) -> dict[str, int]:
    """Remove models with all measurements inside them, in one transaction.

    Measurements outside models (times with hot or cold caches, trials, tuned schedules) and their operators are kept.
    Co-runs are removed if one of their members belongs to a removed model.

    Returns:
        Number of removed rows by table.

    Raises:
        DatasetError: the database fails; then nothing was changed.
    """
    member = schema.corun_members
    groups = select(member.c.corun_key).where(member.c.model_key.in_(keys))
    without_members = select(schema.coruns.c.key).where(schema.coruns.c.key.not_in(select(member.c.corun_key)))
    with dataset.transaction() as connection:
        removed = {
            table.name: connection.execute(delete(table).where(column.in_(values))).rowcount
            for table, column, values in (
                (member, member.c.corun_key, groups),
                (schema.coruns, schema.coruns.c.key, without_members),
                (schema.failures, schema.failures.c.model_key, keys),
                (schema.measurements, schema.measurements.c.model_key, keys),
                (schema.model_timings, schema.model_timings.c.model_key, keys),
                (schema.model_operators, schema.model_operators.c.model_key, keys),
                (schema.explanations, schema.explanations.c.model_key, keys),
                (schema.models, schema.models.c.key, keys),
            )
        }
        for table in (schema.operators, schema.schedules, schema.settings):
            removed[table.name] = connection.execute(_unused(table)).rowcount
    return removed


def _unused(table: Table) -> Any:
    """Return a statement that deletes the rows to which no other table refers."""
    name = {"operators": "operator_key", "schedules": "schedule_key", "settings": "settings_key"}[table.name]
    users = [other for other in schema.metadata.tables.values() if name in other.c]
    used = [table.c.key.in_(select(other.c[name]).where(other.c[name].is_not(None))) for other in users]
    return delete(table).where(~or_(*used))
