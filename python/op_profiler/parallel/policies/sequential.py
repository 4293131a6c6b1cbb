"""One operator after the other: on all cores, or each with a thread count of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.parallel.plan import Group, Stage, Step

if TYPE_CHECKING:
    from op_profiler.parallel.costs import Costs
    from op_profiler.parallel.graph import KernelGraph


def sequential(graph: KernelGraph, costs: Costs, cores: tuple[int, ...]) -> tuple[Stage, ...]:
    """Every operator in order, with as many threads as the cores and the latencies allow."""
    most = costs.counts(len(cores))[-1]
    return _one_after_the_other([most] * len(graph), cores)


def own_threads(graph: KernelGraph, costs: Costs, cores: tuple[int, ...]) -> tuple[Stage, ...]:
    """Every operator in order, with the thread counts that make the sum of latencies and switches least.

    Dynamic programming over (position, thread count), once for each count that the last operator can have, as the first
    one of the next run follows it. Without the cost of switching it is each operator's turnaround point.
    """
    counts = costs.counts(len(cores))
    latency = [[costs.latency_us[count][node] for count in counts] for node in range(len(graph))]
    _, chosen = min(_cheapest(latency, last, costs.switch_us) for last in range(len(counts)))
    return _one_after_the_other([counts[at] for at in chosen], cores)


def _cheapest(latency: list[list[float]], last: int, switch_us: float) -> tuple[float, list[int]]:
    """The least total, and which count each operator has for it, `last` being that of the last one."""
    choices = range(len(latency[0]))
    total = [0.0 if at == last else switch_us for at in choices]
    came_from = []
    for position, row in enumerate(latency):
        cheapest = min(choices, key=total.__getitem__)
        switched = total[cheapest] + switch_us if position else float("inf")
        came_from.append([at if total[at] <= switched else cheapest for at in choices])
        total = [min(total[at], switched) + row[at] for at in choices]
    chosen = [last]
    for origin in reversed(came_from[1:]):
        chosen.append(origin[chosen[-1]])
    return total[last], chosen[::-1]


def _one_after_the_other(threads: list[int], cores: tuple[int, ...]) -> tuple[Stage, ...]:
    steps = tuple(Step(node, count) for node, count in enumerate(threads))
    return (Stage((Group(steps, cores),)),)
