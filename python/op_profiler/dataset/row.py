"""Dataclasses that `Dataset` accepts and returns: rows, models, timings, failures, co-runs."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any

from op_profiler.compilers.imported_model import Agreement
from op_profiler.measure.failures import Cause
from op_profiler.measure.measurement import Device, Measurement, ModelTiming, Settings
from op_profiler.schedules.schedule import Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement to store.

    Attributes:
        operator_key: workload key of a stored operator.
        device: device of the measurement; it is stored together with the row if the dataset lacks it.
        measurement: all samples so far, not only the new ones.
        model_key: the model in which the operator was measured; empty unless ``settings.cache`` is ``model``.
        complete: False for a checkpoint of a measurement that is still running.
        machine_state: for a failure, the state of the machine as JSON-serializable values.
        measured_at: time of the measurement, UTC, ISO 8601; None: the time of storage.
        run_id: identifier of the run that measured it; None if unknown.
    """

    operator_key: str
    schedule: Schedule
    settings: Settings
    device: Device
    measurement: Measurement
    model_key: str = ""
    complete: bool = True
    machine_state: dict[str, Any] | None = None
    measured_at: str | None = None
    run_id: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelIdentity:
    """Identity of a model in the dataset.

    Attributes:
        key: fingerprint of the model's content and of everything that changes what the compiler generates from it.
        label: label of the run that collected the model; empty if the run had no label.
    """

    key: str
    name: str
    source: str
    batch_size: int
    precision: str
    executor: str
    target: str
    label: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model(ModelIdentity):
    """One lowered model.

    Attributes:
        notes: notes about the model for the user.
        device_key: the device that the model was lowered for; None if unknown.
        base_key: the key that the model would have without schedule records; None in rows of older versions.
        asked: computations for which the build queried schedule records (`building.build.BuiltModel.asked`).
        recipe: how to build the model again: `building.recipe.Recipe` as JSON-serializable values; None if unknown.
        reads: for each call of an operator, by position, the positions of the calls whose outputs it reads; None if
            unknown.
        outputs_agree, outputs_error, outputs_reference: see `Agreement`; None in rows of older versions.
        extracted: True once all operators of the model are stored.
        added_at: when the model was first stored, UTC, ISO 8601.
    """

    notes: tuple[str, ...]
    device_key: str | None
    base_key: str | None
    asked: tuple[str, ...]
    recipe: dict[str, Any] | None
    reads: tuple[tuple[int, ...], ...] | None
    outputs_agree: bool | None
    outputs_error: float | None
    outputs_reference: str | None
    extracted: bool
    added_at: str

    @property
    def agreement(self) -> Agreement | None:
        """Return the agreement of the outputs with those of the model's framework; None in rows of older versions."""
        if self.outputs_reference is None:
            return None
        return Agreement(self.outputs_agree, self.outputs_error, self.outputs_reference)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredMeasurement:
    """One measurement as stored; see `Row`.

    Attributes:
        measured_at: time of the measurement if the row gave one, otherwise the time of storage: UTC, ISO 8601.
    """

    operator_key: str
    schedule: Schedule
    settings: Settings
    device_key: str
    model_key: str
    measurement: Measurement
    complete: bool
    measured_at: str
    run_id: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredTiming:
    """The timing of a whole model as stored.

    Attributes:
        measured_at, run_id: as in `StoredMeasurement`.
        project_revision: git revision of op_profiler, or else its version; None if unknown.
        user_revision: git revision of the folder in which the command ran; None if the folder has no revision.
    """

    model_key: str
    settings: Settings
    device_key: str
    timing: ModelTiming
    complete: bool
    measured_at: str
    project_revision: str | None = None
    user_revision: str | None = None
    run_id: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Failure:
    """A failed measurement of an operator or of a whole model.

    Attributes:
        operator_name: name of the operator's kernel; None for a whole model.
        operator_label: title, layer and output shape of the operator (`label_of`); None for a whole model.
        model_key: empty outside a model, and for a quarantined model (`op_profiler.dataset.quarantined_models`).
        cause: ``machine`` or ``operator``; if the machine caused the failure, a retry may succeed.
        machine_state: as in `Row`; None if unknown.
        failed_at: time of the latest failure, UTC, ISO 8601.
        run_id: identifier of the run of the latest failure; None if unknown.
        timed_at: when a successful measurement of the same operator or model under the same settings was stored, UTC,
            ISO 8601; None if the dataset has no such measurement.
    """

    operator_name: str | None
    operator_label: str | None
    settings: Settings
    device_key: str
    model_key: str
    error: str
    cause: Cause
    machine_state: dict[str, Any] | None
    failed_at: str
    run_id: str | None
    timed_at: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorunMember:
    """One operator of a group that ran side by side, with its times in the group and in isolation.

    Attributes:
        operator_key: workload key of a stored operator.
        settings: settings of the operator, the same in the group and in isolation.
        model_key: the model that the operator belongs to; empty outside a model.
        alone_samples_us: raw samples in isolation, microseconds per call.
        together_samples_us: raw samples in the group, microseconds per call; empty if `error` is set.
        error: why the operator has no time in the group; None if it has a time.
    """

    operator_key: str
    schedule: Schedule
    settings: Settings
    model_key: str = ""
    alone_samples_us: tuple[float, ...] = ()
    together_samples_us: tuple[float, ...] = ()
    error: str | None = None

    @property
    def alone_median_us(self) -> float | None:
        """Return the median of the samples in isolation, microseconds; None without samples."""
        return statistics.median(self.alone_samples_us) if self.alone_samples_us else None

    @property
    def together_median_us(self) -> float | None:
        """Return the median of the samples in the group, microseconds; None without samples."""
        return statistics.median(self.together_samples_us) if self.together_samples_us else None

    @property
    def slowdown(self) -> float | None:
        """Return the median in the group divided by the median in isolation; None if either median is missing."""
        alone, together = self.alone_median_us, self.together_median_us
        return together / alone if alone and together is not None else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corun:
    """A group of operators that ran side by side.

    Attributes:
        device_key: device of the measurement.
        members: the operators, in any order; an operator may be a member more than once.
        load_before, load_after: share of the cores in use, or of the GPU, that other processes used before and after
            the measurement, 0 to 1; None if unknown.
        foreign_load: True if samples were taken under background load, although they were repeated.
        measured_at: when the group was stored, UTC, ISO 8601.
    """

    device_key: str
    members: tuple[CorunMember, ...]
    load_before: float | None = None
    load_after: float | None = None
    foreign_load: bool = False
    measured_at: str
