"""`Study`: base class of the studies of a model's operators, with their common inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, TuneRequest
from op_profiler.measure.measurement import Device

if TYPE_CHECKING:
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.dataset import Dataset
    from op_profiler.targets.machine import Machine


@dataclasses.dataclass
class Study:
    """Base class of a study of a model, which returns a result for the report and may store rows in the dataset.

    Attributes:
        request: request of the collection.
        operators: workload keys of the operators to study.
        dataset: dataset that stores rows of the study.
        open_machine: opens the machine that the model is measured on, if it is not open, and returns it.
        target: `tvm.target.Target` that the model is built for.
        announce: called with the current step, as `WorkerBase.announce`.
        inputs: inputs of the model that the user gave; empty for random inputs.
    """

    request: CollectRequest
    operators: frozenset[str]
    dataset: Dataset
    open_machine: Callable[[], Machine]
    target: Target
    announce: Callable[..., None]
    inputs: dict[str, Any]

    @property
    def build(self) -> BuildRequest:
        """The build request of the model."""
        return self.request.build

    @property
    def tune(self) -> TuneRequest:
        """The options of the search for schedules; defaults if no search was requested."""
        return self.request.studies.tune or TuneRequest()

    @property
    def machine(self) -> Machine:
        """The machine that measures, opened at first use; a search on boards opens the boards without this property."""
        return self.open_machine()

    @property
    def device(self) -> Device:
        """The device as the dataset stores it."""
        return self.machine.device

    @property
    def threads(self) -> int:
        """Thread count at which operators are timed in isolation: the largest requested count."""
        return max(self.build.threads)

    def run(self, model: ImportedModel) -> list[dict[str, Any]]:
        """Run the study; return JSON-serializable results, one entry per anchor or thread count."""
        raise NotImplementedError
