"""What a cluster can be asked for, in plain values that travel to a worker."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

import msgspec

from op_profiler.collection.request import CollectRequest
from op_profiler.collection.sampling.calibrate import Calibrated, calibrate
from op_profiler.collection.sampling.draw import Draw
from op_profiler.collection.sampling.run import SampleReport, measure_batches
from op_profiler.collection.summary import ModelReport

if TYPE_CHECKING:
    from op_profiler.collection.supervisor import Collection, Progress


class CollectTask(msgspec.Struct, frozen=True, tag="collect"):
    """One model at one precision, with its studies."""

    ANSWER: ClassVar[type] = ModelReport
    request: CollectRequest

    @property
    def name(self) -> str:
        return self.request.build.model.name

    def carry_out(self, collection: Collection, progress: Progress) -> ModelReport:
        """On this machine."""
        from op_profiler.frontends import FRONTENDS

        (report,) = collection.run(FRONTENDS.get(self.request.build.model.source), [self.request], progress)
        return report


class SampleTask(msgspec.Struct, frozen=True, tag="sample"):
    """One batch of a sampling run.

    Attributes:
        number: of the batch in the draw, from 0.
    """

    ANSWER: ClassVar[type] = SampleReport
    request: CollectRequest
    draw: Draw
    number: int

    @property
    def name(self) -> str:
        return f"{self.draw.label}-{self.number}"

    def carry_out(self, collection: Collection, progress: Progress) -> SampleReport:
        """On this machine; a report of no batches where the draw has no more."""
        batches = itertools.islice(self.draw.batches(), self.number, self.number + 1)
        return measure_batches(batches, self.request, collection, progress, count=None, budget_seconds=None)


class CalibrateTask(msgspec.Struct, frozen=True, tag="calibrate"):
    """What tells most about a machine, on whichever carries it out."""

    ANSWER: ClassVar[type] = Calibrated
    request: CollectRequest
    budget_seconds: float
    seed: int

    @property
    def name(self) -> str:
        return "calibration"

    def carry_out(self, collection: Collection, progress: Progress) -> Calibrated:
        """On this machine, which keeps a note of it.

        Raises:
            DatasetError: too little could be measured.
        """
        return calibrate(self.request, collection, progress, budget_seconds=self.budget_seconds, seed=self.seed)


Task = CollectTask | SampleTask | CalibrateTask
Answer = ModelReport | SampleReport | Calibrated
