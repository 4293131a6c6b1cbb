"""The contract of plan lanes: cores of this machine's processor, or streams of its GPU."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from op_profiler.parallel.runtime.executor import Inputs

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.tvm_types import RuntimeDevice
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Plan
    from op_profiler.parallel.runtime.executor import Executor


class PlanLanes(abc.ABC):
    """One kind of lanes, without state.

    Attributes:
        lane: name of one lane.
        option: command-line option for the number of lanes that a plan may use.
        only_measured: plans use measured costs only, no operator is tuned for them, and no co-run is stored.
    """

    lane: ClassVar[str]
    option: ClassVar[str]
    only_measured: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def usual_count(self) -> int:
        """Return the default number of lanes of a plan."""

    @abc.abstractmethod
    def first(self, count: int) -> tuple[int, ...]:
        """Return the numbers of the first `count` lanes.

        Raises:
            UsageError: there are fewer.
        """

    @abc.abstractmethod
    def thread_counts(self, count: int) -> tuple[int, ...]:
        """Return the possible numbers of lanes of an operator, in ascending order."""

    def check(self) -> None:
        """Check before a long build that plans can be run here.

        Raises:
            OpProfilerError: plans cannot be run.
        """
        return

    def prepared(self, compiled: Sequence[CompiledModel]) -> tuple[CompiledModel, ...]:
        """Prepare models for `executor`; models that are the same object stay the same."""
        return tuple(compiled)

    def copy(self, compiled: CompiledModel) -> CompiledModel:
        """Copy a `prepared` model, so that both can run side by side."""
        return compiled

    @abc.abstractmethod
    def executor(
        self, graph: KernelGraph, compiled: Sequence[CompiledModel], plan: Plan, device: RuntimeDevice, inputs: Inputs
    ) -> Executor:
        """Return an executor of a plan for `prepared` models.

        Args:
            device: `tvm.runtime.Device`.
            inputs: inputs of each model, by name.
        """
