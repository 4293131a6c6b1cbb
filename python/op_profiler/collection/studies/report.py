"""`StudyReport`: the results of tuning, comparison and vendor kernels, for tables and JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from op_profiler.collection.studies.compare import ModelSpeedup
from op_profiler.collection.studies.tune import TuningResult
from op_profiler.collection.studies.vendor import VendorTimes


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
