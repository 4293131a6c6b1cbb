"""`calibrate`: measures the most informative operators on a machine, so that predictions for it can be made."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

from op_profiler.collection.request import CollectRequest
from op_profiler.collection.sampling.draw import Draw
from op_profiler.collection.sampling.run import measure_batches
from op_profiler.dataset.address import absolute_address
from op_profiler.errors import DatasetError
from op_profiler.json_text import brief
from op_profiler.option_values import several
from op_profiler.prediction.latency.calibration import FEWEST, note_calibration, operators_in
from op_profiler.prediction.latency.examples import load_examples

if TYPE_CHECKING:
    from op_profiler.collection.progress import Progress
    from op_profiler.collection.supervisor import Collection
    from op_profiler.prediction.latency.examples import Examples


@dataclasses.dataclass(frozen=True, kw_only=True)
class CalibrationResult:
    """Result of a calibration: a machine for which predictions can be made.

    Attributes:
        operators: number of operators whose measurements can be used.
        device_key: key of the machine's device in the dataset.
        processor, target: processor and target of the device.
        seconds: duration of the calibration.
        note: path of the file on this machine in which later commands find the address of the measurements.
        errors: errors of batches that could not be measured, and of operators that could not be lowered.
        failed: number of measurements that failed.
        timings: number of times, new or reused.
        disturbed: number of times that predictors leave out, by reason.
    """

    operators: int
    device_key: str
    processor: str
    target: str
    seconds: float
    note: str
    errors: tuple[str, ...] = ()
    failed: int = 0
    timings: int = 0
    disturbed: dict[str, int] = dataclasses.field(default_factory=dict)

    __repr__ = brief

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary of the attributes, without `processor` and `target`."""
        return {name: one for name, one in dataclasses.asdict(self).items() if name not in ("processor", "target")}


def calibrate(
    request: CollectRequest, collection: Collection, progress: Progress, *, budget_seconds: float, seed: int
) -> CalibrationResult:
    """Measure sampled operators on the requested machine, and store on this machine where the measurements are.

    Args:
        request: request without a model; its dataset is that of the collection.
        budget_seconds: time to measure, see `measure_batches`.
        seed: seed of the random operators.

    Raises:
        DatasetError: fewer than `FEWEST` operators can be used.
        OpProfilerError: the request cannot be carried out, or the file with the note cannot be written.
    """
    build = request.build
    batches = Draw(label="calibrate", seed=seed, informative=True).batches()
    report = measure_batches(batches, request, collection, progress, count=None, budget_seconds=budget_seconds)
    examples = _measured(request.db, _devices(collection, report.models))
    measured = operators_in(examples)
    if measured < FEWEST:
        reasons = [f"{several(count, 'measurement')} left out: {reason}" for reason, count in examples.left_out.items()]
        why = "; ".join([*report.errors[:3], *reasons])
        raise DatasetError(
            f"{several(measured, 'operator')} can be used, and {FEWEST} is the least. {why}. Give more time with "
            "--budget, or measure again on a quiet machine: op-profiler calibrate --remeasure noisy"
        )
    device = examples.only_device
    note = note_calibration(build.target, absolute_address(request.db), device.key)
    return CalibrationResult(
        operators=measured,
        device_key=device.key,
        processor=device.processor,
        target=device.target,
        seconds=report.seconds,
        note=str(note),
        errors=tuple(report.errors),
        failed=report.failed,
        timings=report.timings,
        disturbed=report.disturbed,
    )


def _devices(collection: Collection, models: Sequence[str]) -> set[str]:
    """Return the keys of the devices that batches were measured on: one device, or several boards of a tracker."""
    found = (collection.dataset.find_model(key) for key in models)
    return {model.device_key for model in found if model is not None and model.device_key is not None}


def _measured(db: str, devices: Set[str]) -> Examples:
    """Return all measurements of a device in the dataset; of several boards, those of the board with the most."""
    return max((load_examples(db=db, device=key) for key in sorted(devices) or [""]), key=len)
