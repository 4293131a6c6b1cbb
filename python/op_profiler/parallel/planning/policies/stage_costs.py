"""`StageCosts`: the time of a set of operators as a stage, and how the stage divides the cores."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from op_profiler.parallel.planning.plan import Group, Stage, Step

if TYPE_CHECKING:
    from op_profiler.parallel.planning.costs import Costs
    from op_profiler.parallel.planning.graph import KernelGraph

StageUs = Callable[[Stage], float]
"""A function that returns the time of a stage in microseconds, for example by measuring it."""


class StageCosts:
    """Times of stages for sets of operators; a set is an integer whose bit i stands for node i.

    The operators of a set are divided into connected components. A stage runs the components side by side or, if that
    is faster, one after the other on all cores (the two ways of IOS). For running them side by side, all ways to split
    the cores into parts are tried, and components are assigned to parts by descending latency, each where it ends first
    (LPT; Graham 1969, SIAM J. Appl. Math. 17, 416). An operator has the best thread count on the cores of its part.

    Args:
        stage_us: returns the time of a stage, and is called for both ways; None to use `costs`.

    Attributes:
        widest: the largest thread count.
        splits: numbers of cores of the parts, for each way to split the cores into two or more parts.
        times_us: function that returns, by number of cores, the microseconds of a set whose operators run one after the
            other.
    """

    widest: int
    splits: list[tuple[int, ...]]
    times_us: Callable[[int], dict[int, float]]

    def __init__(
        self, graph: KernelGraph, costs: Costs, cores: tuple[int, ...], stage_us: StageUs | None = None
    ) -> None:
        counts = costs.counts(len(cores))
        self._graph = graph
        self._costs = costs
        self._cores = cores
        self._stage_us = stage_us
        self.widest = counts[-1]
        self.splits = [split for split in _splits(len(cores), counts) if len(split) > 1]
        self._threads = {most: [costs.best_threads(node, most) for node in range(len(graph))] for most in counts}
        self._latency_us = {
            most: [float(costs.latency_us[count][node]) for node, count in enumerate(chosen)]
            for most, chosen in self._threads.items()
        }
        self._known: dict[int, tuple[float, _Parts]] = {}
        self.times_us = functools.cache(self._times_us)

    def us(self, members: int, components: Sequence[int]) -> float:
        """Return the time, in microseconds, of the better way to run a set with these connected components."""
        if members not in self._known:
            self._known[members] = self._better(components)
        return self._known[members][0]

    def stage(self, members: int) -> Stage:
        """Return the stage for the better way to run a set; the set must have been passed to `us` before."""
        return self._made(self._known[members][1])

    def ways(self, members: int) -> list[Stage]:
        """Return the stages for all ways to run a set, the fastest first.

        The ways are one after the other on all cores, and side by side with each split of the cores.
        """
        components = self.components(members)
        ways = [self._side_by_side(components, split) for split in self.splits if len(components) > 1]
        return [self._made(parts) for _, parts in sorted((self._in_turn(components), *ways), key=_first)]

    def _better(self, components: Sequence[int]) -> tuple[float, _Parts]:
        ways = [self._in_turn(components)]
        if len(components) > 1 and self.splits:
            ways.append(min((self._side_by_side(components, split) for split in self.splits), key=_first))
        if self._stage_us is not None:
            ways = [(self._stage_us(self._made(parts)), parts) for _, parts in ways]
        return min(ways, key=_first)

    def _in_turn(self, components: Sequence[int]) -> tuple[float, _Parts]:
        return sum(self.times_us(one)[self.widest] for one in components), [(self.widest, sum(components))]

    def _side_by_side(self, components: Sequence[int], split: tuple[int, ...]) -> tuple[float, _Parts]:
        times = [self.times_us(one) for one in components]
        narrowest = split[-1]
        load, members = [0.0] * len(split), [0] * len(split)
        for at in sorted(range(len(components)), key=lambda at: (-times[at][narrowest], components[at])):
            ends = [load[part] + times[at][most] for part, most in enumerate(split)]
            part = ends.index(min(ends))
            load[part] = ends[part]
            members[part] |= components[at]
        return max(load) * self._costs.slowdown + self._costs.handover_us, list(zip(split, members))

    def _times_us(self, members: int) -> dict[int, float]:
        nodes = list(bits(members))
        return {most: sum(latency[node] for node in nodes) for most, latency in self._latency_us.items()}

    def _made(self, parts: _Parts) -> Stage:
        # Parts of one size are sorted by their first node, so that a branch keeps its cores from stage to stage.
        groups, first = [], 0
        for most, members in sorted(parts, key=lambda part: (-part[0], part[1] & -part[1])):
            if members:
                groups.append(self.group(members, self._cores[first : first + most]))
                first += most
        return Stage(tuple(groups))

    def group(self, members: int, cores: tuple[int, ...]) -> Group:
        """Return a group that runs the operators of a set in order on these cores."""
        threads = self._threads[len(cores)]
        return Group(tuple(Step(node, threads[node]) for node in bits(members)), cores)

    def components(self, members: int) -> list[int]:
        """Return the connected components of the subgraph of a set."""
        found: list[int] = []
        for node in bits(members):
            near = 1 << node | sum(1 << source for source in self._graph.nodes[node].inputs)
            touching = [one for one in found if one & near]
            found = [one for one in found if not one & near]
            found.append(sum(touching) | 1 << node)
        return found


_Parts = list[tuple[int, int]]
"""Parts of the cores: the number of cores of each part, and the set of operators that run on it."""


def _first(way: tuple[float, _Parts]) -> float:
    return way[0]


def bits(members: int) -> Iterator[int]:
    """Yield the node numbers in a set, in ascending order."""
    while members:
        lowest = members & -members
        yield lowest.bit_length() - 1
        members ^= lowest


def _splits(cores: int, parts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all ways to divide `cores` into parts with sizes from `parts`, in descending order, until no size fits."""
    if cores < min(parts):
        yield ()
    for part in sorted(parts, reverse=True):
        if part <= cores:
            for rest in _splits(cores - part, [other for other in parts if other <= part]):
                yield (part, *rest)
