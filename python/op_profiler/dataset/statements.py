"""Parts of SQL statements that several modules use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table


def labelled(table: Table) -> list[Any]:
    """Return all columns of a table, labelled ``TABLE_COLUMN``, so that names are unique in a join."""
    return [column.label(f"{table.name}_{column.name}") for column in table.c]


def insert(connection: Connection, table: Table) -> Any:
    """Return an INSERT of the database's dialect, which can define what happens to existing rows (ON CONFLICT)."""
    if connection.dialect.name == "sqlite":
        from sqlalchemy.dialects import sqlite

        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # a tenth of the time that SQLAlchemy takes to import

    return postgresql.insert(table)


def upsert(
    connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], *, replace: Sequence[str] = ()
) -> None:
    """Insert rows; in rows that exist already (by primary key), update only the columns `replace`."""
    if not rows:
        return
    statement, keys = insert(connection, table), list(table.primary_key.columns)
    if replace:
        changes = {name: statement.excluded[name] for name in replace}
        statement = statement.on_conflict_do_update(index_elements=keys, set_=changes)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=keys)
    connection.execute(statement, rows)
