"""`PlanLanes`, the interface of a kind of lanes: cores of this machine's processor, or streams of its GPU."""

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
    """One kind of lanes on which plans run; an object has no state.

    Attributes:
        lane: name of one lane, for messages.
        option: command-line option for the number of lanes that a plan may use.
        only_measured: whether plans can use measured costs only; operators are then not tuned together, and co-runs are
            not stored.
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
            UsageError: the machine has fewer lanes.
        """

    @abc.abstractmethod
    def thread_counts(self, count: int) -> tuple[int, ...]:
        """Return the possible thread counts of an operator in a plan with `count` lanes, in ascending order."""

    def check(self) -> None:
        """Check that plans can be run on this machine; called before a long build.

        Raises:
            OpProfilerError: plans cannot be run.
        """
        return

    def prepared(self, compiled: Sequence[CompiledModel]) -> tuple[CompiledModel, ...]:
        """Return the models in the form that `executor` needs; a model that occurs repeatedly is prepared only once."""
        return tuple(compiled)

    def copy(self, compiled: CompiledModel) -> CompiledModel:
        """Return a copy of a `prepared` model that can run side by side with the original."""
        return compiled

    @abc.abstractmethod
    def executor(
        self, graph: KernelGraph, compiled: Sequence[CompiledModel], plan: Plan, device: RuntimeDevice, inputs: Inputs
    ) -> Executor:
        """Return an executor of a plan for `prepared` models.

        Args:
            graph: graph of `compiled`.
            plan: a plan that passed `Plan.check` for the graph.
            device: `tvm.runtime.Device`.
            inputs: inputs of each model, by name.
        """
