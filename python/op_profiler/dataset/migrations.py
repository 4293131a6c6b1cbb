"""Creates the tables of a dataset, and upgrades tables of older versions.

Tables only grow: new tables and columns are created from `schema`, so they need no code in this module. A step in
`STEPS` is needed only if existing rows get values in a new column, or if a change is not an addition.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable

from sqlalchemy import Connection, inspect, text
from sqlalchemy.schema import CreateColumn

from op_profiler.dataset import schema
from op_profiler.measure.failures import cause_of
from op_profiler.schedules.factors import factors_of_knobs

_IS_THERE = {
    "sqlite": f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{schema.schema_version.name}'",
    # Of the catalogue, which shows what another process has made meanwhile; `to_regclass` remembers what was not there.
    "postgresql": f"SELECT 1 FROM pg_class WHERE relname = '{schema.schema_version.name}' AND pg_table_is_visible(oid)",
}


def stored_version(connection: Connection) -> int | None:
    """Return the version of the tables in a database; None if the database has no tables of op_profiler."""
    # Plain SQL: an engine is new for each dataset that is opened, and compiling takes longer than asking.
    if connection.exec_driver_sql(_IS_THERE[connection.dialect.name]).scalar() is None:
        return None
    return version_of(connection)


def version_of(connection: Connection) -> int | None:
    """Return the version of op_profiler's tables in a database; if they do not exist, SQLAlchemy raises an error."""
    found = connection.exec_driver_sql(f"SELECT version FROM {schema.schema_version.name}").scalar()
    return None if found is None else int(found)


def foreign_tables(connection: Connection) -> list[str]:
    """Return the tables of another program, which prevent creating op_profiler's tables in a database.

    A SQLite file belongs to one program, so any table counts; a PostgreSQL database may be shared.
    """
    present = inspect(connection).get_table_names()
    if connection.dialect.name == "sqlite":
        return present
    return [name for name in present if name in schema.metadata.tables]


def create(connection: Connection, now: str) -> None:
    """Create all tables in an empty database, inside the caller's transaction; `now` is stored as the creation time."""
    schema.metadata.create_all(connection)
    connection.execute(schema.schema_version.insert(), {"version": schema.VERSION, "since": now})


def is_complete(connection: Connection) -> bool:
    """Return whether all tables and columns exist.

    They may be missing even in the newest version, because a version that is not released yet may get new columns.
    """
    tables = schema.metadata.tables
    names = ", ".join(f"'{name}'" for name in tables)
    # In one statement: every dataset that is opened is asked.
    columns = {
        "sqlite": "SELECT t.name, c.name FROM sqlite_master AS t, pragma_table_info(t.name) AS c "
        f"WHERE t.type = 'table' AND t.name IN ({names})",
        "postgresql": "SELECT relname, attname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
        f"WHERE attnum > 0 AND NOT attisdropped AND relname IN ({names}) AND pg_table_is_visible(attrelid)",
    }
    there = {tuple(row) for row in connection.exec_driver_sql(columns[connection.dialect.name])}
    return there.issuperset((table.name, column.name) for table in tables.values() for column in table.columns)


def upgrade(connection: Connection, found: int, now: str) -> None:
    """Upgrade a database from version `found` to the newest one, inside the caller's transaction; no row is lost."""
    _add_what_is_missing(connection)
    for version in range(found, schema.VERSION):
        for step in STEPS.get(version, ()):
            step(connection)
    connection.execute(schema.schema_version.update().values(version=schema.VERSION, since=now))


def _add_what_is_missing(connection: Connection) -> None:
    """Add tables and columns that `schema` has and the database does not have."""
    schema.metadata.create_all(connection)
    for table in schema.metadata.sorted_tables:
        present = {column["name"] for column in inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in present:
                declared = CreateColumn(column).compile(dialect=connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {declared}")


def _allow_unknown_cores(connection: Connection) -> None:
    """Allow NULL for the number of cores, which devices of imported measurements do not have.

    SQLite cannot drop NOT NULL from a column; its documentation describes editing the text of the table
    (https://sqlite.org/lang_altertable.html, section 7).
    """
    if connection.dialect.name != "sqlite":
        connection.execute(text("ALTER TABLE devices ALTER COLUMN cores DROP NOT NULL"))
        return
    version = connection.exec_driver_sql("PRAGMA schema_version").scalar_one()
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, 'cores INTEGER NOT NULL', 'cores INTEGER') "
        "WHERE type = 'table' AND name = 'devices'"
    )
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = OFF")


def _fill_factors(connection: Connection) -> None:
    """Fill the factors of schedules from their knobs."""
    for key, knobs in connection.execute(text("SELECT key, knobs FROM schedules")).all():
        values = dataclasses.asdict(factors_of_knobs(json.loads(knobs)))
        known = {name: json.dumps(value) for name, value in values.items() if value is not None}
        if known:
            changes = ", ".join(f"factor_{name} = :{name}" for name in known)
            connection.execute(text(f"UPDATE schedules SET {changes} WHERE key = :key"), {**known, "key": key})


def _fill_energy_cache(connection: Connection) -> None:
    for table, state in (("measurements", "hot"), ("model_timings", "model")):
        connection.execute(text(f"UPDATE {table} SET energy_cache = '{state}' WHERE energy_mj IS NOT NULL"))


def _fill_settled(connection: Connection) -> None:
    """Move the convergence from the details of a model's timing to a column, and to the operators of the same run."""
    for key, details in connection.execute(text("SELECT key, details FROM model_timings")).all():
        values = json.loads(details)
        if "settled" in values:
            row = {"key": key, "settled": values.pop("settled"), "details": json.dumps(values, separators=(",", ":"))}
            connection.execute(
                text("UPDATE model_timings SET settled = :settled, details = :details WHERE key = :key"), row
            )
    connection.execute(
        text(
            "UPDATE measurements SET settled = (SELECT t.settled FROM model_timings t WHERE "
            "t.model_key = measurements.model_key AND t.settings_key = measurements.settings_key "
            "AND t.device_key = measurements.device_key) WHERE error IS NULL AND complete"
        )
    )


def _fill_failures(connection: Connection) -> None:
    _fill_failures_of(connection, "measurements", "operator_key, schedule_key")
    _fill_failures_of(connection, "model_timings", "NULL, NULL")


def _fill_failures_of(connection: Connection, table: str, operator: str) -> None:
    columns = f"key, {operator}, settings_key, device_key, model_key, error, measured_at"
    for row in connection.execute(text(f"SELECT {columns} FROM {table} WHERE error IS NOT NULL")).all():
        key, error = row[0], row[6]
        identity = json.dumps([key, error])
        values = {
            "key": hashlib.sha256(identity.encode()).hexdigest()[:32],
            "cause": cause_of(error),
            **dict(zip(("measured", "operator", "schedule", "settings", "device", "model", "error", "at"), row)),
        }
        connection.execute(
            text(
                "INSERT INTO failures (key, measured_key, operator_key, schedule_key, settings_key, device_key, "
                "model_key, error, error_cause, failed_at) VALUES (:key, :measured, :operator, :schedule, :settings, "
                ":device, :model, :error, :cause, :at)"
            ),
            values,
        )
        connection.execute(text(f"UPDATE {table} SET error_cause = :cause WHERE key = :measured"), values)


def _fill_settled_of_operators(connection: Connection) -> None:
    """Store the convergence of each operator instead of that of its run (all heavy operators within 1 %)."""
    narrow = "ci_low_us IS NOT NULL AND ci_high_us - ci_low_us <= 2 * 0.01 * median_us"
    connection.execute(text(f"UPDATE measurements SET settled = ({narrow}) WHERE settled IS NOT NULL"))


def _index_what_is_counted_and_joined(connection: Connection) -> None:
    """Create new indices, whose first columns are those of the removed ones."""
    for table in (schema.measurements, schema.model_timings):
        for index in table.indexes:
            index.create(connection, checkfirst=True)
        connection.execute(text(f"DROP INDEX IF EXISTS {table.name}_of_model"))


Step = Callable[[Connection], None]

STEPS: dict[int, tuple[Step, ...]] = {
    1: (_allow_unknown_cores, _fill_factors),
    4: (_fill_energy_cache, _fill_settled, _fill_failures),
    5: (_fill_settled_of_operators, _index_what_is_counted_and_joined),
}
"""Steps of the upgrade from version n to n + 1, by n; they run after all columns exist. They use plain SQL, because
`schema` describes the newest version only."""
