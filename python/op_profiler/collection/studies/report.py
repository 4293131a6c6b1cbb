"""`StudyReport`: the results of tuning, comparison and vendor kernels, for tables and JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec


@dataclasses.dataclass(frozen=True)
class OperatorPair:
    """One call of an operator in both builds, times in microseconds."""

    position: int
    name: str
    default_key: str
    tuned_key: str
    template: str
    default_us: float
    tuned_us: float


@dataclasses.dataclass(frozen=True)
class ModelSpeedup:
    """One model at one thread count.

    Attributes:
        default_us, tuned_us: medians of the whole model.
        speedup: median over the rounds of default over tuned, each from neighbouring runs.
        speedup_low, speedup_high: its 95 % interval (order statistics); None if there are too few rounds.
        difference: largest difference between the outputs, as a share of the largest value.
        agree: whether the difference is within the tolerance of the coarsest type that was compared.
        operators: results call by call; empty if the builds have different calls.
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
    """Result of the search for one anchor; all times in microseconds, measured in turn.

    Attributes:
        anchor: workload key of the anchor in isolation, or of the operator if the compiler tunes whole operators.
        operators: workload keys of the fused operators that contain it.
        default_us: time of the schedule that the compiler uses without records; None if it has no time.
        best_us, template: time and template of the schedule that became the record.
        default_in_model_us, best_in_model_us: times of both in the model, per call and with the fused ops; None if they
            were not compared there.
        trials, failed, new: numbers of tried candidates, of failed ones, and of those that this run measured.
        partial_us: best time by number of trials.
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
    """Times of one anchor, measured in turn with hot caches, in microseconds; None for a missing time.

    Attributes:
        operators: workload keys of the fused operators that contain it.
        vendor_low_us, vendor_high_us: 95 % interval of `vendor_us`.
        vendor_kernel: the fastest function of torch, with its memory layout.
        disturbed_by: disturbances of these times that remained after repetitions; None if none is known.
        error: reason why the vendor's kernel has no time.
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
    """Results of the studies of one model; a study that was not requested is empty.

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
        """Return a copy with a worker's result added, from plain values."""
        name, kind = _RESULTS[work]
        found: Any = msgspec.convert(result, tuple[kind, ...], str_keys=True)  # type: ignore[valid-type]
        return dataclasses.replace(self, **{name: found})

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
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
"""For each work, the field of `StudyReport` and the type of its entries."""
