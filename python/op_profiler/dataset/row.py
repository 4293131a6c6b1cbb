"""Plain values that the store accepts and returns: rows, models, failures, co-runs."""

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
        operator_key: workload key of an operator that is stored already.
        device: where it ran; stored along where it is new.
        measurement: all samples so far, not only the new ones.
        model_key: the model that left the caches as they were; empty unless ``settings.cache`` is ``model``.
        complete: False for a check point of a measurement that is still going on.
        machine_state: of a failure, how the machine was; plain JSON values.
        measured_at: when it was measured, UTC, ISO 8601; None: now.
        run_id: identifier of the run that measured it; None where it is not known.
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
        key: fingerprint of its content and of everything that decides what the compiler makes of it.
        label: name of the run that it was collected in; empty where none was given.
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
        device_key: the device that it was lowered for; None where that is not known.
        notes: what the user should know about the model.
        base_key: the same without the schedule records; None where an older version stored it.
        asked: computations that its build looked for schedule records of (`building.build.BuiltModel.asked`).
        recipe: how to build it again (`building.recipe.Recipe`), plain values; None where that is not known.
        reads: for each call of an operator, by its position, the calls whose outputs it reads; None where that is not
            known.
        outputs_agree, outputs_error, outputs_reference: see `Agreement`; None where an older version stored it.
        extracted: True once all its operators are stored.
        added_at: when it was first stored, UTC, ISO 8601.
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
        """Agreement of the outputs with those of the model's framework; None in rows of older versions."""
        if self.outputs_reference is None:
            return None
        return Agreement(self.outputs_agree, self.outputs_error, self.outputs_reference)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredMeasurement:
    """One measurement as it was stored; see `Row`.

    Attributes:
        measured_at: when it was stored, by the clock of the machine that stored it: UTC, ISO 8601.
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
    """The timing of a whole model as it was stored.

    Attributes:
        measured_at, run_id: as in `StoredMeasurement`.
        project_revision, user_revision: git's, of op_profiler and of the folder that the command ran in; None where
            there is none.
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
    """Something that was measured without getting a time.

    Attributes:
        operator_name: None for a whole model.
        model_key: empty outside a model, and of a model that was quarantined (`op_profiler.dataset.put_aside`).
        cause: whether trying again may help.
        machine_state: as in `Row`; None where it is not known.
        failed_at: the last time, UTC, ISO 8601.
        run_id: identifier of the run that failed the last time; None where it is not known.
        timed_at: when the time was stored that is there all the same; None where there is none.
    """

    operator_name: str | None
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
    """One operator of a group that ran side by side, with its times in isolation.

    Attributes:
        operator_key: workload key of an operator that is stored already.
        settings: how it ran in the group; alone it had the same.
        model_key: the model that it was part of; empty outside a model.
        alone_samples_us, together_samples_us: raw samples, microseconds per call. The latter are empty where `error` is
            set.
        error: why there is no time of it in the group; None where there is one.
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
        """Median of the samples in isolation; None without samples."""
        return statistics.median(self.alone_samples_us) if self.alone_samples_us else None

    @property
    def together_median_us(self) -> float | None:
        """Median of the samples in the group; None where there are none."""
        return statistics.median(self.together_samples_us) if self.together_samples_us else None

    @property
    def slowdown(self) -> float | None:
        """Median in the group over the median in isolation; None if one is missing."""
        alone, together = self.alone_median_us, self.together_median_us
        return together / alone if alone and together is not None else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corun:
    """Operators that ran side by side.

    Attributes:
        device_key: where.
        members: in any order; the same operator may be there more than once.
        load_before, load_after: share (0 to 1) that others used of the cores in use, or of the GPU.
        foreign_load: True where samples were taken under background load and repeating did not help.
        measured_at: when it was stored, UTC, ISO 8601.
    """

    device_key: str
    members: tuple[CorunMember, ...]
    load_before: float | None = None
    load_after: float | None = None
    foreign_load: bool = False
    measured_at: str
