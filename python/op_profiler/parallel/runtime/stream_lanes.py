"""The cores of a plan are streams of this machine's GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.errors import UsageError
from op_profiler.parallel.runtime.plan_lanes import PlanLanes
from op_profiler.parallel.runtime.stream_executor import StreamExecutor

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.tvm_types import RuntimeDevice
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Plan

_MOST_STREAMS = 32
"""More than kernels of a model that are worth running side by side."""


class StreamLanes(PlanLanes):
    """One thread launches on all streams; a GPU's kernels have threads of their own, whatever a plan says."""

    lane = "stream"
    option = "--streams"
    only_measured = True
    usual_count = 4

    def first(self, count: int) -> tuple[int, ...]:
        if not 1 <= count <= _MOST_STREAMS:
            raise UsageError(f"--streams {count} is not possible here: give 1 to {_MOST_STREAMS}")
        return tuple(range(count))

    def thread_counts(self, count: int) -> tuple[int, ...]:
        return (1,)

    def executor(
        self,
        graph: KernelGraph,
        compiled: Sequence[CompiledModel],
        plan: Plan,
        device: RuntimeDevice,
        inputs: Sequence[dict[str, np.ndarray]],
    ) -> StreamExecutor:
        from op_profiler.targets.cuda.events import Events
        from op_profiler.targets.cuda.graphs import Graphs

        return StreamExecutor(graph, compiled, plan, device, inputs, Events(), Graphs())
