"""`StudyReport`: the results of the studies (tuning, comparison, vendor kernels), for tables and JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec


@dataclasses.dataclass(frozen=True)
class OperatorPair:
    """One call of an operator in the default and in the tuned build.

    Attributes:
        position: position of the call in the model, from 0.
        name: name of the kernel in the default build.
        default_key, tuned_key: workload keys of the operator in both builds.
        template: template of the schedule in the tuned build.
        default_us, tuned_us: medians of the call in both builds, microseconds.
    """

    position: int
    name: str
    default_key: str
    tuned_key: str
    template: str
    default_us: float
    tuned_us: float


@dataclasses.dataclass(frozen=True)
class ModelSpeedup:
    """Speed-up of a model by recorded schedules, at one thread count.

    Attributes:
        default_us, tuned_us: medians of the whole model, microseconds.
        speedup: median over the rounds of the ratio default / tuned; both times of a ratio are from neighbouring runs.
        speedup_low, speedup_high: 95 % interval of `speedup` (order statistics); None if there are too few rounds.
        rounds: number of rounds.
        difference: largest difference between the outputs of both builds, relative to the largest value.
        agree: whether the difference is within the tolerance of the coarsest dtype that was compared.
        operators: results of each call; empty if the builds have different calls.
    """

    threads: int
    default_us: float
    tuned_us: float
    speedup: float
    speedup_low: float | None
    speedup_high: float | None
    rounds: int
    difference: float
    agree: bool
    operators: tuple[OperatorPair, ...]


@dataclasses.dataclass(frozen=True)
class TuningResult:
    """Result of the search for one anchor; all times in microseconds, measured alternately.

    Attributes:
        anchor: workload key of the anchor in isolation, or of the operator if the compiler tunes whole operators.
        operators: workload keys of the fused operators that contain the anchor.
        default_us: time of the schedule that the compiler uses without records; None if it has no time.
        best_us, template: time and template of the chosen schedule; None if no schedule was chosen.
        default_in_model_us, best_in_model_us: times of the default and the chosen schedule in the model, per call and
            including fused ops; None if schedules were not compared in the model.
        trials: number of tried candidates.
        failed: number of candidates that failed.
        new: number of candidates that this run measured.
        partial_us: best time after a number of trials, by that number.
    """

    anchor: str
    operators: tuple[str, ...]
    default_us: float | None
    best_us: float | None
    template: str | None
    trials: int
    failed: int
    new: int
    partial_us: dict[int, float | None]
    default_in_model_us: float | None = None
    best_in_model_us: float | None = None


@dataclasses.dataclass(frozen=True)
class VendorTimes:
    """Times of one anchor, measured alternately with hot caches, microseconds; None for a missing time.

    Attributes:
        anchor: workload key of the anchor in isolation.
        operators: workload keys of the fused operators that contain the anchor.
        default_us, tuned_us: medians with the default schedule and with the schedule that builds use.
        vendor_us: median of the vendor's kernel.
        vendor_low_us, vendor_high_us: 95 % interval of `vendor_us`.
        vendor_kernel: the fastest function of torch, with its memory layout.
        error: why the vendor's kernel has no time; None if it has a time.
        disturbed_by: disturbances of these times that remained after repetitions; None if no disturbance was detected.
    """

    anchor: str
    operators: tuple[str, ...]
    default_us: float | None
    tuned_us: float | None
    vendor_us: float | None
    vendor_low_us: float | None
    vendor_high_us: float | None
    vendor_kernel: str | None
    error: str | None
    disturbed_by: str | None = None


@dataclasses.dataclass(frozen=True)
class StudyReport:
    """Results of the studies of one model; the field of a study that was not requested is empty.

    Attributes:
        tuned: one result per anchor.
        compared: one result per thread count.
        vendor: one result per anchor.
        problems: studies that did not finish, with the reason.
    """

    tuned: tuple[TuningResult, ...] = ()
    compared: tuple[ModelSpeedup, ...] = ()
    vendor: tuple[VendorTimes, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a study did not finish, or default and tuned outputs disagree."""
        return bool(self.problems) or any(not c.agree for c in self.compared)

    def with_result(self, work: str, result: list[dict[str, Any]]) -> StudyReport:
        """Return a copy with a worker's result added.

        Args:
            work: study of the worker: ``tune``, ``compare`` or ``vendor``.
            result: fields of each result, as `Study.run` returns them.
        """
        name, kind = _RESULTS[work]
        found: Any = msgspec.convert(result, tuple[kind, ...], str_keys=True)  # type: ignore[valid-type]
        return dataclasses.replace(self, **{name: found})

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary of the results."""
        return {
            "tuning": [dataclasses.asdict(t) for t in self.tuned],
            "comparison": [dataclasses.asdict(c) for c in self.compared],
            "vendor": [dataclasses.asdict(v) for v in self.vendor],
            "problems": list(self.problems),
        }


_RESULTS: dict[str, tuple[str, type]] = {
    "tune": ("tuned", TuningResult),
    "compare": ("compared", ModelSpeedup),
    "vendor": ("vendor", VendorTimes),
}
"""Field of `StudyReport` and type of its entries, by the worker's study."""
