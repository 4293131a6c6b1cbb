"""`Costs` of operators that run side by side, and `simulate`, which computes the timeline of a plan from costs."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.errors import UsageError
from op_profiler.parallel.planning.plan import PlanError, placed

if TYPE_CHECKING:
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Stage


@dataclasses.dataclass(frozen=True)
class Costs:
    """Costs of a graph's operators on a device, for policies.

    The *worker thread* of a group calls its operators; it runs on the group's first core.

    Attributes:
        latency_us: time of each node in isolation, microseconds, shape (nodes,), by thread count.
        handover_us: time until a worker thread observes that an operator of another one has ended, microseconds.
        slowdown: factor by which the latency of operators increases while they run beside others.
    """

    latency_us: dict[int, np.ndarray]
    handover_us: float = 0.0
    slowdown: float = 1.0

    @property
    def threads(self) -> tuple[int, ...]:
        """Return the thread counts with latencies, in ascending order."""
        return tuple(sorted(self.latency_us))

    def counts(self, most: int) -> tuple[int, ...]:
        """Return the thread counts with latencies that are possible on `most` cores, in ascending order.

        Raises:
            UsageError: all thread counts with latencies are larger.
        """
        found = tuple(count for count in self.threads if count <= most)
        if not found:
            raise UsageError(f"there are no latencies at {most} threads or fewer, only at {list(self.threads)}")
        return found

    def best_threads(self, node: int, most: int) -> int:
        """Return the thread count, up to `most`, at which a node is fastest; of several, the smallest."""
        return min(self.counts(most), key=lambda count: (self.latency_us[count][node], count))


@dataclasses.dataclass(frozen=True)
class Timeline:
    """Start and end of each operator of a plan.

    Attributes:
        start_us, end_us: microseconds from the start of the plan, shape (nodes,); NaN for nodes that are not in it.
        total_us: end of the last node, microseconds.
    """

    start_us: np.ndarray
    end_us: np.ndarray
    total_us: float


def simulate(graph: KernelGraph, stages: Sequence[Stage], costs: Costs) -> Timeline:
    """Compute the timeline of stages as the executor runs them.

    An operator starts when the operators whose output it reads, and the earlier operators on its cores, have ended;
    `handover_us` later if one of these ran on another worker thread. While two or more operators run, all of them
    progress at 1 / `slowdown` of their speed, so the simulation keeps one clock of finished work (virtual time, as for
    processor sharing; Kleinrock 1976, Queueing Systems II). Inputs that are not in the stages count as available.

    Raises:
        PlanError: operators wait for each other in a cycle.
    """
    waiting = _Waiting(graph, stages, costs)
    size = len(graph)
    start, end = [float("nan")] * size, [float("nan")] * size
    starts = [(0.0, node) for node in waiting.order if not waiting.open[node]]
    heapq.heapify(starts)
    ends: list[tuple[float, int]] = []
    now = work = 0.0
    ended = 0
    while starts or ends:
        pace = costs.slowdown if len(ends) > 1 else 1.0
        finish = now + (ends[0][0] - work) * pace if ends else float("inf")
        if starts and starts[0][0] < finish:
            at, node = heapq.heappop(starts)
            work += (at - now) / pace
            now = start[node] = at
            heapq.heappush(ends, (work + waiting.latency_us[node], node))
        else:
            work, node = heapq.heappop(ends)
            now = end[node] = finish
            ended += 1
            for follower, ready in waiting.release(node, now):
                heapq.heappush(starts, (ready, follower))
    if ended < len(waiting.order):
        raise PlanError("operators of the plan wait for each other in a circle")
    return Timeline(np.array(start), np.array(end), now)


class _Waiting:
    """Dependences between operators in stages.

    Attributes:
        order: nodes in the order of the plan.
        latency_us: latency of each node with its thread count, microseconds.
        open: number of operators that each node still waits for.
    """

    order: list[int]
    latency_us: list[float]
    open: list[int]

    def __init__(self, graph: KernelGraph, stages: Sequence[Stage], costs: Costs) -> None:
        size = len(graph)
        self.order = []
        self.latency_us = [0.0] * size
        self.open = [0] * size
        self._ready_us = [0.0] * size  # earliest start of each node, as far as known
        self._handover_us = costs.handover_us
        self._lane = [-1] * size
        self._followers: list[list[int]] = [[] for _ in range(size)]
        latency_us = {count: values.tolist() for count, values in costs.latency_us.items()}
        last_on: dict[int, int] = {}
        for _, step, cores in placed(stages):
            node = step.node
            self.order.append(node)
            self._lane[node] = cores[0]
            self.latency_us[node] = latency_us[step.threads][node]
            before = {*graph.nodes[node].inputs, *(last_on[core] for core in cores if core in last_on)}
            for core in cores:
                last_on[core] = node
            for other in before:
                self._followers[other].append(node)
        for node in self.order:
            for follower in self._followers[node]:
                self.open[follower] += 1

    def release(self, node: int, now: float) -> list[tuple[int, float]]:
        """Record that `node` ended at `now`; return the nodes that wait for no other node, and when they can start."""
        found = []
        for follower in self._followers[node]:
            ready = now if self._lane[follower] == self._lane[node] else now + self._handover_us
            self._ready_us[follower] = max(self._ready_us[follower], ready)
            self.open[follower] -= 1
            if not self.open[follower]:
                found.append((follower, self._ready_us[follower]))
        return found
