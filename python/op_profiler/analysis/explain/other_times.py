"""What the anchor of an operator takes under other schedules: measured on machines like this one, or predicted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.analysis.explain.evidence import OtherTimes
from op_profiler.operators.cost import HEAVY

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import Occurrence
    from op_profiler.measure.measurement import Device
    from op_profiler.predict.schedules.tuning_gain import TuningGain

_WHERE = "origin = 'trial' or origin = 'tuned' or origin = 'vendor'"
_ORIGINS = ("trial", "tuned", "vendor")


@dataclasses.dataclass(frozen=True)
class KnownSchedules:
    """Answers for the operators of a model.

    Attributes:
        rows: of the flat table, measured on machines like this one with hot caches and so many threads.
        gain: what searches usually bring; None where too few are known.
    """

    rows: Sequence[Mapping[str, Any]]
    gain: TuningGain | None

    @classmethod
    def on(cls, rows: Sequence[Mapping[str, Any]], device: Device, threads: int) -> KnownSchedules:
        """What rows of `schedule_rows` say of a machine."""
        from op_profiler.predict.schedules.tuning_gain import TuningGain

        near = [
            row
            for row in rows
            if row["host_fingerprint"] == device.host_fingerprint
            and (row["threads"], row["cache"]) == (threads, "hot")
            and row["median_us"] is not None
        ]
        return cls(near, TuningGain.of(row for row in rows if row["origin"] != "vendor"))

    def of(self, occurrence: Occurrence, hot_us: float, peak_flops_per_us: float) -> OtherTimes:
        """Of the anchor of an operator; of one that no template computes, nothing.

        Args:
            hot_us: what the operator takes.
            peak_flops_per_us: of the processor, at the thread count that is asked about.
        """
        from op_profiler.compilers.compiler import compiler_in_use

        if occurrence.operator.anchor not in HEAVY:
            return OtherTimes()
        anchor = compiler_in_use().anchor(occurrence)
        mine = [row for row in self.rows if row["operator_key"] == anchor.key]
        searched = [row for row in mine if row["origin"] != "vendor"]
        vendor = [float(row["median_us"]) for row in mine if row["origin"] == "vendor"]
        best = min(searched, key=lambda row: float(row["median_us"]), default=None)
        tuned = None
        if self.gain is not None and compiler_in_use().own_tasks(anchor):
            tuned = self.gain.predict(dataclasses.asdict(anchor), "hot", hot_us, peak_flops_per_us)
        return OtherTimes(
            best_us=float(best["median_us"]) if best is not None else None,
            best_from=str(best["template"]) if best is not None else "",
            vendor_us=min(vendor, default=None),
            tuned=tuned,
        )


def schedule_rows(db: str | None, *, shipped: bool) -> list[dict[str, Any]]:
    """Trials, their winners and the vendor's times, of a dataset and of what ships.

    Raises:
        DatasetError: the dataset cannot be opened.
    """
    from op_profiler.dataset import Dataset, flat_rows, read_parquet
    from op_profiler.shipped import shipped_trials

    rows: list[dict[str, Any]] = []
    if db is not None:
        with Dataset.open(db, create=False, read_only=True) as dataset:
            rows += flat_rows(dataset, where=_WHERE)
    file = shipped_trials() if shipped else None
    if file is not None and file.is_file():
        rows += [row for row in read_parquet(file) if row["origin"] in _ORIGINS]
    return rows
