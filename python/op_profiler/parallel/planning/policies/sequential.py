"""The policies ``sequential`` and ``threads``, which run one operator after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.parallel.planning.plan import Group, Stage, Step

if TYPE_CHECKING:
    from op_profiler.parallel.planning.costs import Costs
    from op_profiler.parallel.planning.graph import KernelGraph


def sequential(graph: KernelGraph, costs: Costs, cores: tuple[int, ...]) -> tuple[Stage, ...]:
    """Return one stage with all operators in order, each with the largest thread count that `cores` allow."""
    most = costs.counts(len(cores))[-1]
    return _one_after_the_other([most] * len(graph), cores)


def own_threads(graph: KernelGraph, costs: Costs, cores: tuple[int, ...]) -> tuple[Stage, ...]:
    """Return one stage with all operators in order, each with the thread count of its turnaround point."""
    return _one_after_the_other([costs.best_threads(node, len(cores)) for node in range(len(graph))], cores)


def _one_after_the_other(threads: list[int], cores: tuple[int, ...]) -> tuple[Stage, ...]:
    steps = tuple(Step(node, count) for node, count in enumerate(threads))
    return (Stage((Group(steps, cores),)),)
