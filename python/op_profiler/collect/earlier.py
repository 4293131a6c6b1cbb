"""What the dataset has of a model already: of the same request, or of the same operators elsewhere."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from op_profiler.collect.request import CollectRequest
from op_profiler.dataset import Dataset, StoredMeasurement
from op_profiler.measure._base import Measurement

if TYPE_CHECKING:
    from op_profiler.collect.session import Session
    from op_profiler.measure.rounds import Samples


@dataclasses.dataclass(frozen=True)
class Earlier:
    """What was stored of a model before, under the settings that a request asks for.

    Attributes:
        model_key: identity of the lowered model in the dataset.
    """

    dataset: Dataset
    request: CollectRequest
    model_key: str

    def _stored(self, threads: int) -> dict[str, StoredMeasurement]:
        asked = self.request.asked(threads)
        return self.dataset.measurements_of(self.model_key, threads=threads, cache=self.request.cache, resources=asked)

    def complete(self, threads: int) -> dict[str, Measurement]:
        """By workload key, what needs not be measured again at a thread count."""
        return {key: row.measurement for key, row in self._stored(threads).items() if row.complete}

    def known(self) -> dict[int, dict[str, Measurement]]:
        """Complete measurements that hold in any model; in the state ``model`` there are none."""
        if self.request.cache == "model":
            return {}
        complete = {threads: self.complete(threads) for threads in self.request.threads}
        return {n: {key: m for key, m in rows.items() if not m.error} for n, rows in complete.items()}

    def samples(self, session: Session) -> dict[int, Samples]:
        """Samples that a process of the same request stored before it was killed.

        Rounds visit all thread counts, so the samples are of use only if each count has as many of them.
        """
        from op_profiler.measure.rounds import Samples

        samples = {}
        for threads in self.request.threads:
            timing = self.dataset.find_model_timing(
                self.model_key, threads=threads, cache=self.request.cache, resources=self.request.asked(threads)
            )
            if timing is None or timing.timing.whole_model.error is not None:
                return {n: Samples() for n in self.request.threads}
            stored = {key: row.measurement for key, row in self._stored(threads).items()}
            samples[threads] = session.restore(stored, timing.timing.whole_model)
        if len({s.rounds for s in samples.values()}) != 1:
            return {n: Samples() for n in self.request.threads}
        return samples
