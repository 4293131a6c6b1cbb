"""Finds stored results that a collection reuses: of the same request, or of the same operators in other models."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from op_profiler.collection.request import CollectRequest
from op_profiler.measure.failures import cause_of
from op_profiler.measure.measurement import Measurement

if TYPE_CHECKING:
    from op_profiler.collection.session import Session
    from op_profiler.dataset import Dataset, StoredMeasurement, StoredTiming
    from op_profiler.measure.counters import Counted
    from op_profiler.measure.samples import Samples

_COVERAGE_BEFORE_IT_WAS_STORED = 0.95


def to_repeat(measurement: Measurement, remeasure: str, *, converged: bool = False) -> bool:
    """Return whether a stored measurement must be measured again.

    Args:
        remeasure: as in `Measuring`; failures that the machine caused are always retried.
        converged: whether the convergence of the run is checked separately. A measurement that did not converge does
            then not count as noisy for that reason alone, because light operators may never converge.
    """
    if measurement.error is not None:
        return cause_of(measurement.error) == "machine" or remeasure in ("failed", "all")
    too_wide = measurement.settled is False and not converged
    noisy = measurement.foreign_load or too_wide or measurement.disturbed_by is not None
    return remeasure == "all" or (remeasure == "noisy" and noisy)


@dataclasses.dataclass(frozen=True)
class StoredResults:
    """Stored results of a model under the settings of a request.

    Attributes:
        model_key: identity of the lowered model in the dataset.
        run_id: identifier of the requesting run; results that this run stored are never repeated. None: no stored
            result is repeated.
    """

    dataset: Dataset
    request: CollectRequest
    model_key: str
    run_id: str | None

    def rows(self, threads: int) -> dict[str, StoredMeasurement]:
        """Return the measurements of the operators at a thread count, complete or not, by workload key."""
        resources, cache = self.request.requested_resources(threads), self.request.build.cache
        return self.dataset.measurements_of(self.model_key, threads=threads, cache=cache, resources=resources)

    def timing(self, threads: int) -> StoredTiming | None:
        """Return the timing of the whole model at a thread count, complete or not; None if the dataset has none."""
        return self.dataset.find_model_timing(
            self.model_key,
            threads=threads,
            cache=self.request.build.cache,
            resources=self.request.requested_resources(threads),
        )

    def answers(self, threads: int) -> bool:
        """Return whether all requested times and counters at a thread count are stored."""
        return self.measured(threads) and not self.uncounted(threads)

    def uncounted(self, threads: int) -> bool:
        """Return whether times are stored at a thread count, but requested counters are not."""
        timing = self.timing(threads)
        if not self.request.measuring.counters or timing is None:
            return False
        whole = timing.timing.whole_model
        return self.measured(threads) and whole.error is None and whole.counters_missing is None

    def measured(self, threads: int) -> bool:
        """Return whether all requested times at a thread count are stored, so that nothing has to be timed."""
        timing = self.timing(threads)
        if timing is None or not timing.complete:
            return False
        whole = timing.timing.whole_model
        converged = whole.settled is not None  # else each operator was measured by itself
        if any(self._repeated(row, converged=converged) for row in self.rows(threads).values()):
            return False
        repeated = self._is_of_other_run(timing) and to_repeat(whole, self.request.measuring.remeasure)
        if repeated or self._disturbed_pair(timing):
            return False
        return whole.error is not None or self._covers(timing)

    def _disturbed_pair(self, timing: StoredTiming) -> bool:
        """Return whether the whole model and its operators must be measured again together, to be comparable."""
        disturbed = timing.timing.not_a_pair is not None or timing.timing.disturbed_by is not None
        return disturbed and self.request.measuring.remeasure == "noisy" and self._is_of_other_run(timing)

    def _covers(self, timing: StoredTiming) -> bool:
        return (timing.timing.coverage or _COVERAGE_BEFORE_IT_WAS_STORED) >= self.request.measuring.coverage

    def replaced(self, threads: int) -> bool:
        """Return whether new complete times at a thread count replace the stored times in any case.

        They do if they were requested again, or if the stored times cover a smaller share of the model than requested.
        """
        timing = self.timing(threads)
        return bool(self.request.measuring.remeasure) or (timing is not None and not self._covers(timing))

    def _repeated(self, row: StoredMeasurement, *, converged: bool = False) -> bool:
        remeasure = self.request.measuring.remeasure
        return self._is_of_other_run(row) and to_repeat(row.measurement, remeasure, converged=converged)

    def _is_of_other_run(self, row: StoredMeasurement | StoredTiming) -> bool:
        return self.run_id is not None and row.run_id != self.run_id

    def beside(self, counted: Counted) -> Iterator[tuple[StoredMeasurement | StoredTiming, dict[str, Any]]]:
        """Yield the stored timings and operator times for which `counted` has counters, each with these counters."""
        for threads in {n for n, _ in counted}:
            timing = self.timing(threads)
            assert timing is not None
            yield timing, counted[threads, None]
            for key, row in self.rows(threads).items():
                if row.complete and row.measurement.error is None and (threads, key) in counted:
                    yield row, counted[threads, key]

    def complete(self, threads: int) -> dict[str, Measurement]:
        """Return the complete measurements and failures of operators at a thread count, by workload key."""
        return {key: row.measurement for key, row in self.rows(threads).items() if row.complete}

    def kept(self, threads: int) -> set[str]:
        """Return the workload keys of the operators that are not measured again at a thread count."""
        timing = self.timing(threads)
        if timing is not None and self._disturbed_pair(timing):
            return set()
        return {key for key, row in self.rows(threads).items() if row.complete and not self._repeated(row)}

    def known(self) -> dict[int, dict[str, Measurement]]:
        """Return the reusable times of operators with hot or cold caches, by thread count and workload key.

        These times are valid in any model. For the cache state ``model`` the result is empty.
        """
        if self.request.build.cache == "model":
            return {}
        kept = {threads: self.kept(threads) for threads in self.request.build.threads}
        complete = {threads: self.complete(threads) for threads in self.request.build.threads}
        return {n: {k: m for k, m in rows.items() if k in kept[n] and not m.error} for n, rows in complete.items()}

    def samples(self, session: Session) -> dict[int, Samples]:
        """Return the samples, by thread count, that a process of the same request stored before it was killed.

        Each round visits all thread counts, so the stored samples are used only if all thread counts have the same
        number of rounds; otherwise the samples are empty.
        """
        from op_profiler.collection.checkpoint import restored
        from op_profiler.measure.samples import Samples

        samples = {}
        for threads in self.request.build.threads:
            timing = self.timing(threads)
            if timing is None or timing.complete:
                return {n: Samples() for n in self.request.build.threads}
            stored = {key: row.measurement for key, row in self.rows(threads).items() if not row.complete}
            samples[threads] = restored(session, stored, timing.timing)
        if len({s.rounds for s in samples.values()}) != 1:
            return {n: Samples(failed=s.failed, discarded=s.discarded + s.rounds) for n, s in samples.items()}
        return samples
