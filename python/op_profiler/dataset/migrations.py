"""The steps from each older version of the tables to the newest."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

from sqlalchemy import Connection, text

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

MIGRATIONS: dict[int, Migration] = {1: _add_schedule_factors, 2: _add_launches, 3: _add_resources_and_coruns}
"""For each older version n the step from n to n + 1. A step runs inside the transaction that upgrades the dataset, uses
plain SQL (the tables of `schema` show the newest version only), and never loses a row."""
