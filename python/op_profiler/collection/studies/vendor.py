"""The study ``--vendor``: times torch's kernels next to the default and the best recorded schedule."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from op_profiler.collection.studies.report import VendorTimes
from op_profiler.collection.studies.study import Study
from op_profiler.collection.studies.tune import measurement_of, tunables_of
from op_profiler.dataset import Row
from op_profiler.measure.disturbance import UNSTEADY
from op_profiler.schedules.records import computation_of
from op_profiler.schedules.schedule import Schedule
from op_profiler.tuning.candidate import VENDOR, Candidate
from op_profiler.tuning.search import candidate_of
from op_profiler.tuning.trials.runner import TrialRunner

if TYPE_CHECKING:
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.measure.measurement import Measurement
    from op_profiler.tuning.candidate import TrialResult
    from op_profiler.tuning.tunable import Tunable

_ROUNDS = 21
_TRIES = 3
"""Largest number of attempts to measure times without a disturbance."""


class VendorComparison(Study):
    """The study that times the vendor's kernels next to the default and the best recorded schedule."""

    def run(self, model: ImportedModel) -> list[dict[str, Any]]:
        """Return the fields of a `VendorTimes` for each anchor."""
        self.announce(stage="fusing")
        items, _ = tunables_of(model, self.target, self.operators)
        results = []
        with TrialRunner(str(self.target), self.threads, name=self.build.target) as runner:
            for done, item in enumerate(items):
                detail = f"{done + 1} of {len(items)} operators"
                self.announce(stage="timing the vendor's kernels", share=done / len(items), detail=detail)
                results.append(dataclasses.asdict(self._compare(item, runner)))
        return results

    def _compare(self, item: Tunable, runner: TrialRunner) -> VendorTimes:
        best = self._best(item)
        candidates = {"vendor": Candidate((item.default or item.tasks[0]), VENDOR)}
        if item.default is not None:
            candidates["default"] = Candidate(item.default, None)
        if best is not None and best not in candidates.values():
            candidates["tuned"] = best
        results: dict[str, TrialResult] = {}
        found: dict[str, Measurement] = {}
        disturbed = None
        for _ in range(_TRIES):
            results = dict(zip(candidates, runner.compare(list(candidates.values()), _ROUNDS)))
            found = {name: measurement_of(result) for name, result in results.items()}
            disturbed = _disturbed(found)
            if disturbed is None:
                break
        times = {name: one.median_us for name, one in found.items()}
        if best is not None and "tuned" not in times:  # the default is the fastest that is known
            times["tuned"] = times["default"]
        vendor = found["vendor"]
        self._store(item, runner, results["vendor"].kernel or "torch", vendor)
        return VendorTimes(
            item.anchor.key,
            item.operators,
            times.get("default"),
            times.get("tuned"),
            vendor.median_us,
            vendor.ci_low_us,
            vendor.ci_high_us,
            results["vendor"].kernel,
            results["vendor"].error,
            disturbed,
        )

    def _best(self, item: Tunable) -> Candidate | None:
        """Return the candidate of the record that a build uses for an anchor; None without a record."""
        task = item.tasks[0]
        best = self.build.usable_records().chosen.get(computation_of(task.template, task.arguments))
        return candidate_of(best, item.specs, self.target) if best is not None else None

    def _store(self, item: Tunable, runner: TrialRunner, kernel: str, measurement: Measurement) -> None:
        self.dataset.add_anchor(item.anchor)
        self.dataset.record(
            Row(
                operator_key=item.anchor.key,
                schedule=Schedule(kernel.split(" ")[0], {"kernel": kernel}, "vendor"),
                settings=runner.settings(),
                device=self.device,
                measurement=measurement,
            )
        )


def _disturbed(found: Mapping[str, Measurement]) -> str | None:
    """Return which disturbances affected the times, for `VendorTimes.disturbed_by`; None without a disturbance."""
    if any(one.foreign_load for one in found.values()):
        return "background load"
    unsteady = [name for name, one in found.items() if one.disturbed_by is not None]
    return f"{UNSTEADY}: {', '.join(unsteady)}" if unsteady else None
