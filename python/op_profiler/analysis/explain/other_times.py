"""Times of an operator's anchor under other schedules: measured on machines of the same hardware model, or
predicted."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from op_profiler.analysis.explain.evidence import Interval, OtherTimes
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.dataset import Dataset, flat_rows
from op_profiler.dataset.formats.parquet import parquet_rows
from op_profiler.measure.disturbance import COPIES_APART
from op_profiler.operators.cost import HEAVY
from op_profiler.prediction.schedules.tuning_gain import TuningGain
from op_profiler.shipped import shipped_trials

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import Occurrence

_WHERE = "origin = 'trial' or origin = 'tuned' or origin = 'vendor'"
_ORIGINS = ("trial", "tuned", "vendor")
_WIDEST = 2 * (COPIES_APART - 1)
"""Largest accepted width of the interval of a vendor time, relative to the time: earlier versions stored any time."""
_COLUMNS = (
    *("operator_key", "anchor", "params", "attrs", "flops", "bytes_read", "bytes_written", "template", "origin"),
    *("device_key", "host_fingerprint", "threads", "cache", "median_us", "ci_low_us", "ci_high_us"),
    *("foreign_load", "disturbed_by"),
)


@dataclasses.dataclass
class Best:
    """The shortest times of an anchor on machines of one hardware model, in microseconds.

    Attributes:
        searched_us: time of the best searched schedule; None if no time is known.
        template: template of that schedule.
        vendor: shortest time of the vendor's kernels, with its interval; None if no time is known.
        vendor_is_disturbed: whether a time of the vendor's kernels was disturbed.
    """

    searched_us: float | None = None
    template: str = ""
    vendor: Interval | None = None
    vendor_is_disturbed: bool = False

    def note(self, row: Mapping[str, Any]) -> None:
        """Store the time of a row if it is the shortest so far; ignore a disturbed time, but set `vendor_is_disturbed`
        if it is the time of a vendor's kernel."""
        us = float(row["median_us"])
        low, high = (us if row[end] is None else float(row[end]) for end in ("ci_low_us", "ci_high_us"))
        if row["foreign_load"] or row["disturbed_by"] or high - low > _WIDEST * us:
            self.vendor_is_disturbed |= row["origin"] == "vendor"
        elif row["origin"] == "vendor":
            self.vendor = min((us, low, high), self.vendor or (us, low, high))
        elif self.searched_us is None or us < self.searched_us:
            self.searched_us, self.template = us, str(row["template"])


@dataclasses.dataclass(frozen=True)
class KnownSchedules:
    """Known times of other schedules, for the operators of a model.

    Attributes:
        best: shortest times with hot caches at the requested thread count, by the host's fingerprint and the workload
            key of the anchor.
        gain: predictor of the time after a search; None if too few searches are known.
    """

    best: Mapping[tuple[str, str], Best]
    gain: TuningGain | None

    @classmethod
    def read(cls, db: str | None, *, shipped: bool, threads: int) -> KnownSchedules:
        """Read trials, tuned schedules and times of vendors' kernels from a dataset and from the included trials.

        Only the shortest times are kept in memory.

        Args:
            db: SQLAlchemy URL of the dataset; None: no dataset.
            shipped: whether to read the included trials.
            threads: requested thread count.

        Raises:
            DatasetError: the dataset cannot be opened.
        """
        best: dict[tuple[str, str], Best] = {}

        def searched() -> Iterator[Mapping[str, Any]]:
            for row in _rows(db, shipped=shipped):
                if (row["threads"], row["cache"]) == (threads, "hot") and row["median_us"] is not None:
                    best.setdefault((row["host_fingerprint"], row["operator_key"]), Best()).note(row)
                if row["origin"] != "vendor":
                    yield row

        gain = TuningGain.of(searched())
        return cls(best, gain)

    def of(self, occurrence: Occurrence, host_fingerprint: str, hot_us: float, peak_flops_per_us: float) -> OtherTimes:
        """Return the times of an operator's anchor under other schedules; all unknown if the anchor is not a heavy op.

        Args:
            occurrence: the operator in its model.
            host_fingerprint: fingerprint of the machine.
            hot_us: time of the operator with hot caches.
            peak_flops_per_us: peak of the processor, at the requested thread count.
        """
        if occurrence.operator.anchor not in HEAVY:
            return OtherTimes()
        anchor = compiler_in_use().anchor(occurrence)
        best = self.best.get((host_fingerprint, anchor.key), Best())
        others = OtherTimes(
            best_us=best.searched_us,
            best_from=best.template,
            vendor=best.vendor,
            vendor_is_disturbed=best.vendor is None and best.vendor_is_disturbed,
        )
        if not compiler_in_use().own_tasks(anchor):
            return others
        if self.gain is None:
            return dataclasses.replace(others, searchable=True, no_gain_reason="too few searches are known")
        tuned = self.gain.predict(dataclasses.asdict(anchor), "hot", hot_us, peak_flops_per_us)
        no_gain_reason = "" if tuned is not None else "it is far smaller than all whose searches are known"
        return dataclasses.replace(others, searchable=True, tuned=tuned, no_gain_reason=no_gain_reason)


def _rows(db: str | None, *, shipped: bool) -> Iterator[Mapping[str, Any]]:
    if db is not None:
        with Dataset.open(db, create=False, read_only=True) as dataset:
            yield from flat_rows(dataset, where=_WHERE, columns=_COLUMNS)
    file = shipped_trials() if shipped else None
    if file is not None and file.is_file():
        yield from parquet_rows(file, _COLUMNS, [("origin", "in", _ORIGINS)])
