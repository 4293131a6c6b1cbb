"""`Study`: the inputs that every study of a model's operators has."""

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
    """A study of a model, with a result for the report in addition to stored rows.

    Attributes:
        operators: workload keys of the operators to study.
        open_machine: opens the machine that the model is measured on.
        target: `tvm.target.Target`.
        inputs: inputs that the user gave; empty for random ones.
        announce: called with the current step, as `Worker.announce`.
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
        """The options of the search."""
        return self.request.studies.tune or TuneRequest()

    @property
    def machine(self) -> Machine:
        """The machine, opened at first use; a search on boards opens boards itself."""
        return self.open_machine()

    @property
    def device(self) -> Device:
        """The device as the dataset stores it."""
        return self.machine.device

    @property
    def threads(self) -> int:
        """Thread count of operators in isolation: the largest requested."""
        return max(self.build.threads)

    def run(self, model: ImportedModel) -> list[dict[str, Any]]:
        """Run the study; return plain values, one entry per anchor or thread count."""
        raise NotImplementedError
