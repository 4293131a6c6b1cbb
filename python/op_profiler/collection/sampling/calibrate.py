"""`calibrate`: measures the most informative operators on a machine until predictions for it can be made."""

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
from op_profiler.prediction.latency.calibration import FEWEST, note_calibration, operators_in
from op_profiler.prediction.latency.examples import load_examples

if TYPE_CHECKING:
    from op_profiler.collection.progress import Progress
    from op_profiler.collection.supervisor import Collection
    from op_profiler.prediction.latency.examples import Examples


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibrated:
    """A machine that predictions can be made for.

    Attributes:
        operators: that its measurements can be used of.
        device_key: of the device in the dataset.
        processor, target: of that device.
        seconds: it took.
        note: file on that machine which says so to every command from now on.
        errors: of batches that could not be measured, and of operators that could not be lowered.
        failed: measurements that failed.
        timings: times that are there, new or reused; `disturbed`: those that predictors leave out, by the reason.
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
        """Return plain values; a device is given by its key."""
        return {name: one for name, one in dataclasses.asdict(self).items() if name not in ("processor", "target")}


def calibrate(
    request: CollectRequest, collection: Collection, progress: Progress, *, budget_seconds: float, seed: int
) -> Calibrated:
    """Measure, and leave a note on this machine of where the measurements lie.

    Args:
        request: everything but the model; its dataset is the collection's.

    Raises:
        DatasetError: too little could be measured.
        OpProfilerError: the request cannot work, or the note cannot be written.
    """
    build = request.build
    batches = Draw(label="calibrate", seed=seed, telling=True).batches()
    report = measure_batches(batches, request, collection, progress, count=None, budget_seconds=budget_seconds)
    examples = _measured(request.db, _devices(collection, report.models))
    measured = operators_in(examples)
    if measured < FEWEST:
        reasons = [f"{count} measurements left out: {reason}" for reason, count in examples.left_out.items()]
        why = "; ".join([*report.errors[:3], *reasons])
        raise DatasetError(
            f"{measured} operators can be used, and {FEWEST} is the least. {why}. Give more time with --budget, or "
            "measure again on a quiet machine: op-profiler calibrate --remeasure noisy"
        )
    device = examples.devices[int(examples.device[0])]
    note = note_calibration(build.target, absolute_address(request.db), device.key)
    return Calibrated(
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
    """Keys of the devices that batches were measured on: one, or boards of a tracker."""
    found = (collection.dataset.find_model(key) for key in models)
    return {model.device_key for model in found if model is not None and model.device_key is not None}


def _measured(db: str, devices: Set[str]) -> Examples:
    """All that the dataset holds of the machine; of several boards that of the one with most measurements."""
    return max((load_examples(db=db, device=key) for key in sorted(devices) or [""]), key=len)
