"""Plan lanes that are cores of this machine's processor."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from op_profiler.c_compiler import compiler
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.cores import binding_order, usable_cores
from op_profiler.errors import UsageError
from op_profiler.measure.threads import default_thread_counts
from op_profiler.parallel.runtime.executor import Inputs
from op_profiler.parallel.runtime.lane_executor import PlanExecutor, on_lanes
from op_profiler.parallel.runtime.plan_lanes import PlanLanes

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.tvm_types import RuntimeDevice
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Plan


class CoreLanes(PlanLanes):
    """Plan lanes that are cores of this machine, each with one worker thread."""

    lane = "core"
    option = "--threads"

    @property
    def usual_count(self) -> int:
        """Return the number of cores that this process may use."""
        return usable_cores()

    def first(self, count: int) -> tuple[int, ...]:
        """Return the first `count` cores in the order in which threads are bound to them; raise UsageError if this
        process may not use so many cores."""
        cores = binding_order()
        if not 1 <= count <= len(cores):
            raise UsageError(f"--threads {count} is not possible here: this process may use 1 to {len(cores)} cores")
        return cores[:count]

    def thread_counts(self, count: int) -> tuple[int, ...]:
        """Return the powers of two up to `count`, and `count`."""
        return default_thread_counts(count)

    def check(self) -> None:
        """Raise MeasureError if there is no C compiler, which plans are linked with."""
        compiler()

    def prepared(self, compiled: Sequence[CompiledModel]) -> tuple[CompiledModel, ...]:
        """Link each distinct model into a library whose parallel loops run on the plan's worker threads."""
        with tempfile.TemporaryDirectory(prefix="op_profiler-") as folder:
            distinct = {id(one): on_lanes(one, Path(folder)) for one in compiled}
        return tuple(distinct[id(one)] for one in compiled)

    def copy(self, compiled: CompiledModel) -> CompiledModel:
        """Return a copy with separate weights, so that the two models do not read the same memory side by side."""
        return compiler_in_use().with_own_weights(compiled)

    def executor(
        self, graph: KernelGraph, compiled: Sequence[CompiledModel], plan: Plan, device: RuntimeDevice, inputs: Inputs
    ) -> PlanExecutor:
        """Return an executor with one worker thread per core."""
        return PlanExecutor(graph, compiled, plan, device, inputs)
