"""The tasks that are sent to workers of a cluster: collect, sample, calibrate and co-run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import msgspec

from op_profiler.collection.request import CollectRequest
from op_profiler.collection.sampling.batch import Batch
from op_profiler.collection.sampling.calibrate import CalibrationResult, calibrate
from op_profiler.collection.sampling.draw import Draw
from op_profiler.collection.sampling.run import SampleReport, measure_batches
from op_profiler.collection.summary import ModelReport
from op_profiler.collection.supervisor import Collection
from op_profiler.errors import EXIT_ENVIRONMENT
from op_profiler.fleet.quarantine import Quarantine
from op_profiler.frontends import FRONTENDS
from op_profiler.parallel.corun.child import CorunAnswer, corun_in_child
from op_profiler.parallel.corun.request import CorunRequest
from op_profiler.targets.target import kind_of

if TYPE_CHECKING:
    from op_profiler.collection.progress import Progress


class _Collecting(msgspec.Struct, frozen=True):
    """Base class of the tasks that `Collection` carries out.

    Attributes:
        TRIES: largest number of attempts if the machine or the dataset causes failures; each attempt reuses the results
            that are already stored.
        request: request of the collection.
    """

    TRIES: ClassVar[int] = 3
    request: CollectRequest

    def carry_out(self, progress: Progress) -> tuple[ModelReport | SampleReport | CalibrationResult, float | None]:
        """Carry out the task on this machine; return the answer and `Collection.deviation`."""
        with Collection(self.request.db) as collection:  # opened when it is needed
            return self._carry_out(collection, progress), collection.deviation

    def _carry_out(self, collection: Collection, progress: Progress) -> ModelReport | SampleReport | CalibrationResult:
        raise NotImplementedError

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of targets that the machine of the worker has to measure; empty if the client names a board."""
        return () if self.request.build.place is not None else (self.request.build.kind.name,)


class CollectTask(_Collecting, frozen=True, tag="collect"):
    """A task that collects one model at one precision, with its studies.

    Attributes:
        deaths: number of workers that died of this task in this run.
    """

    ANSWER: ClassVar[type] = ModelReport
    deaths: int = 0

    @property
    def name(self) -> str:
        """Name of the model."""
        return self.request.build.model.name

    def _carry_out(self, collection: Collection, progress: Progress) -> ModelReport:
        quarantine = Quarantine(collection.dataset, self.request)
        if self.deaths:
            quarantine.begin(self.deaths, progress)
        elif reason := quarantine.reason():
            return ModelReport(self.request, error=reason)
        (report,) = collection.run(FRONTENDS.get(self.request.build.model.source), [self.request], progress)
        if report.error_code != EXIT_ENVIRONMENT:
            quarantine.end()
        return report


class SampleTask(_Collecting, frozen=True, tag="sample"):
    """A task that measures one batch of a sampling run.

    Attributes:
        draw: description of the sampling run.
        number: number of the batch in the draw, from 0.
    """

    ANSWER: ClassVar[type] = SampleReport
    draw: Draw
    number: int

    @property
    def name(self) -> str:
        """Label of the draw and number of the batch."""
        return f"{self.draw.label}-{self.number}"

    def _carry_out(self, collection: Collection, progress: Progress) -> SampleReport:
        """Measure the batch; return a report without a batch if the draw has fewer batches."""
        batches = batch_of(self.draw, self.number)
        return measure_batches(batches, self.request, collection, progress, count=None, budget_seconds=None)


_drawn: dict[bytes, tuple[int, Iterator[Batch]]] = {}
"""Cache for the draw that this process used last: the number of batches drawn so far, and the iterator over the next
batches. Drawing all earlier batches again for each batch would take quadratic time."""


def batch_of(draw: Draw, number: int) -> Iterator[Batch]:
    """Return an iterator that yields only batch `number` of a draw, and nothing if the draw has fewer batches."""
    name = msgspec.msgpack.encode(draw)
    gone, rest = _drawn.pop(name, (0, None))  # no other thread goes on in it meanwhile
    if rest is None or number < gone:
        gone, rest = 0, draw.batches()
    found = list(itertools.islice(rest, number - gone, number - gone + 1))
    _drawn.clear()
    _drawn[name] = (number + 1, rest)
    return iter(found)


class CalibrateTask(_Collecting, frozen=True, tag="calibrate"):
    """A task that calibrates the machine of the worker.

    Attributes:
        budget_seconds, seed: as for `op_profiler.collection.sampling.calibrate.calibrate`.
    """

    ANSWER: ClassVar[type] = CalibrationResult
    budget_seconds: float
    seed: int

    @property
    def name(self) -> str:
        """Name of the task: ``calibration``."""
        return "calibration"

    def _carry_out(self, collection: Collection, progress: Progress) -> CalibrationResult:
        """Calibrate this machine, and store on it where the measurements are.

        Raises:
            DatasetError: too few operators can be used.
        """
        return calibrate(
            self.request,
            collection,
            progress,
            budget_seconds=self.budget_seconds,
            seed=self.seed,
        )


class CorunTask(msgspec.Struct, frozen=True, tag="corun"):
    """A task that runs models side by side under one policy."""

    TRIES: ClassVar[int] = 1  # another one would begin from the start, and store what it measures beside the first
    ANSWER: ClassVar[type] = CorunAnswer
    request: CorunRequest

    @property
    def name(self) -> str:
        """Names of the models and the policy, such as ``mlp+lstm-nash``."""
        return f"{'+'.join(model.name for model in self.request.models)}-{self.request.policy}"

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the targets that the machine of the worker has to measure."""
        return tuple(kind_of(target).name for target in self.request.targets)

    def carry_out(self, progress: Progress) -> tuple[CorunAnswer, None]:
        """Run the models in a child process; return the answer, and None because no deviation is measured."""
        return corun_in_child(self.request, lambda text: progress.step(f"{self.name}: {text}", 0.0)), None


Task = CollectTask | SampleTask | CalibrateTask | CorunTask
Answer = ModelReport | SampleReport | CalibrationResult | CorunAnswer
