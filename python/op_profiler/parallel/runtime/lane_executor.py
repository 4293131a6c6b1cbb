"""`PlanExecutor`: runs plans on the cores of this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.compilers.bound_kernel import Bound, BoundKernel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.parallel.planning.plan import ROWS, placed
from op_profiler.parallel.planning.rows import for_team
from op_profiler.parallel.runtime.executor import Inputs
from op_profiler.parallel.runtime.lanes import Lanes, LaneStep, run_on_lanes
from op_profiler.parallel.runtime.memory import bind_in_one_piece
from op_profiler.parallel.runtime.storage import plan_storage

if TYPE_CHECKING:
    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.tvm_types import PackedFunction, RuntimeDevice
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Plan


class PlanExecutor(contextlib.AbstractContextManager["PlanExecutor"]):
    """Models that are loaded to be run by a plan on cores; an `Executor`.

    Use it as a context manager from one thread; at its end, it stops all lanes.

    Args:
        graph: graph of `compiled`.
        compiled: models compiled by `on_lanes`.
        plan: a plan that passed `Plan.check` for the graph.
        device: `tvm.runtime.Device` of the processor.
        inputs: inputs of each model, one array per input.

    Raises:
        MeasureError: this system cannot run plans.
    """

    def __init__(
        self, graph: KernelGraph, compiled: Sequence[CompiledModel], plan: Plan, device: RuntimeDevice, inputs: Inputs
    ) -> None:
        order = happens_before(graph, plan)
        self._models = load_side_by_side(graph, compiled, order, device, inputs)
        self._kernels = kernels = [kernel for model in self._models for kernel in model.kernels]
        self._programme = Programme(graph, plan, order)
        tables = lane_tables(self._programme, kernels)
        self._lanes = Lanes(self._programme.cores, tables, self._programme.signals)

    def __enter__(self) -> PlanExecutor:
        self._lanes.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._lanes.__exit__()

    def run(self) -> None:
        """Run all models once.

        Raises:
            MeasureError: a kernel failed; the message names it. Later kernels are not run, and no thread is waiting.
        """
        self._lanes.run()

    def use(self, functions: Mapping[int, PackedFunction]) -> None:
        """From the next run on, call these functions for the given nodes, and the model's functions for all others."""
        for lane, entries in enumerate(self._programme.lanes):
            for place, entry in enumerate(entries):
                own = self._kernels[entry.node]
                function = functions.get(entry.node)
                call = own
                if function is not None:
                    call = compiler_in_use().bound_kernel(own.name, own.label, function, own.arrays)
                self._lanes.replace(lane, place, call, same_loops=function is None)

    def outputs(self) -> list[np.ndarray]:
        """Return the outputs of the last run, model after model."""
        return [array for model in self._models for array in model.output_arrays()]

    def timeline_us(self) -> np.ndarray:
        """Return start and end of every operator in the last run, microseconds after the first start, (nodes, 2)."""
        found = np.full((sum(len(model.kernels) for model in self._models), 2), np.nan)
        for lane, times in zip(self._programme.lanes, self._lanes.times_us(), strict=True):
            for entry, span in zip(lane, times, strict=True):
                found[entry.node] = span
        return found - np.nanmin(found)

    def bound_to(self) -> dict[int, int | None]:
        """Return for every core of the plan the core to which its lane is bound, as the system reports it.

        The value is None for a lane that is not bound to one core.
        """
        return dict(zip(self._programme.cores, self._lanes.bound_to(), strict=True))

    def not_recorded(self) -> None:
        """Return None, because nothing is launched on a processor."""
        return

    def ran_on(self) -> np.ndarray:
        """Return the core on which every operator of the last run ended, as the system reports it, shape (nodes,)."""
        return self._by_node(self._lanes.cores())

    def threads_used(self) -> np.ndarray:
        """Return the number of lanes that ran a part of every operator in the last run, shape (nodes,).

        It is 1 for an operator whose loops were not split.
        """
        return self._by_node(self._lanes.threads())

    def _by_node(self, by_lane: Sequence[np.ndarray]) -> np.ndarray:
        found = np.zeros(sum(len(model.kernels) for model in self._models), dtype=np.int64)
        for lane, values in zip(self._programme.lanes, by_lane, strict=True):
            found[[entry.node for entry in lane]] = values
        return found


def on_lanes(compiled: CompiledModel, folder: Path) -> CompiledModel:
    """Return a copy of a model whose kernels run their parallel loops on lanes instead of TVM's thread pool.

    The kernels are exported as a shared library.

    Args:
        folder: folder for the library; it may be deleted afterwards.

    Raises:
        MeasureError: no C compiler is installed, or compiling fails.
    """
    path = folder / f"{uuid.uuid4().hex}.so"  # for a path that was loaded before, the old library would be returned
    exported = compiler_in_use().export(compiled, path)
    run_on_lanes(path)
    return exported


def happens_before(graph: KernelGraph, plan: Plan) -> list[int]:
    """Return for each node the set of nodes that have certainly ended before it starts when the plan runs.

    A set is an integer whose bit i stands for node i.
    """
    found = [0] * len(graph)
    last_on: dict[int, int] = {}
    for _, step, cores in placed(plan.stages):
        sources = {*graph.nodes[step.node].inputs, *(last_on[core] for core in cores if core in last_on)}
        for source in sources:
            found[step.node] |= found[source] | 1 << source
        last_on.update(dict.fromkeys(cores, step.node))
    return found


def load_side_by_side(
    graph: KernelGraph, compiled: Sequence[CompiledModel], before: list[int], device: RuntimeDevice, inputs: Inputs
) -> list[Bound]:
    """Load models with storage that allows their kernels to run side by side as in a plan.

    Args:
        before: result of `happens_before` for the plan.
    """
    on_processor = device == load_tvm().cpu()
    loaded = []
    for model, (one, arrays) in enumerate(zip(compiled, inputs, strict=True)):
        nodes = graph.slice_of(model)
        mine = (1 << len(before[nodes])) - 1
        blocks = plan_storage(one, [others >> nodes.start & mine for others in before[nodes]])
        if on_processor:
            loaded.append(bind_in_one_piece(one, blocks, arrays))
        else:
            loaded.append(compiler_in_use().bind(one, device, arrays, blocks))
    return loaded


@dataclasses.dataclass
class _Entry:
    """A node in the work of a lane; the other fields are those of `LaneStep`."""

    node: int
    mates: tuple[int, ...]
    loops: tuple[tuple[int, int], ...]
    waits: tuple[int, ...] = ()
    posts: tuple[int, ...] = ()


class Programme:
    """The work of each lane in a plan, and the signals by which lanes wait for each other.

    There is one lane per core; the lane of a group's first core calls the group's kernels. Nodes that are not in the
    plan count as finished.

    Attributes:
        cores: core of each lane.
        lanes: kernel calls of each lane, in order, with the signals that each call waits for and sends.
        signals: number of signals between lanes.
    """

    cores: tuple[int, ...]
    lanes: list[list[_Entry]]
    signals: int

    def __init__(self, graph: KernelGraph, plan: Plan, before: list[int]) -> None:
        self.cores = plan.cores
        self.lanes = [[] for _ in self.cores]
        self.signals = 0
        number = {core: lane for lane, core in enumerate(self.cores)}
        entries: dict[int, _Entry] = {}
        last_on: dict[int, int] = {}
        for _, step, cores in placed(plan.stages):
            lane, *mates = (number[core] for core in cores)
            rows = graph.nodes[step.node].rows if plan.split == ROWS else ()
            entry = _Entry(step.node, tuple(mates), for_team(rows, step.threads))
            mine = self.lanes[lane][-1].node if self.lanes[lane] else None
            known = 0 if mine is None else before[mine] | 1 << mine
            sources = {source for source in graph.nodes[step.node].inputs if source in entries}
            sources |= {last_on[i] for i in (lane, *mates) if i in last_on}
            for source in _not_implied(sources, known, before):
                entries[source].posts += (self.signals,)
                entry.waits += (self.signals,)
                self.signals += 1
            self.lanes[lane].append(entry)
            entries[step.node] = entry
            last_on.update(dict.fromkeys((lane, *mates), step.node))


def lane_tables(programme: Programme, kernels: Sequence[BoundKernel]) -> list[list[LaneStep]]:
    """Return the steps of each lane with their kernels, for `Lanes`.

    Args:
        kernels: kernel of each node.
    """
    return [
        [LaneStep(kernels[entry.node], entry.waits, entry.posts, entry.mates, entry.loops) for entry in lane]
        for lane in programme.lanes
    ]


def _not_implied(sources: set[int], known: int, before: list[int]) -> list[int]:
    """Return the nodes among `sources` for which a signal is needed.

    No signal is needed for nodes that have certainly ended (`known`), and for nodes that end before another source.
    """
    needed = {source for source in sources if not known >> source & 1}
    implied = 0
    for source in needed:
        implied |= before[source]
    return sorted(source for source in needed if not implied >> source & 1)
