"""The study ``--vendor``: torch's kernels against the default and the best known schedule."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from op_profiler.collection.studies.study import Study
from op_profiler.collection.studies.tune import measurement_of, tunables_of
from op_profiler.dataset import Row
from op_profiler.schedules.records import computation_of
from op_profiler.schedules.schedule import Schedule

if TYPE_CHECKING:
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.tuning.candidate import Candidate, TrialResult
    from op_profiler.tuning.trials.runner import TrialRunner
    from op_profiler.tuning.tunable import Tunable

_ROUNDS = 21


@dataclasses.dataclass(frozen=True)
class VendorTimes:
    """One anchor, timed side by side with hot caches; microseconds, None where there is no time.

    Attributes:
        operators: workload keys of the fused operators that hold it.
        vendor_kernel: what of torch was the fastest, with its memory layout.
        error: why the vendor's kernel has no time.
    """

    anchor: str
    operators: tuple[str, ...]
    default_us: float | None
    tuned_us: float | None
    vendor_us: float | None
    vendor_kernel: str | None
    error: str | None


class VendorComparison(Study):
    """Times the vendor's kernels next to the default and the best recorded schedule."""

    def run(self, model: ImportedModel) -> list[dict[str, Any]]:
        """A `VendorTimes` for each anchor, as plain values."""
        from op_profiler.tuning.trials.runner import TrialRunner

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
        from op_profiler.tuning.candidate import VENDOR, Candidate

        best = self._best(item)
        candidates = {"vendor": Candidate((item.default or item.tasks[0]), VENDOR)}
        if item.default is not None:
            candidates["default"] = Candidate(item.default, None)
        if best is not None and best not in candidates.values():
            candidates["tuned"] = best
        results = dict(zip(candidates, runner.compare(list(candidates.values()), _ROUNDS)))
        times = {name: r.median_us if r.samples_us else None for name, r in results.items()}
        if best is not None and "tuned" not in times:  # the default is the fastest that is known
            times["tuned"] = times["default"]
        vendor = results["vendor"]
        self._store(item, runner, vendor)
        return VendorTimes(
            item.anchor.key,
            item.operators,
            times.get("default"),
            times.get("tuned"),
            times["vendor"],
            vendor.kernel,
            vendor.error,
        )

    def _best(self, item: Tunable) -> Candidate | None:
        """The candidate that a build takes; None where there is no record."""
        from op_profiler.tuning.search import candidate_of

        task = item.tasks[0]
        best = self.build.usable_records().chosen.get(computation_of(task.template, task.arguments))
        return candidate_of(best, item.specs, self.target) if best is not None else None

    def _store(self, item: Tunable, runner: TrialRunner, result: TrialResult) -> None:
        self.dataset.add_anchor(item.anchor)
        kernel = result.kernel or "torch"
        self.dataset.record(
            Row(
                operator_key=item.anchor.key,
                schedule=Schedule(kernel.split(" ")[0], {"kernel": kernel}, "vendor"),
                settings=runner.settings(),
                device=self.device,
                measurement=measurement_of(result),
            )
        )
