"""The policy ``ios``: the best stages by dynamic programming (Ding, Zhu, Jia, Pekhimenko, Han 2021, MLSys, "IOS:
Inter-Operator Scheduler for CNN Acceleration").

A state is the set of finished operators. A stage leads to the next state: any set of operators whose inputs are
finished or in the stage; its connected components are its groups. (The paper removes stages, called *endings*, from the
end of the graph; removing them from the front gives the same space.) All paths meet in the states at a node through
which every path goes, so a graph is divided into the paper's blocks automatically. As in the paper, two limits prune
stages: r operators in a group, s groups in a stage.

If the space is still too large (wide cells; several models), only a part of it is searched, and the result reports
this: in each state only the most urgent operators are considered, r is lowered, and among states with equally many
finished operators only the most promising states are continued (beam search).
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from op_profiler.parallel.planning.costs import simulate
from op_profiler.parallel.planning.policies.greedy import bottom_levels
from op_profiler.parallel.planning.policies.sequential import own_threads
from op_profiler.parallel.planning.policies.stage_costs import StageCosts, StageUs, bits

if TYPE_CHECKING:
    from op_profiler.parallel.planning.costs import Costs
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Stage

_TRANSITIONS = 200_000
"""Largest number of stages that a complete search evaluates over all states, in a few seconds."""
_OPTIONS = 128
"""Largest number of stages that a partial search evaluates in one state."""


@dataclasses.dataclass(frozen=True)
class IosResult:
    """Result of `ios_candidates`.

    Attributes:
        candidates: distinct plans, the best by `simulate` first.
        states: number of evaluated states (sets of finished operators).
        transitions: number of evaluated stages between states.
        complete: whether the whole space under the limits was searched.
        operators_per_group: the limit r that was used; may be lower than requested if the search is not complete.
    """

    candidates: tuple[tuple[Stage, ...], ...]
    states: int
    transitions: int
    complete: bool
    operators_per_group: int


def ios(graph: KernelGraph, costs: Costs, cores: tuple[int, ...]) -> tuple[Stage, ...]:
    """Return the best plan of `ios_candidates`; if the policy ``threads`` is faster, return its stages instead."""
    found = ios_candidates(graph, costs, cores)
    candidates = [*found.candidates, own_threads(graph, costs, cores)]
    return min(candidates, key=lambda stages: simulate(graph, stages, costs).total_us)


def ios_candidates(
    graph: KernelGraph,
    costs: Costs,
    cores: tuple[int, ...],
    *,
    operators_per_group: int = 3,
    groups_per_stage: int = 8,
    count: int = 5,
    transitions: int = _TRANSITIONS,
    stage_us: StageUs | None = None,
) -> IosResult:
    """Search the plans with the smallest sum of the times of their stages, for a caller that measures them.

    Args:
        operators_per_group: limit r of the paper, with the paper's default.
        groups_per_stage: limit s of the paper, with the paper's default.
        count: largest number of plans to return.
        transitions: largest number of stages that a complete search evaluates. If the space has more, a partial search
            follows; it evaluates about as many stages again, or 4 * 128 for each operator if that is more.
        stage_us: returns the time of a stage in microseconds, for example by measuring it; None to use `costs`. For
            each evaluated set of operators it is called twice: side by side, and one after the other.
    """
    stages = StageCosts(graph, costs, cores, stage_us)
    work_us = [
        min(float(costs.latency_us[threads][node]) * threads for threads in costs.counts(len(cores))) / len(cores)
        for node in range(len(graph))
    ]
    limits = _Limits(operators_per_group, groups_per_stage)
    search = _StageSearch(graph, stages, work_us, limits, count)
    complete = search.run(transitions)
    if not complete:
        limits = limits.narrowed(graph, len(cores), transitions)
        search = _StageSearch(graph, stages, work_us, limits, count)
        search.run(None)
    candidates = [tuple(stages.stage(members) for members in sets) for sets in search.best()]
    candidates.sort(key=lambda plan: simulate(graph, plan, costs).total_us)
    return IosResult(tuple(candidates), search.states, search.transitions, complete, limits.operators_per_group)


_Entry = tuple[float, int, int, int]
"""A path to a state: its time in microseconds, the previous state, the number of the path to the previous state, and
the stage between the two states."""


@dataclasses.dataclass(frozen=True)
class _Limits:
    """Limits of the search.

    Attributes:
        operators_per_group, groups_per_stage: limits r and s of the paper.
        window: number of operators, by descending bottom level, from which a stage is chosen; None for all operators
            that can start.
        beam: number of states with equally many finished operators that are continued; None for all of these states.
    """

    operators_per_group: int
    groups_per_stage: int
    window: int | None = None
    beam: int | None = None

    def narrowed(self, graph: KernelGraph, cores: int, transitions: int) -> _Limits:
        """Return the limits of a partial search."""
        window = min(max(3, cores), 8)
        operators = [r for r in range(2, self.operators_per_group + 1) if (r + 1) ** window <= _OPTIONS]
        beam = max(4, transitions // (len(graph) * _OPTIONS))
        return dataclasses.replace(self, operators_per_group=max(operators, default=1), window=window, beam=beam)


class _StageSearch:
    """The dynamic programme over sets of operators; a set is an integer whose bit i stands for node i.

    Args:
        work_us: time that each operator would take at least if it used all cores perfectly, microseconds.
        keep: largest number of paths that are stored for each state.

    Attributes:
        states, transitions: numbers so far, as in `IosResult`.
    """

    states: int
    transitions: int

    def __init__(
        self, graph: KernelGraph, stages: StageCosts, work_us: list[float], limits: _Limits, keep: int
    ) -> None:
        self.states = 0
        self.transitions = 0
        self._graph = graph
        self._stages = stages
        self._limits = limits
        self._keep = keep
        self._inputs = [sum(1 << source for source in node.inputs) for node in graph.nodes]
        self._levels = bottom_levels(graph, work_us)
        self._work_us = work_us
        self._entries: dict[int, list[_Entry]] = {0: [(0.0, 0, 0, 0)]}
        self._done_us = {0: 0.0}
        self._ready = {0: sum(1 << node for node in range(len(graph)) if not self._inputs[node])}
        self._waiting: list[set[int]] = [{0}, *(set() for _ in graph.nodes)]  # by number of finished operators
        self._everything = (1 << len(graph)) - 1

    def run(self, transitions: int | None) -> bool:
        """Search, and return True; if more than `transitions` are needed, stop the search and return False."""
        for done_count in range(len(self._graph)):
            level = sorted(self._waiting[done_count])
            self._waiting[done_count] = set()
            if self._limits.beam is not None:
                level = sorted(level, key=self._promise)[: self._limits.beam]
            for done in level:
                self.states += 1
                for members, components in self._stages_after(done):
                    self.transitions += 1
                    if transitions is not None and self.transitions > transitions:
                        return False
                    self._reach(done, members, self._stages.us(members, components))
        return True

    def best(self) -> list[list[int]]:
        """Return for each of the best plans its stages in order, as sets of operators."""
        plans = []
        for rank in range(len(self._entries[self._everything])):
            sets: list[int] = []
            state = self._everything
            while state:
                _, before, rank, members = self._entries[state][rank]
                sets.append(members)
                state = before
            plans.append(sets[::-1])
        return plans

    def _promise(self, done: int) -> float:
        """Return the time so far plus the least remaining time, up to a constant: the lower, the more promising."""
        return self._entries[done][0][0] - self._done_us[done]

    def _reach(self, done: int, members: int, stage_us: float) -> None:
        """Store the paths that lead through the state `done` and the stage `members` to the next state."""
        together = done | members
        if together not in self._entries:
            self._entries[together] = []
            self._ready[together] = self._ready_after(self._ready[done], members, together)
            self._waiting[together.bit_count()].add(together)
            self._done_us[together] = self._done_us[done] + sum(self._work_us[node] for node in bits(members))
        there = self._entries[together]
        for rank, entry in enumerate(self._entries[done]):
            total = entry[0] + stage_us
            if len(there) == self._keep and total >= there[-1][0]:
                break
            bisect.insort(there, (total, done, rank, members))
            del there[self._keep :]

    def _ready_after(self, start: int, members: int, done: int) -> int:
        found = start & ~members
        for node in bits(members):
            for reader in self._graph.successors[node]:
                if not done >> reader & 1 and not self._inputs[reader] & ~done:
                    found |= 1 << reader
        return found

    def _stages_after(self, done: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield each set of operators that can be the next stage once, with its connected components."""
        start, window = self._ready[done], self._limits.window
        if window is not None and start.bit_count() > window:
            urgent = sorted(bits(start), key=lambda node: (-self._levels[node], node))[:window]
            start = sum(1 << node for node in urgent)
        yield from self._grown(done, 0, start, ())

    def _grown(
        self, done: int, members: int, candidates: int, groups: tuple[int, ...]
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield the sets that add to `members` at least one operator from `candidates`, and operators that read them.

        Args:
            groups: connected components of `members`.
        """
        while candidates:
            bit = candidates & -candidates
            candidates ^= bit
            node = bit.bit_length() - 1
            touched = bit
            apart = []
            for group in groups:
                if group & self._inputs[node]:
                    touched |= group
                else:
                    apart.append(group)
            if touched.bit_count() > self._limits.operators_per_group:
                continue
            together, components = members | bit, (*apart, touched)
            if len(components) <= self._limits.groups_per_stage:
                yield together, components
            further = candidates
            for reader in self._graph.successors[node]:
                if not self._inputs[reader] & ~(done | together):
                    further |= 1 << reader
            yield from self._grown(done, together, further, components)
