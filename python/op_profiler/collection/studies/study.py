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
    """Work on a model whose outcome is a result for the report, beside what it stores.

    Attributes:
        operators: workload keys of those that it is about.
        open_machine: the machine that the model is measured on.
        target: `tvm.target.Target`.
        inputs: that the user gave; empty for random ones.
        announce: told what is being done, as `Worker.announce`.
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
        """What the model is built for."""
        return self.request.build

    @property
    def tune(self) -> TuneRequest:
        """How to search."""
        return self.request.studies.tune or TuneRequest()

    @property
    def machine(self) -> Machine:
        """Opened when first asked for: a search on boards asks for them by itself."""
        return self.open_machine()

    @property
    def device(self) -> Device:
        """What the dataset keeps of the machine."""
        return self.machine.device

    @property
    def threads(self) -> int:
        """That operators alone run with: the most that were asked for."""
        return max(self.build.threads)

    def run(self, model: ImportedModel) -> list[dict[str, Any]]:
        """Do it; plain values, one entry an anchor or a thread count."""
        raise NotImplementedError
