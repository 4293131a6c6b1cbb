"""The tables, the same on SQLite and PostgreSQL; `migrations` has the steps from each older version of them.

Nested values are JSON in text columns: PostgreSQL's own JSON type refuses the infinities that attributes of ``clip``
and pooling hold. Units are in the names of the columns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Connection,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    inspect,
    types,
)

from op_profiler.dataset.migrations import MIGRATIONS
from op_profiler.dataset.row import CorunMember
from op_profiler.errors import DatasetError
from op_profiler.measure.measurement import Settings
from op_profiler.schedules.factors import NAMES as FACTOR_NAMES

VERSION = 5
"""Version of the tables below; counts up with every change to them."""

_FACTOR_COLUMN = "factor_{}"

metadata = MetaData()


def parse_json(text: str, **options: Any) -> Any:
    """What a column of JSON holds; `options` of ``json.loads``.

    Raises:
        DatasetError: a disk or another program made something else of it.
    """
    try:
        return json.loads(text, **options)
    except (ValueError, TypeError, RecursionError) as error:
        raise DatasetError(
            f"the dataset is damaged: it holds {str(text)[:40]!r} where JSON should be ({error}). Restore a copy"
        ) from error


class Json(types.TypeDecorator[Any]):
    """A plain Python value as JSON text; tuples come back as lists."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else parse_json(value)


schema_version = Table(
    "op_profiler_schema",
    metadata,
    Column("version", Integer, primary_key=True),
    Column("since", Text, nullable=False),
)

devices = Table(
    "devices",
    metadata,
    Column("key", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("processor", Text, nullable=False),
    Column("cores", Integer),
    Column("clock_mhz", Double),
    Column("l1_bytes", BigInteger),
    Column("l2_bytes", BigInteger),
    Column("l3_bytes", BigInteger),
    Column("memory_bytes", BigInteger),
    Column("driver", Text),
    Column("tvm_version", Text, nullable=False),
    Column("llvm_version", Text),
    Column("host_fingerprint", Text, nullable=False),
    Column("machine_id", Text),  # NULL: not known
    Column("core_type", Text, nullable=False, server_default="common"),
    Column("properties", Json, nullable=False),
)

models = Table(
    "models",
    metadata,
    Column("key", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("batch_size", Integer, nullable=False),
    Column("precision", Text, nullable=False),
    Column("executor", Text, nullable=False),
    Column("target", Text, nullable=False),
    Column("notes", Json, nullable=False),
    Column("device_key", ForeignKey("devices.key")),
    Column("base_key", Text),  # what is known of it without building it; NULL: written by an older version
    Column("asked", Json, nullable=False, server_default="[]"),  # `Model.asked`
    Column("extracted", Boolean, nullable=False),
    Column("added_at", Text, nullable=False),
)

operators = Table(
    "operators",
    metadata,
    Column("key", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("anchor", Text, nullable=False),
    Column("op_names", Json, nullable=False),
    Column("inputs", Json, nullable=False),
    Column("params", Json, nullable=False),
    Column("outputs", Json, nullable=False),
    Column("attrs", Json, nullable=False),
    Column("layouts", Json, nullable=False),
    Column("structure", Text, nullable=False),
    Column("flops", BigInteger, nullable=False),
    Column("bytes_read", BigInteger, nullable=False),
    Column("bytes_written", BigInteger, nullable=False),
)

model_operators = Table(
    "model_operators",
    metadata,
    Column("model_key", ForeignKey("models.key"), primary_key=True),
    Column("operator_key", ForeignKey("operators.key"), primary_key=True),
    Column("name", Text, nullable=False),  # the kernel's name in this model: the same operator is named anew in each
    Column("occurrences", Integer, nullable=False),
    Column("positions", Json, nullable=False),
    Column("schedule_key", Text),  # what the build of this model gave it; NULL: not known
    Column("launches", Json),  # of a GPU's kernels; NULL: not known, or no GPU
    Index("model_operators_of_operator", "operator_key"),
)

schedules = Table(
    "schedules",
    metadata,
    Column("key", Text, primary_key=True),
    Column("template", Text, nullable=False),
    Column("knobs", Json, nullable=False),
    Column("origin", Text, nullable=False),
    *(Column(_FACTOR_COLUMN.format(name), Json) for name in FACTOR_NAMES),
)

settings = Table(
    "settings",
    metadata,
    Column("key", Text, primary_key=True),
    Column("threads", Integer, nullable=False),
    Column("threads_effective", Integer),
    Column("core_set", Json, nullable=False),
    Column("core_set_effective", Json, nullable=False),
    Column("cache", Text, nullable=False),
    Column("cache_mechanism", Text, nullable=False),
    Column("parallel_type", Text, nullable=False),
    Column("streams", Integer, nullable=False),
    Column("precision", Text, nullable=False),
    Column("executor", Text, nullable=False),
    Column("governor", Text),
    Column("governor_effective", Text),
    Column("cache_ways", Integer),
    Column("cache_ways_effective", Integer),
    Column("numa_node", Integer),
    Column("numa_node_effective", Integer),
    Column("sm_share_percent", Integer),
    Column("sm_share_percent_effective", Integer),
    Column("gpu_clock_mhz", Integer),
    Column("gpu_clock_mhz_effective", Integer),
)


def _time_columns(table: str) -> list[Column[Any] | CheckConstraint]:
    """The fields of `Measurement`, and what must hold between them: a time or an error, never a stand-in for a time."""
    return [
        Column("samples_us", Json, nullable=False),
        Column("rounds", Integer, nullable=False),
        Column("min_us", Double),
        Column("median_us", Double),
        Column("mean_us", Double),
        Column("std_us", Double),
        Column("ci_low_us", Double),
        Column("ci_high_us", Double),
        Column("load_before", Double),
        Column("load_after", Double),
        Column("foreign_load", Boolean, nullable=False),
        Column("energy_mj", Double),
        Column("energy_cache", Text),  # NULL: no energy
        Column("error", Text),
        Column("error_cause", Text),  # `Cause`; NULL where there is no error
        Column("settled", Boolean),  # NULL: not known
        Column("call_overhead_us", Double),  # subtracted from the samples; NULL: nothing was
        Column("complete", Boolean, nullable=False),
        Column("measured_at", Text, nullable=False),
        CheckConstraint("NOT complete OR (error IS NULL) <> (median_us IS NULL)", name=f"{table}_time_or_error"),
        CheckConstraint(
            "error IS NULL OR (median_us IS NULL AND min_us IS NULL AND mean_us IS NULL AND rounds = 0)",
            name=f"{table}_no_time_beside_error",
        ),
        CheckConstraint("min_us IS NULL OR min_us >= 0", name=f"{table}_times_are_not_negative"),
    ]


measurements = Table(
    "measurements",
    metadata,
    Column("key", Text, primary_key=True),  # `measurement_key`: what was asked for, never what was read back
    Column("operator_key", ForeignKey("operators.key"), nullable=False),
    Column("schedule_key", ForeignKey("schedules.key"), nullable=False),
    Column("settings_key", ForeignKey("settings.key"), nullable=False),
    Column("device_key", ForeignKey("devices.key"), nullable=False),
    Column("model_key", ForeignKey("models.key")),  # NULL: measured outside a model
    *_time_columns("measurements"),
    Index("measurements_of_operator", "operator_key", "model_key"),
    Index("measurements_of_model", "model_key"),
)

model_timings = Table(
    "model_timings",
    metadata,
    Column("key", Text, primary_key=True),  # `timing_key`
    Column("model_key", ForeignKey("models.key"), nullable=False),
    Column("settings_key", ForeignKey("settings.key"), nullable=False),
    Column("device_key", ForeignKey("devices.key"), nullable=False),
    Column("before_us", Double),
    Column("after_us", Double),
    Column("sum_of_operators_us", Double),
    Column("unmeasured", Json, nullable=False),
    Column("coverage", Double),  # share of the time whose operators had to settle; NULL: not known
    Column("details", Json, nullable=False),
    *_time_columns("model_timings"),
    Index("model_timings_of_model", "model_key"),
)

failures = Table(
    "failures",
    metadata,
    Column("key", Text, primary_key=True),  # `failure_key`
    Column("measured_key", Text, nullable=False),  # what the time has, or would have, in one of the tables with times
    Column("operator_key", ForeignKey("operators.key")),  # NULL: the whole model
    Column("schedule_key", ForeignKey("schedules.key")),  # NULL: the whole model
    Column("settings_key", ForeignKey("settings.key"), nullable=False),
    Column("device_key", ForeignKey("devices.key"), nullable=False),
    Column("model_key", ForeignKey("models.key")),  # NULL: outside a model
    Column("error", Text, nullable=False),
    Column("error_cause", Text, nullable=False),
    Column("machine_state", Json),  # NULL: not known
    Column("failed_at", Text, nullable=False),  # the last time
    Index("failures_of_measured", "measured_key"),
    Index("failures_of_model", "model_key"),
)
"""Every failure, also of what has a time from before or afterwards; the same one again renews when and how."""

coruns = Table(
    "coruns",
    metadata,
    Column("key", Text, primary_key=True),  # `corun_key`
    Column("device_key", ForeignKey("devices.key"), nullable=False),
    Column("load_before", Double),
    Column("load_after", Double),
    Column("foreign_load", Boolean, nullable=False),
    Column("measured_at", Text, nullable=False),
)

corun_members = Table(
    "corun_members",
    metadata,
    Column("corun_key", ForeignKey("coruns.key"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("operator_key", ForeignKey("operators.key"), nullable=False),
    Column("schedule_key", ForeignKey("schedules.key"), nullable=False),
    Column("settings_key", ForeignKey("settings.key"), nullable=False),
    Column("model_key", ForeignKey("models.key")),  # NULL: outside a model
    Column("alone_samples_us", Json, nullable=False),
    Column("alone_median_us", Double),
    Column("together_samples_us", Json, nullable=False),
    Column("together_median_us", Double),
    Column("error", Text),
    CheckConstraint("(error IS NULL) <> (together_median_us IS NULL)", name="corun_members_time_or_error"),
    CheckConstraint("error IS NOT NULL OR alone_median_us IS NOT NULL", name="corun_members_are_compared"),
    CheckConstraint("alone_median_us > 0 AND together_median_us > 0", name="corun_members_times_are_positive"),
    Index("corun_members_of_operator", "operator_key"),
)


def measurement_key(operator_key: str, schedule_key: str, device_key: str, settings: Settings, model_key: str) -> str:
    """Identity of a measurement, 32 hex digits: the same key means that it was already measured."""
    return _digest([operator_key, schedule_key, device_key, settings.requested, model_key])


def timing_key(model_key: str, device_key: str, settings: Settings) -> str:
    """Identity of the timing of a whole model, 32 hex digits."""
    return _digest([model_key, device_key, settings.requested])


def corun_key(device_key: str, members: Iterable[CorunMember]) -> str:
    """Identity of a group, 32 hex digits: what ran and how it was asked to, in whatever order it is told."""
    told = [[m.operator_key, m.schedule.key, m.settings.requested, m.model_key] for m in members]
    return _digest([device_key, sorted(told, key=lambda one: json.dumps(one, sort_keys=True))])


def failure_key(measured_key: str, error: str) -> str:
    """Identity of a failure, 32 hex digits."""
    return _digest([measured_key, error])


def _digest(identity: list[Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]


def stored_version(connection: Connection) -> int | None:
    """Version of the tables in a database; None where there are none."""
    if not inspect(connection).has_table(schema_version.name):
        return None
    found = connection.execute(schema_version.select()).scalar()
    return None if found is None else int(found)


def foreign_tables(connection: Connection) -> list[str]:
    """Tables in a database without a version that stand in the way of creating ours.

    A SQLite file belongs to one program, so any table counts; a PostgreSQL database may be shared.
    """
    present = inspect(connection).get_table_names()
    if connection.dialect.name == "sqlite":
        return present
    return [name for name in present if name in metadata.tables]


def create(connection: Connection, now: str) -> None:
    """Create all tables in an empty database, inside the caller's transaction."""
    metadata.create_all(connection)
    connection.execute(schema_version.insert(), {"version": VERSION, "since": now})


def upgrade(connection: Connection, found: int, now: str) -> None:
    """Take a database from version `found` to `VERSION`, inside the caller's transaction."""
    for version in range(found, VERSION):
        MIGRATIONS[version](connection)
    connection.execute(schema_version.update().values(version=VERSION, since=now))
