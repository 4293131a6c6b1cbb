"""What tuning, comparing and timing the vendor's kernels found, for the report."""

from __future__ import annotations

import dataclasses
from typing import Any

from op_profiler.collection.studies.compare import Compared, OperatorPair
from op_profiler.collection.studies.tune import Tuned
from op_profiler.collection.studies.vendor import VendorTimes


@dataclasses.dataclass(frozen=True)
class StudyReport:
    """The results of the studies of one model; empty where one was not asked for.

    Attributes:
        tuned: one an anchor.
        compared: one a thread count.
        vendor: one an anchor.
        problems: studies that did not end, with the reason.
    """

    tuned: tuple[Tuned, ...] = ()
    compared: tuple[Compared, ...] = ()
    vendor: tuple[VendorTimes, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether a study did not end, or default and tuned outputs disagree."""
        return bool(self.problems) or any(not c.agree for c in self.compared)

    def with_result(self, work: str, result: list[dict[str, Any]]) -> StudyReport:
        """The same with what a worker answered."""
        if work == "tune":
            return dataclasses.replace(self, tuned=tuple(_tuned(r) for r in result))
        if work == "compare":
            return dataclasses.replace(self, compared=tuple(_compared(r) for r in result))
        return dataclasses.replace(self, vendor=tuple(VendorTimes(**_tuples(r)) for r in result))

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "tuning": [dataclasses.asdict(t) for t in self.tuned],
            "comparison": [dataclasses.asdict(c) for c in self.compared],
            "vendor": [dataclasses.asdict(v) for v in self.vendor],
            "problems": list(self.problems),
        }


def _tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"operators": tuple(fields["operators"])}


def _tuned(fields: dict[str, Any]) -> Tuned:
    partial = {int(count): best for count, best in fields["partial_us"].items()}
    return Tuned(**(_tuples(fields) | {"partial_us": partial}))


def _compared(fields: dict[str, Any]) -> Compared:
    return Compared(**(fields | {"operators": tuple(OperatorPair(**o) for o in fields["operators"])}))
