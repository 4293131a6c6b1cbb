"""Parts of the statements that the store is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, and_, case, or_, select
from sqlalchemy.dialects import postgresql, sqlite

from op_profiler.dataset import schema
from op_profiler.measure._base import RESOURCES


def asked_for(resources: Mapping[str, Any] | None) -> ColumnElement[bool]:
    """Settings with these values, by their names in `Settings`, and without a wish for the rest of `RESOURCES`."""
    wanted, columns = resources or {}, schema.settings.c
    left_alone = [columns[name].is_(None) for name in RESOURCES if name not in wanted]
    return and_(*left_alone, *(columns[name] == value for name, value in wanted.items()))


def outside_of_models() -> ColumnElement[bool]:
    """Measured in no model's context, with the precision and the executor of the model that is asked about."""
    model, wanted = schema.models.c, schema.settings.c
    executor = case((model.executor == "default", "graph"), else_=model.executor)  # in the words of `Settings`
    alike = and_(wanted.precision == model.precision, wanted.executor == executor)
    return and_(schema.measurements.c.model_key.is_(None), alike)


def of_the_build() -> ColumnElement[bool]:
    """The schedule that the build of the model gave the operator; where that is not known, any that a build gives."""
    given = schema.model_operators.c.schedule_key
    usual = schema.schedules.c.origin.in_(("default", "tuned"))
    return or_(given == schema.schedules.c.key, and_(given.is_(None), usual))


def labelled(table: Table) -> list[Any]:
    """All columns of a table with its name in front, to stand beside those of another."""
    return [column.label(f"{table.name}_{column.name}") for column in table.c]


def select_measurements() -> Select[Any]:
    """Measurements with all columns of their settings and schedules, for `convert.stored_measurement`."""
    table = schema.measurements
    return (
        select(table, *labelled(schema.settings), *labelled(schema.schedules))
        .join(schema.settings, schema.settings.c.key == table.c.settings_key)
        .join(schema.schedules, schema.schedules.c.key == table.c.schedule_key)
    )


def insert(connection: Connection, table: Table) -> Any:
    """An INSERT that can say what happens to rows that are there already."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    return dialect.insert(table)


def upsert(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], *, replace: Sequence[str] = ()
) -> None:
    """Insert rows; of those that are there already, renew the columns `replace`."""
    if not rows:
        return
    statement = insert(connection, table)
    if replace:
        changes = {name: statement.excluded[name] for name in replace}
        statement = statement.on_conflict_do_update(index_elements=["key"], set_=changes)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=["key"])
    connection.execute(statement, rows)
