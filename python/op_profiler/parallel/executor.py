"""Runs models by a plan on this machine's cores."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.measure.kernels import GraphKernels, bind_graph
from op_profiler.parallel.lanes import Lanes, LaneStep, SetThreads, bind_pool
from op_profiler.parallel.storage import plan_storage

if TYPE_CHECKING:
    from op_profiler.operators.lower import CompiledModel
    from op_profiler.parallel.graph import KernelGraph
    from op_profiler.parallel.plan import Plan


class PlanExecutor(contextlib.AbstractContextManager["PlanExecutor"]):
    """Models, loaded to be run by a plan. Use it as a context, from one thread: its end ends all lanes.

    Args:
        graph: of `compiled`.
        plan: checked against the graph (`Plan.check`).
        inputs: of each model, one array per input.

    Raises:
        MeasureError: this system cannot run plans.
    """

    def __init__(
        self,
        graph: KernelGraph,
        compiled: Sequence[CompiledModel],
        plan: Plan,
        device: Any,
        inputs: Sequence[dict[str, np.ndarray]],
    ) -> None:
        order = happens_before(graph, plan)
        self._models = [
            _load(one, order[graph.slice_of(model)], graph.slice_of(model).start, device, arrays)
            for model, (one, arrays) in enumerate(zip(compiled, inputs, strict=True))
        ]
        kernels = [kernel for model in self._models for kernel in model.kernels]
        self._programme = _Programme(graph, plan, order)
        for pool in self._programme.pools_used:
            bind_pool(pool)  # checks that the runtime gives what the plan asks for
        tables = [
            [LaneStep(SetThreads(e.pool) if e.node is None else kernels[e.node], e.waits, e.posts) for e in lane]
            for lane in self._programme.lanes
        ]
        self._lanes = Lanes(self._programme.first_pools, tables, self._programme.signals)

    def __enter__(self) -> PlanExecutor:
        self._lanes.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._lanes.__exit__()

    def run(self) -> None:
        """All models once.

        Raises:
            MeasureError: a kernel failed; names it. What was to run after it was left out, and no thread waits on.
        """
        self._lanes.run()

    def outputs(self) -> list[np.ndarray]:
        """Of the last run, model after model."""
        return [array for model in self._models for array in model.output_arrays()]

    def timeline_us(self) -> np.ndarray:
        """Start and end of every operator of the last run, from the first start; shape (nodes, 2)."""
        found = np.full((sum(len(model.kernels) for model in self._models), 2), np.nan)
        for lane, times in zip(self._programme.lanes, self._lanes.times_us(), strict=True):
            for entry, span in zip(lane, times, strict=True):
                if entry.node is not None:
                    found[entry.node] = span
        return found - np.nanmin(found)


def happens_before(graph: KernelGraph, plan: Plan) -> list[int]:
    """For each node those that have ended before it starts in every run of the plan, as the bits of a number."""
    found = [0] * len(graph)
    last_on: dict[int, int] = {}
    for step, group in plan.steps:
        cores = group.cores[: step.threads]
        sources = {*graph.nodes[step.node].inputs, *(last_on[core] for core in cores if core in last_on)}
        for source in sources:
            found[step.node] |= found[source] | 1 << source
        last_on.update(dict.fromkeys(cores, step.node))
    return found


def _load(
    compiled: CompiledModel, before: list[int], first: int, device: Any, inputs: dict[str, np.ndarray]
) -> GraphKernels:
    """A model over storage that allows for its kernels to run side by side; `first` is the number of its first node."""
    graph = json.loads(compiled.library.get_graph_json())
    mine = (1 << len(before)) - 1
    plan_storage(graph, [others >> first & mine for others in before])
    return bind_graph(compiled, graph, device, inputs)


@dataclasses.dataclass
class _Entry:
    """A step of a lane: a node, or (None) the setting of its pool."""

    node: int | None
    pool: tuple[int, ...]
    waits: tuple[int, ...] = ()
    posts: tuple[int, ...] = ()


class _Programme:
    """What each lane does: a lane belongs to the first core of a group and calls the group's kernels.

    Attributes:
        lanes: steps of each lane.
        first_pools: the pool of each lane before its first step: that of its last one, as runs follow each other.
        signals: how many signals between lanes there are.
        pools_used: every pool that occurs.
    """

    def __init__(self, graph: KernelGraph, plan: Plan, before: list[int]) -> None:
        lane_of: dict[int, int] = {}
        pools: dict[int, tuple[int, ...]] = {}
        for step, group in plan.steps:
            lane_of.setdefault(group.cores[0], len(lane_of))
            pools[lane_of[group.cores[0]]] = group.cores[: step.threads]
        self.first_pools = [pools[lane] for lane in range(len(pools))]
        self.pools_used = {group.cores[: step.threads] for step, group in plan.steps}
        self.lanes: list[list[_Entry]] = [[] for _ in pools]
        self.signals = 0
        entries: dict[int, _Entry] = {}
        last_on: dict[int, int] = {}
        last_in: dict[int, int] = {}
        current = list(self.first_pools)
        for step, group in plan.steps:
            node, cores, lane = step.node, group.cores[: step.threads], lane_of[group.cores[0]]
            if cores != current[lane]:
                self.lanes[lane].append(_Entry(None, cores))
                current[lane] = cores
            known = before[last_in[lane]] | 1 << last_in[lane] if lane in last_in else 0
            sources = {*graph.nodes[node].inputs, *(last_on[core] for core in cores if core in last_on)}
            entry = _Entry(node, cores)
            for source in _not_implied(sources, known, before):
                entries[source].posts += (self.signals,)
                entry.waits += (self.signals,)
                self.signals += 1
            self.lanes[lane].append(entry)
            entries[node], last_in[lane] = entry, node
            last_on.update(dict.fromkeys(cores, node))


def _not_implied(sources: set[int], known: int, before: list[int]) -> list[int]:
    """Those that have to be waited for: neither known to have ended, nor ended before another that is waited for."""
    needed = {source for source in sources if not known >> source & 1}
    implied = 0
    for source in needed:
        implied |= before[source]
    return sorted(source for source in needed if not implied >> source & 1)
