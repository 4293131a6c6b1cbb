"""`Policy`, the interface of a planning policy, and functions that several policies use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from op_profiler.parallel.planning.plan import Group, Stage, Step

if TYPE_CHECKING:
    from op_profiler.parallel.planning.costs import Costs
    from op_profiler.parallel.planning.graph import KernelGraph


class Policy(Protocol):
    """A function that plans stages for a graph; it is deterministic and does not change its arguments."""

    def __call__(self, graph: KernelGraph, costs: Costs, cores: tuple[int, ...]) -> tuple[Stage, ...]:
        """Return stages that contain every node of the graph exactly once, use only `cores`, and pass `check_order`.

        Raises:
            OpProfilerError: the policy cannot plan for this graph; the message gives the reason.
        """


def packed(graph: KernelGraph, placed: Iterable[tuple[int, tuple[int, ...]]]) -> tuple[Stage, ...]:
    """Group placed operators into few stages, which keep the order of the operators on each core.

    Args:
        placed: node and all cores that it uses, for each operator; a node comes after the nodes whose outputs it reads.
    """
    stages: list[dict[tuple[int, ...], list[Step]]] = [{}]
    owner: dict[int, tuple[int, ...]] = {}  # node of the last stage -> cores of its group
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
