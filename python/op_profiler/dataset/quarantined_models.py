"""Stores, finds and releases quarantined models: models that workers of a cluster died on."""

from __future__ import annotations

import dataclasses

from sqlalchemy import delete, select

from op_profiler.dataset import convert, keys, schema
from op_profiler.dataset.engine import utc_now
from op_profiler.dataset.statements import upsert
from op_profiler.dataset.store import Dataset
from op_profiler.measure.measurement import Device, Settings

_TABLE = schema.failures


@dataclasses.dataclass(frozen=True)
class QuarantinedModel:
    """A quarantined model.

    Attributes:
        error: why the model is quarantined, with its name.
        failed_at: when it was last quarantined, UTC, ISO 8601.
    """

    error: str
    failed_at: str


def find_quarantined(dataset: Dataset) -> dict[str, QuarantinedModel]:
    """Return all quarantined models, by `keys.quarantine_key`."""
    query = select(_TABLE.c.measured_key, _TABLE.c.error, _TABLE.c.failed_at).where(
        _TABLE.c.model_key.is_(None), _TABLE.c.operator_key.is_(None)
    )
    return {row["measured_key"]: QuarantinedModel(row["error"], row["failed_at"]) for row in dataset.rows(query)}


def quarantine(dataset: Dataset, key: str, error: str, settings: Settings, device: Device) -> None:
    """Quarantine a model; if it is quarantined already for the same reason, only its time is updated.

    Args:
        key: `keys.quarantine_key` of the model.
        error: the reason, with the name of the model.
        settings, device: settings and device of one of the measurements that should have been made.
    """
    row = {
        "key": keys.failure_key(key, error),
        "measured_key": key,
        "settings_key": settings.key,
        "device_key": device.key,
        "error": error,
        "error_cause": "operator",  # trying again does not help
        "failed_at": utc_now(),
    }
    with dataset.transaction() as connection:
        upsert(connection, schema.devices, convert.distinct([device]))
        upsert(connection, schema.settings, convert.distinct([settings]))
        upsert(connection, _TABLE, [row], replace=("failed_at", "settings_key", "device_key"))


def release(dataset: Dataset, key: str) -> None:
    """Release a model from quarantine."""
    with dataset.transaction() as connection:
        connection.execute(delete(_TABLE).where(_TABLE.c.measured_key == key))
