"""What every policy offers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from op_profiler.errors import UnknownNameError
from op_profiler.parallel.planning.plan import Group, Stage, Step

if TYPE_CHECKING:
    from op_profiler.parallel.planning.costs import Costs
    from op_profiler.parallel.planning.graph import KernelGraph

POLICIES = {
    "sequential": "one operator after the other, each on all cores",
    "threads": "one operator after the other, each with the thread count of its turnaround point",
    "greedy": "list scheduling by earliest finish (HEFT), improved by a search over thread counts",
    "ios": "the best stages by dynamic programming (IOS), with its pruning",
    "nash": "branches choose their cores by themselves: a Nash equilibrium at each fork",
    "exhaustive": "the best of all ways to cut the graph into stages; for small graphs",
}
"""By name, what each does."""


class Policy(Protocol):
    """Makes stages for a graph; says the same every time it is asked the same, and changes nothing that it is given."""

    def __call__(self, graph: KernelGraph, costs: Costs, cores: tuple[int, ...]) -> tuple[Stage, ...]:
        """Stages with every node of the graph exactly once, on `cores` only, that `check_order` takes.

        Raises:
            OpProfilerError: the policy cannot plan for this graph; says why.
        """


def get_policy(name: str) -> Policy:
    """A policy by its name.

    Raises:
        UnknownNameError: not one of `POLICIES`.
    """
    if name not in POLICIES:
        raise UnknownNameError("policy", name, POLICIES)
    if name in ("sequential", "threads"):
        from op_profiler.parallel.planning.policies import sequential

        return sequential.sequential if name == "sequential" else sequential.own_threads
    if name == "greedy":
        from op_profiler.parallel.planning.policies.greedy import greedy

        return greedy
    if name == "ios":
        from op_profiler.parallel.planning.policies.ios import ios

        return ios
    if name == "nash":
        from op_profiler.parallel.planning.policies.nash import nash

        return nash
    from op_profiler.parallel.planning.policies.exhaustive import exhaustive

    return exhaustive


def packed(graph: KernelGraph, placed: Iterable[tuple[int, tuple[int, ...]]]) -> tuple[Stage, ...]:
    """Few stages that order operators on each core as `placed` does.

    Args:
        placed: node and its cores, all of which it uses; inputs before those who read them.
    """
    stages: list[dict[tuple[int, ...], list[Step]]] = [{}]
    owner: dict[int, tuple[int, ...]] = {}  # nodes of the last stage -> cores of their group
    for node, cores in placed:
        groups = stages[-1]
        apart = all(owner.get(source, cores) == cores for source in graph.nodes[node].inputs)
        free = cores in groups or not set(cores) & {core for group in groups for core in group}
        if not (apart and free):
            groups = {}
            stages.append(groups)
            owner = {}
        groups.setdefault(cores, []).append(Step(node, len(cores)))
        owner[node] = cores
    return tuple(
        Stage(tuple(Group(tuple(steps), cores) for cores, steps in stage.items())) for stage in stages if stage
    )
