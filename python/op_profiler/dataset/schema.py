"""Tables of the dataset, their version, and the steps from older versions.

A measurement is identified by what was asked for: operator, schedule, device, settings, and, where the state of the
caches is that of a model, the model. What was read back stands beside it. Latencies are in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

VERSION = 2

metadata = sa.MetaData()

schema_version = sa.Table("schema_version", metadata, sa.Column("version", sa.Integer, nullable=False))

devices = sa.Table(
    "devices",
    metadata,
    sa.Column("key", sa.String(16), primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("target", sa.String, nullable=False),
    sa.Column("processor", sa.String, nullable=False),
    sa.Column("cores", sa.Integer, nullable=False),
    sa.Column("clock_mhz", sa.Float),
    sa.Column("l1_bytes", sa.BigInteger),
    sa.Column("l2_bytes", sa.BigInteger),
    sa.Column("l3_bytes", sa.BigInteger),
    sa.Column("memory_bytes", sa.BigInteger),
    sa.Column("driver", sa.String),
    sa.Column("tvm_version", sa.String, nullable=False),
    sa.Column("llvm_version", sa.String),
    sa.Column("host_fingerprint", sa.String, nullable=False),
    sa.Column("properties", sa.JSON, nullable=False),
)

models = sa.Table(
    "models",
    metadata,
    sa.Column("key", sa.String(16), primary_key=True),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("source", sa.String, nullable=False),
    sa.Column("batch_size", sa.Integer, nullable=False),
    sa.Column("precision", sa.String, nullable=False),
    sa.Column("executor", sa.String, nullable=False),
    sa.Column("target", sa.String, nullable=False),
    sa.Column("notes", sa.JSON, nullable=False),
    sa.Column("added_at", sa.String, nullable=False),
)

operators = sa.Table(
    "operators",
    metadata,
    sa.Column("key", sa.String(16), primary_key=True),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("anchor", sa.String, nullable=False, index=True),
    sa.Column("op_names", sa.JSON, nullable=False),
    sa.Column("inputs", sa.JSON, nullable=False),
    sa.Column("params", sa.JSON, nullable=False),
    sa.Column("outputs", sa.JSON, nullable=False),
    sa.Column("attrs", sa.JSON, nullable=False),
    sa.Column("layouts", sa.JSON, nullable=False),
    sa.Column("structure", sa.String, nullable=False),
    sa.Column("flops", sa.BigInteger, nullable=False),
    sa.Column("bytes_read", sa.BigInteger, nullable=False),
    sa.Column("bytes_written", sa.BigInteger, nullable=False),
)

model_operators = sa.Table(
    "model_operators",
    metadata,
    sa.Column("model_key", sa.ForeignKey("models.key"), primary_key=True),
    sa.Column("operator_key", sa.ForeignKey("operators.key"), primary_key=True),
    sa.Column("occurrences", sa.Integer, nullable=False),
    sa.Column("positions", sa.JSON, nullable=False),
)

schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("key", sa.String(16), primary_key=True),
    sa.Column("template", sa.String, nullable=False),
    sa.Column("knobs", sa.JSON, nullable=False),
    sa.Column("origin", sa.String, nullable=False),
)


def _asked_for() -> list[sa.Column]:
    """What decides whether two runs measure the same."""
    return [
        sa.Column("device_key", sa.ForeignKey("devices.key"), primary_key=True),
        sa.Column("threads", sa.Integer, primary_key=True),
        sa.Column("core_set", sa.String, primary_key=True),
        sa.Column("cache", sa.String, primary_key=True),
        sa.Column("parallel_type", sa.String, primary_key=True),
        sa.Column("streams", sa.Integer, primary_key=True),
        sa.Column("precision", sa.String, primary_key=True),
        sa.Column("executor", sa.String, primary_key=True),
    ]


def _found() -> list[sa.Column]:
    """What was read back, the samples, and their statistics."""
    return [
        sa.Column("threads_effective", sa.Integer),
        sa.Column("core_set_effective", sa.String, nullable=False),
        sa.Column("cache_mechanism", sa.String, nullable=False),
        sa.Column("samples_us", sa.JSON, nullable=False),
        sa.Column("min_us", sa.Float),
        sa.Column("median_us", sa.Float),
        sa.Column("mean_us", sa.Float),
        sa.Column("std_us", sa.Float),
        sa.Column("ci_low_us", sa.Float),
        sa.Column("ci_high_us", sa.Float),
        sa.Column("load_before", sa.Float),
        sa.Column("load_after", sa.Float),
        sa.Column("foreign_load", sa.Boolean, nullable=False),
        sa.Column("energy_mj", sa.Float),
        sa.Column("error", sa.String),
        sa.Column("complete", sa.Boolean, nullable=False),
        sa.Column("measured_at", sa.String, nullable=False),
        sa.CheckConstraint("(error IS NULL) <> (median_us IS NULL)", name="time_or_error"),
        sa.CheckConstraint("median_us > 0", name="positive_time"),
    ]


measurements = sa.Table(
    "measurements",
    metadata,
    sa.Column("operator_key", sa.ForeignKey("operators.key"), primary_key=True),
    sa.Column("schedule_key", sa.ForeignKey("schedules.key"), primary_key=True),
    sa.Column("model_key", sa.String(16), primary_key=True),
    *_asked_for(),
    *_found(),
)

model_timings = sa.Table(
    "model_timings",
    metadata,
    sa.Column("model_key", sa.ForeignKey("models.key"), primary_key=True),
    *_asked_for(),
    *_found(),
    sa.Column("before_us", sa.Float),
    sa.Column("after_us", sa.Float),
    sa.Column("sum_of_operators_us", sa.Float),
    sa.Column("unmeasured", sa.JSON, nullable=False),
    sa.Column("details", sa.JSON, nullable=False),
)


def _one_to_two(connection: sa.Connection) -> None:
    """Version 1, of the first development builds, did not say of what a model was to be warned."""
    connection.execute(sa.text("ALTER TABLE models ADD COLUMN notes JSON NOT NULL DEFAULT '[]'"))


STEPS: dict[int, Callable[[sa.Connection], None]] = {1: _one_to_two}
