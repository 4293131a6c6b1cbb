"""The policy ``greedy``: list scheduling of operators that can use any number of cores (moldable tasks).

Operators are placed by descending bottom level (the longest path from an operator to the end of the graph), each where
it ends first: HEFT (Topcuoglu, Hariri, Wu 2002, IEEE TPDS 13(3), 260) without insertion into gaps. HEFT alone gives
every operator all cores as soon as they make it slightly faster, even if other operators could use them better.
Therefore a limit on the thread count of each operator is searched that minimises the end of the whole plan, by
coordinate descent over sections of the list, from the whole list to single operators. (CPA, Radulescu & van Gemund
2001, ICPP, balances the critical path against the area by a rule instead.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from op_profiler.parallel.planning.costs import simulate
from op_profiler.parallel.planning.policies.policy import packed
from op_profiler.parallel.planning.policies.sequential import own_threads

if TYPE_CHECKING:
    from op_profiler.parallel.planning.costs import Costs
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Stage

_WORK = 200_000
"""Largest number of placements of operators in a search, which takes about a second for any size of the graph."""


def greedy(graph: KernelGraph, costs: Costs, cores: tuple[int, ...]) -> tuple[Stage, ...]:
    """Return the best list schedule that was found; if the policy ``threads`` is faster, return its stages instead."""
    listing = _Listing(graph, costs, cores)
    best = _search(listing)
    candidates = [packed(graph, best.placed), own_threads(graph, costs, cores)]
    return min(candidates, key=lambda stages: simulate(graph, stages, costs).total_us)


def bottom_levels(graph: KernelGraph, latency_us: list[float]) -> list[float]:
    """Return the longest path from each node to the end of the graph, including the node, microseconds."""
    levels = list(latency_us)
    for node in reversed(range(len(graph))):
        levels[node] += max((levels[reader] for reader in graph.successors[node]), default=0.0)
    return levels


@dataclasses.dataclass(frozen=True)
class _Schedule:
    """Nodes with their cores in the order of their starts, and the end of the last node in microseconds."""

    placed: tuple[tuple[int, tuple[int, ...]], ...]
    total_us: float


class _State:
    """The operators that are already placed; cores count from 0, and the number of a lane is that of its first core.

    Attributes:
        free: time from which each core is free, microseconds.
        end: end of each placed node, microseconds.
    """

    free: list[float]
    end: list[float]

    def __init__(self, nodes: int, cores: int, costs: Costs) -> None:
        self.free = [0.0] * cores
        self.end = [0.0] * nodes
        self._handover_us = costs.handover_us
        self._lane_on: list[int | None] = [None] * cores  # lane that used each core last
        self._lane_of = [-1] * nodes

    def earliest(self, inputs: tuple[int, ...], used: list[int]) -> float:
        """Return the earliest start of an operator with these input nodes on the cores `used`, microseconds."""
        lane, start = used[0], 0.0
        for core in used:
            seen = self.free[core]
            if self._lane_on[core] not in (None, lane):
                seen += self._handover_us
            if seen > start:
                start = seen
        for source in inputs:
            seen = self.end[source]
            if self._lane_of[source] != lane:
                seen += self._handover_us
            if seen > start:
                start = seen
        return start

    def place(self, node: int, used: list[int], end: float) -> None:
        """Place an operator, which occupies the cores `used` until `end`."""
        lane = used[0]
        for core in used:
            self.free[core], self._lane_on[core] = end, lane
        self.end[node], self._lane_of[node] = end, lane


class _Listing:
    """List scheduling of a graph's operators under limits on their thread counts.

    Attributes:
        counts: possible thread counts, in ascending order.
        order: nodes in the order in which they are placed.
    """

    counts: tuple[int, ...]
    order: list[int]

    def __init__(self, graph: KernelGraph, costs: Costs, cores: tuple[int, ...]) -> None:
        self.counts = costs.counts(len(cores))
        self._cores = cores
        self._costs = costs
        self._latency_us = [list(row) for row in zip(*(costs.latency_us[count].tolist() for count in self.counts))]
        levels = bottom_levels(graph, [min(row) for row in self._latency_us])
        # Nodes of equal levels (operators that take no time) stay in the order of the graph.
        self.order = sorted(range(len(graph)), key=lambda node: (-levels[node], node))
        self._inputs = [node.inputs for node in graph.nodes]

    def schedule(self, limits: list[int]) -> _Schedule:
        """Place each operator where it ends first, with one of the first `limits[node]` thread counts."""
        state = _State(len(self.order), len(self._cores), self._costs)
        placed = []
        for node in self.order:
            best_end, best_start, best_used = float("inf"), 0.0, [0]
            for at in range(limits[node]):
                count = self.counts[at]
                latency = self._latency_us[node][at]
                if count < len(self._cores):
                    latency *= self._costs.slowdown  # other operators are likely to run beside this one
                for used in self._choices(state.free, count):
                    start = state.earliest(self._inputs[node], used)
                    if start + latency < best_end:
                        best_end, best_start, best_used = start + latency, start, used
            state.place(node, best_used, best_end)
            placed.append((best_start, node, tuple(self._cores[core] for core in best_used)))
        placed.sort(key=lambda one: one[0])
        return _Schedule(tuple((node, used) for _, node, used in placed), max(state.end, default=0.0))

    def _choices(self, free: list[float], count: int) -> Iterator[list[int]]:
        """Yield the sets of `count` cores to try: each single core, or the cores that become free first."""
        if count == 1:
            for core in range(len(free)):
                yield [core]
        elif count == len(free):
            yield list(range(count))
        else:
            yield sorted(sorted(range(len(free)), key=lambda core: (free[core], core))[:count])


def _search(listing: _Listing) -> _Schedule:
    """Search thread limits, and return the shortest schedule that was found with about `_WORK` placements."""
    size = len(listing.order)
    limits = [len(listing.counts)] * size
    best = listing.schedule(limits)
    if len(listing.counts) == 1 or not size:
        return best
    tries = max(2 * len(listing.counts), _WORK // size)
    stretch = size
    while stretch and tries > 0:
        for first in range(0, size, stretch):
            for limit in range(1, len(listing.counts) + 1):
                changed = list(limits)
                for node in listing.order[first : first + stretch]:
                    changed[node] = limit
                if changed == limits or tries <= 0:
                    continue
                tries -= 1
                found = listing.schedule(changed)
                if found.total_us < best.total_us * (1 - 1e-9):
                    best, limits = found, changed
        stretch //= 2
    return best
