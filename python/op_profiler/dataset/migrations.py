"""The steps from each older version of the tables to the newest."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable

from sqlalchemy import Connection, text

from op_profiler.measure.failures import cause_of
from op_profiler.schedules.factors import NAMES as FACTOR_NAMES
from op_profiler.schedules.factors import factors_of_knobs

Migration = Callable[[Connection], None]

_FACTOR_COLUMN = "factor_{}"


def _add_schedule_factors(connection: Connection) -> None:
    """1 to 2: what a schedule does to the loops, and which schedule a model's build gave to each operator."""
    for name in FACTOR_NAMES:
        connection.execute(text(f"ALTER TABLE schedules ADD COLUMN {_FACTOR_COLUMN.format(name)} TEXT"))
    connection.execute(text("ALTER TABLE model_operators ADD COLUMN schedule_key TEXT"))
    _allow_unknown_cores(connection)
    found = connection.execute(text("SELECT key, knobs FROM schedules")).all()
    for key, knobs in found:
        values = dataclasses.asdict(factors_of_knobs(json.loads(knobs)))
        known = {name: json.dumps(value) for name, value in values.items() if value is not None}
        if known:
            changes = ", ".join(f"{_FACTOR_COLUMN.format(name)} = :{name}" for name in known)
            connection.execute(text(f"UPDATE schedules SET {changes} WHERE key = :key"), {**known, "key": key})


def _allow_unknown_cores(connection: Connection) -> None:
    """Devices of imported measurements do not say how many cores they have.

    SQLite cannot drop NOT NULL from a column; editing the table's text is the way that its documentation gives for this
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


def _add_launches(connection: Connection) -> None:
    """2 to 3: how a GPU launches an operator's kernels, and what kind of core a device has."""
    connection.execute(text("ALTER TABLE model_operators ADD COLUMN launches TEXT"))
    connection.execute(text("ALTER TABLE devices ADD COLUMN core_type TEXT NOT NULL DEFAULT 'common'"))


def _add_resources_and_coruns(connection: Connection) -> None:
    """3 to 4: resources that can be swept, and operators side by side."""
    for name, kind in _RESOURCES.items():
        connection.execute(text(f"ALTER TABLE settings ADD COLUMN {name} {kind}"))
        connection.execute(text(f"ALTER TABLE settings ADD COLUMN {name}_effective {kind}"))
    for statement in _CORUNS:
        connection.execute(text(statement))


_RESOURCES = {
    "governor": "TEXT",
    "cache_ways": "INTEGER",
    "numa_node": "INTEGER",
    "sm_share_percent": "INTEGER",
    "gpu_clock_mhz": "INTEGER",
}

_CORUNS = (
    """CREATE TABLE coruns (
        key TEXT NOT NULL PRIMARY KEY,
        device_key TEXT NOT NULL REFERENCES devices (key),
        load_before DOUBLE PRECISION,
        load_after DOUBLE PRECISION,
        foreign_load BOOLEAN NOT NULL,
        measured_at TEXT NOT NULL
    )""",
    """CREATE TABLE corun_members (
        corun_key TEXT NOT NULL REFERENCES coruns (key),
        position INTEGER NOT NULL,
        operator_key TEXT NOT NULL REFERENCES operators (key),
        schedule_key TEXT NOT NULL REFERENCES schedules (key),
        settings_key TEXT NOT NULL REFERENCES settings (key),
        model_key TEXT REFERENCES models (key),
        alone_samples_us TEXT NOT NULL,
        alone_median_us DOUBLE PRECISION,
        together_samples_us TEXT NOT NULL,
        together_median_us DOUBLE PRECISION,
        error TEXT,
        PRIMARY KEY (corun_key, position),
        CONSTRAINT corun_members_time_or_error CHECK ((error IS NULL) <> (together_median_us IS NULL)),
        CONSTRAINT corun_members_are_compared CHECK (error IS NOT NULL OR alone_median_us IS NOT NULL),
        CONSTRAINT corun_members_times_are_positive CHECK (alone_median_us > 0 AND together_median_us > 0)
    )""",
    "CREATE INDEX corun_members_of_operator ON corun_members (operator_key)",
)


def _add_failures(connection: Connection) -> None:
    """4 to 5: failures beside the times, what they come from, and how far a run had to go."""
    for name, kind in _NEW_COLUMNS:
        connection.execute(text(f"ALTER TABLE {name} ADD COLUMN {kind}"))
    for statement in _FAILURES:
        connection.execute(text(statement))
    for table, state in (("measurements", "hot"), ("model_timings", "model")):
        connection.execute(text(f"UPDATE {table} SET energy_cache = '{state}' WHERE energy_mj IS NOT NULL"))
    _fill_settled(connection)
    _fill_failures(connection, "measurements", "operator_key, schedule_key")
    _fill_failures(connection, "model_timings", "NULL, NULL")


_NEW_COLUMNS = (
    ("measurements", "error_cause TEXT"),
    ("measurements", "settled BOOLEAN"),
    ("measurements", "call_overhead_us DOUBLE PRECISION"),
    ("model_timings", "error_cause TEXT"),
    ("model_timings", "settled BOOLEAN"),
    ("model_timings", "call_overhead_us DOUBLE PRECISION"),
    ("model_timings", "coverage DOUBLE PRECISION"),
    ("measurements", "energy_cache TEXT"),
    ("model_timings", "energy_cache TEXT"),
    ("devices", "machine_id TEXT"),
    ("models", "base_key TEXT"),
    ("models", "asked TEXT NOT NULL DEFAULT '[]'"),
)

_FAILURES = (
    """CREATE TABLE failures (
        key TEXT NOT NULL PRIMARY KEY,
        measured_key TEXT NOT NULL,
        operator_key TEXT REFERENCES operators (key),
        schedule_key TEXT REFERENCES schedules (key),
        settings_key TEXT NOT NULL REFERENCES settings (key),
        device_key TEXT NOT NULL REFERENCES devices (key),
        model_key TEXT REFERENCES models (key),
        error TEXT NOT NULL,
        error_cause TEXT NOT NULL,
        machine_state TEXT,
        failed_at TEXT NOT NULL
    )""",
    "CREATE INDEX failures_of_measured ON failures (measured_key)",
    "CREATE INDEX failures_of_model ON failures (model_key)",
)


def _fill_settled(connection: Connection) -> None:
    """What the details of a model's timing said moves to a column, and from there to the operators of the same run."""
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


def _fill_failures(connection: Connection, table: str, operator: str) -> None:
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
                "INSERT INTO failures VALUES (:key, :measured, :operator, :schedule, :settings, :device, :model, "
                ":error, :cause, NULL, :at)"
            ),
            values,
        )
        connection.execute(text(f"UPDATE {table} SET error_cause = :cause WHERE key = :measured"), values)


MIGRATIONS: dict[int, Migration] = {
    1: _add_schedule_factors,
    2: _add_launches,
    3: _add_resources_and_coruns,
    4: _add_failures,
}
"""For each older version n the step from n to n + 1. A step runs inside the transaction that upgrades the dataset, uses
plain SQL (the tables of `schema` show the newest version only), and never loses a row."""
