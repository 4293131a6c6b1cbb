"""Adds hardware counters to measurements that were stored without counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import update

from op_profiler.dataset import keys, schema
from op_profiler.dataset.row import StoredMeasurement, StoredTiming
from op_profiler.dataset.store import Dataset


def add_counts(dataset: Dataset, counted: Iterable[tuple[StoredMeasurement | StoredTiming, Mapping[str, Any]]]) -> None:
    """Add hardware counters to stored measurements in one transaction; their times are not changed.

    Args:
        counted: stored measurements, each with the values of the fields of `Measurement` that contain counters.

    Raises:
        DatasetError: the database fails.
    """
    with dataset.transaction() as connection:
        for stored, fields in counted:
            settings, device_key, model_key = stored.settings, stored.device_key, stored.model_key
            if isinstance(stored, StoredTiming):
                table, key = schema.model_timings, keys.timing_key(model_key, device_key, settings)
            else:
                table = schema.measurements
                key = keys.measurement_key(stored.operator_key, stored.schedule.key, device_key, settings, model_key)
            connection.execute(update(table).where(table.c.key == key).values(**fields))
