"""What goes into a dataset and what comes out of it, as plain values."""

from __future__ import annotations

import dataclasses

from op_profiler.measure._base import Device, Measurement, ModelTiming, Settings
from op_profiler.schedules._base import Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement to store.

    Attributes:
        operator_key: workload key of an operator that is stored already.
        device: where it ran; stored along where it is new.
        measurement: all samples so far, not only the new ones.
        model_key: the model that left the caches as they were; empty unless ``settings.cache`` is ``model``.
        complete: False for a check point of a measurement that is still going on.
    """

    operator_key: str
    schedule: Schedule
    settings: Settings
    device: Device
    measurement: Measurement
    model_key: str = ""
    complete: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """One lowered model.

    Attributes:
        key: fingerprint of its content and of everything that decides what the compiler makes of it.
        device_key: the device that it was lowered for; None where that is not known.
        notes: what the user should know about the model.
        extracted: True once all its operators are stored.
        added_at: when it was first stored, UTC, ISO 8601.
    """

    key: str
    name: str
    source: str
    batch_size: int
    precision: str
    executor: str
    target: str
    notes: tuple[str, ...]
    device_key: str | None
    extracted: bool
    added_at: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredMeasurement:
    """One measurement as it was stored; see `Row`.

    Attributes:
        measured_at: when it was stored, UTC, ISO 8601.
    """

    operator_key: str
    schedule: Schedule
    settings: Settings
    device_key: str
    model_key: str
    measurement: Measurement
    complete: bool
    measured_at: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredTiming:
    """The timing of a whole model as it was stored.

    Attributes:
        measured_at: when it was stored, UTC, ISO 8601.
    """

    model_key: str
    settings: Settings
    device_key: str
    timing: ModelTiming
    complete: bool
    measured_at: str
