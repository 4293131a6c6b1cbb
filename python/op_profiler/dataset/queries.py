"""SQL queries that the methods of `Dataset` execute."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, func, or_, select

from op_profiler.dataset import schema
from op_profiler.dataset.row import ModelIdentity
from op_profiler.dataset.statements import labelled
from op_profiler.measure.measurement import RESOURCE_FIELDS, Cache
from op_profiler.schedules.schedule import Origin


def operators(model_key: str) -> Select[Any]:
    """Select the operators of a model, with ``name_in_model`` and ``positions``."""
    link = schema.model_operators
    return (
        select(schema.operators, link.c.name.label("name_in_model"), link.c.positions)
        .join(link, link.c.operator_key == schema.operators.c.key)
        .where(link.c.model_key == model_key)
    )


def known(model_key: str, column: str) -> Select[Any]:
    """Select ``operator_key`` and `column` of ``model_operators``, for a model's operators with a value in `column`."""
    link = schema.model_operators
    known = link.c[column].is_not(None)
    return select(link.c.operator_key, link.c[column]).where(link.c.model_key == model_key, known)


def templates(model_key: str) -> Select[Any]:
    """Select ``operator_key`` and the template of the schedule that a model's build used for the operator."""
    link, schedules = schema.model_operators, schema.schedules
    return (
        select(link.c.operator_key, schedules.c.template)
        .join(schedules, schedules.c.key == link.c.schedule_key)
        .where(link.c.model_key == model_key)
    )


def measurements() -> Select[Any]:
    """Select measurements with all columns of their settings and schedules, for `convert.stored_measurement`."""
    table = schema.measurements
    return (
        select(table, *labelled(schema.settings), *labelled(schema.schedules))
        .join(schema.settings, schema.settings.c.key == table.c.settings_key)
        .join(schema.schedules, schema.schedules.c.key == table.c.schedule_key)
    )


def measurements_of(
    model_key: str, threads: int, cache: Cache, resources: Mapping[str, Any] | None, origin: Origin | None
) -> Select[Any]:
    """Select `measurements` of a model's operators; the preferred measurement of each operator is its last row.

    The arguments are those of `Dataset.measurements_of`.
    """
    table, link, wanted = schema.measurements, schema.model_operators, schema.settings.c
    context = table.c.model_key == model_key if cache == "model" else _outside_of_models()
    return (
        measurements()
        .join(link, and_(link.c.operator_key == table.c.operator_key, link.c.model_key == model_key))
        .join(schema.models, schema.models.c.key == model_key)
        .where(context, wanted.threads == threads, wanted.cache == cache, wanted.parallel_type == "sequential")
        .where(_requests_resources(resources))
        .where(_of_the_build() if origin is None else schema.schedules.c.origin == origin)
        .where(or_(schema.models.c.device_key.is_(None), table.c.device_key == schema.models.c.device_key))
        .order_by(table.c.complete, table.c.measured_at)
    )


def trials_of(operator_key: str, template: str, device_key: str, threads: int, cache: Cache) -> Select[Any]:
    """Select `measurements` of a template's candidates, except failures that the machine caused."""
    table = schema.measurements.c
    return (
        measurements()
        .where(table.operator_key == operator_key, table.device_key == device_key, table.complete)
        .where(schema.schedules.c.origin == "trial", schema.schedules.c.template == template)
        .where(table.error_cause.is_distinct_from("machine"))
        .where(schema.settings.c.threads == threads, schema.settings.c.cache == cache)
    )


def model_timing(model_key: str, threads: int, cache: Cache, resources: Mapping[str, Any] | None) -> Select[Any]:
    """Select the newest complete timing of a model, or else its newest checkpoint, for `convert.stored_timing`."""
    table, wanted = schema.model_timings, schema.settings.c
    return (
        select(table, *labelled(schema.settings))
        .join(schema.settings, schema.settings.c.key == table.c.settings_key)
        .where(table.c.model_key == model_key, wanted.threads == threads, wanted.cache == cache)
        .where(wanted.parallel_type == "sequential", _requests_resources(resources))
        .order_by(table.c.complete.desc(), table.c.measured_at.desc())
        .limit(1)
    )


def thread_counts(model_key: str, cache: Cache) -> Select[Any]:
    """Select ``threads``, the thread counts at which a model was timed in a cache state, in ascending order."""
    wanted, timing = schema.settings.c, schema.model_timings.c
    query = select(wanted.threads).join(schema.model_timings, timing.settings_key == wanted.key).distinct()
    return query.where(timing.model_key == model_key, wanted.cache == cache).order_by(wanted.threads)


def runs() -> Select[Any]:
    """Select the complete timings of all models in sequential runs with cache state ``model``.

    The columns are the fields of `ModelIdentity`, the thread count, the device, the time of storage and the revisions.
    Rows of one model are consecutive, ordered by thread count, the newest first.
    """
    timing, wanted, model, device = (
        table.c for table in (schema.model_timings, schema.settings, schema.models, schema.devices)
    )
    return (
        select(*(model[field.name] for field in dataclasses.fields(ModelIdentity)), wanted.threads)
        .add_columns(device.processor, device.compiler, timing.measured_at)
        .add_columns(timing.project_revision, timing.user_revision)
        .select_from(schema.model_timings)
        .join(schema.settings, timing.settings_key == wanted.key)
        .join(schema.models, timing.model_key == model.key)
        .join(schema.devices, timing.device_key == device.key)
        .where(
            timing.complete, wanted.cache == "model", wanted.parallel_type == "sequential", _requests_resources(None)
        )
        .order_by(model.name, model.added_at, model.key, wanted.threads, timing.measured_at.desc())
    )


def counts() -> Select[Any]:
    """Select one row with the number of rows of each table, and of complete and failed measurements."""
    tables = (schema.devices, schema.models, schema.operators, schema.schedules, schema.model_timings)
    columns = [select(func.count()).select_from(t).scalar_subquery().label(t.name) for t in tables]
    result = schema.measurements.c
    return select(
        *columns,
        func.count().label("measurements"),
        func.count(case((result.complete, 1))).label("complete"),
        func.count(result.error).label("failed"),
    ).select_from(schema.measurements)


def _requests_resources(resources: Mapping[str, Any] | None) -> ColumnElement[bool]:
    """Return the condition that settings request exactly these resources, given as values by names in `Settings`."""
    wanted, columns = resources or {}, schema.settings.c
    left_alone = [columns[name].is_(None) for name in RESOURCE_FIELDS if name not in wanted]
    return and_(*left_alone, *(columns[name] == value for name, value in wanted.items()))


def _outside_of_models() -> ColumnElement[bool]:
    """Return the condition for measurements outside of models, with the precision and executor of the model."""
    model, wanted = schema.models.c, schema.settings.c
    executor = case((model.executor == "default", "graph"), else_=model.executor)  # in the words of `Settings`
    alike = and_(wanted.precision == model.precision, wanted.executor == executor)
    return and_(schema.measurements.c.model_key.is_(None), alike)


def _of_the_build() -> ColumnElement[bool]:
    """Return the condition for the schedule that the model's build uses; if unknown, for default or tuned schedules."""
    given = schema.model_operators.c.schedule_key
    usual = schema.schedules.c.origin.in_(("default", "tuned"))
    return or_(given == schema.schedules.c.key, and_(given.is_(None), usual))
