"""The policy ``exhaustive``: the best of all ways to cut a small graph into stages, a reference for other policies."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from op_profiler.errors import UsageError
from op_profiler.parallel.planning.policies.stage_costs import StageCosts, StageUs

if TYPE_CHECKING:
    from op_profiler.parallel.planning.costs import Costs
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Stage

LARGEST = 12
"""Largest number of nodes; up to 3 ** `LARGEST` stages are evaluated."""


def exhaustive(
    graph: KernelGraph, costs: Costs, cores: tuple[int, ...], *, stage_us: StageUs | None = None
) -> tuple[Stage, ...]:
    """Return the stages with the smallest sum of times, as `StageCosts` computes them.

    Args:
        stage_us: returns the time of a stage in microseconds, for example by measuring it; None to use `costs`.

    Raises:
        UsageError: the graph has more than `LARGEST` nodes.
    """
    if len(graph) > LARGEST:
        raise UsageError(f"exhaustive search takes up to {LARGEST} operators, here are {len(graph)}; use ios or greedy")
    stages = StageCosts(graph, costs, cores, stage_us)
    inputs = [sum(1 << source for source in node.inputs) for node in graph.nodes]
    everything = (1 << len(graph)) - 1

    @functools.cache
    def rest(done: int) -> tuple[float, tuple[int, ...]]:
        """Return the least time for the operators that are not in the set `done`, and its stages as sets."""
        left = everything & ~done
        if not left:
            return 0.0, ()
        best: tuple[float, tuple[int, ...]] = (float("inf"), ())
        members = left
        while members:
            together = done | members
            if all(inputs[node] & ~together == 0 for node in range(len(graph)) if members >> node & 1):
                later, sets = rest(together)
                best = min(best, (stages.us(members, stages.components(members)) + later, (members, *sets)))
            members = (members - 1) & left
        return best

    return tuple(stages.stage(members) for members in rest(0)[1])
