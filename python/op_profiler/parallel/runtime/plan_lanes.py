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
    """Lanes of one kind. It has no state.

    Attributes:
        lane: what one of them is called.
        option: of the command line, that says how many a plan may use.
        only_measured: plans are made from measured costs alone, no operator is tuned for them, and no co-run is stored.
    """

    lane: ClassVar[str]
    option: ClassVar[str]
    only_measured: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def usual_count(self) -> int:
        """How many a plan may use where the user does not say."""

    @abc.abstractmethod
    def first(self, count: int) -> tuple[int, ...]:
        """The numbers of so many of them.

        Raises:
            UsageError: there are fewer.
        """

    @abc.abstractmethod
    def thread_counts(self, count: int) -> tuple[int, ...]:
        """How many lanes an operator may have, of so many, rising."""

    def check(self) -> None:
        """Say what is missing to run plans, before minutes of building.

        Raises:
            OpProfilerError: something is.
        """
        return

    def prepared(self, compiled: Sequence[CompiledModel]) -> tuple[CompiledModel, ...]:
        """Models, ready for `executor`; those that are one stay one."""
        return tuple(compiled)

    def copy(self, compiled: CompiledModel) -> CompiledModel:
        """A model that was `prepared` once more, so that both can run side by side."""
        return compiled

    @abc.abstractmethod
    def executor(
        self, graph: KernelGraph, compiled: Sequence[CompiledModel], plan: Plan, device: RuntimeDevice, inputs: Inputs
    ) -> Executor:
        """What runs a plan for models that were `prepared`.

        Args:
            device: `tvm.runtime.Device`.
            inputs: of each model, by name.
        """
