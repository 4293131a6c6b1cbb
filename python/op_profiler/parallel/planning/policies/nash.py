"""The policy ``nash``: parallel branches choose their own cores, by a Nash equilibrium at each fork.

At each fork of the graph the branches play a game (see `op_profiler.parallel.planning.games`): the players are the
branches, the resources are disjoint parts of the cores, and each branch minimises its end. A game is played for each
way to split the cores, and compared with running one branch after the other on all cores; the plan uses the best
equilibrium of the best split.

The graph is cut at the nodes through which every path goes. The part between two such nodes is planned in three ways,
and the way with the shortest time by `simulate` is used: the part's connected components are the players of one game
(several models are components of the whole graph); its components are planned one after the other by the same method;
or each layer is a game in which every operator is a player.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.parallel.planning.costs import simulate
from op_profiler.parallel.planning.games import GameOutcome, play
from op_profiler.parallel.planning.plan import Stage
from op_profiler.parallel.planning.policies.stage_costs import StageCosts, bits

if TYPE_CHECKING:
    from op_profiler.parallel.planning.costs import Costs
    from op_profiler.parallel.planning.graph import KernelGraph


@dataclasses.dataclass(frozen=True)
class Fork:
    """One fork of the graph, and the result of its game.

    Attributes:
        players: nodes of each player (branch).
        resources: cores of each resource.
        outcome: outcome of the game; None for a single player, and if running the players one after the other on all
            cores is faster than every equilibrium.
        stage: the stage that the plan contains for this fork.
    """

    players: tuple[tuple[int, ...], ...]
    resources: tuple[tuple[int, ...], ...]
    outcome: GameOutcome | None
    stage: Stage


def nash(graph: KernelGraph, costs: Costs, cores: tuple[int, ...]) -> tuple[Stage, ...]:
    """Return a plan whose parallel branches choose cores by Nash equilibria: the stages of `nash_forks`, in order."""
    return tuple(fork.stage for fork in nash_forks(graph, costs, cores))


def nash_forks(graph: KernelGraph, costs: Costs, cores: tuple[int, ...]) -> tuple[Fork, ...]:
    """Return the forks of a graph with their games, in the order of the plan."""
    if not len(graph):
        return ()
    return tuple(_Forks(graph, costs, cores).of((1 << len(graph)) - 1, {}))


def games_sentence(forks: Sequence[Fork]) -> str:
    """Return a sentence about the games: how they were solved, and the cost of equilibria relative to the optimum."""
    games = [fork.outcome for fork in forks if fork.outcome is not None]
    if not games:
        return "at no fork of the graph do branches that choose their cores beat all cores in turn"
    exact = sum(game.exact for game in games)
    text = f"{len(games)} games, {exact} of them with all equilibria, the others by best responses"
    stability = [game.price_of_stability for game in games if game.price_of_stability is not None]
    anarchy = [game.price_of_anarchy for game in games if game.price_of_anarchy is not None]
    if stability:
        text += f"; best equilibrium over optimum up to {max(stability):.3f}"
    if anarchy:
        text += f", worst where all are known up to {max(anarchy):.3f}"
    return text


_Lanes = dict[int, int]
"""Lane of each placed node: the first core of its group."""


class _Forks:
    """Plans the forks of parts of a graph; a part is an integer whose bit i stands for node i."""

    def __init__(self, graph: KernelGraph, costs: Costs, cores: tuple[int, ...]) -> None:
        self._graph = graph
        self._costs = costs
        self._cores = cores
        self._stages = StageCosts(graph, costs, cores)
        self._inputs = [sum(1 << source for source in node.inputs) for node in graph.nodes]
        self._before = _reached([node.inputs for node in graph.nodes], range(len(graph)))
        self._after = _reached(graph.successors, reversed(range(len(graph))))

    def of(self, region: int, lanes: _Lanes) -> list[Fork]:
        """Return the forks of a part of the graph; `lanes` are the lanes of the nodes that were placed before."""
        components = self._stages.components(region)
        if len(components) == 1:
            pieces = list(_pieces(region, self._before, self._after))
            if pieces != [(region, False)]:
                return self._in_order(pieces, lanes)
        ways = []
        if len(components) > 1:
            ways.append([self._game(components, lanes)])
            ways.append(self._in_order([(component, False) for component in components], lanes))
        ways.append(self._layers(region, lanes))
        return min(ways, key=self._total_us)  # of equally fast ways, the first

    def _in_order(self, pieces: Iterable[tuple[int, bool]], lanes: _Lanes) -> list[Fork]:
        found: list[Fork] = []
        for piece, is_line in pieces:
            there = lanes | _lanes_of(found)
            found += [self._game([piece], there)] if is_line else self.of(piece, there)
        return found

    def _layers(self, region: int, lanes: _Lanes) -> list[Fork]:
        found: list[Fork] = []
        while region:
            layer = [node for node in bits(region) if not self._inputs[node] & region]
            found.append(self._game([1 << node for node in layer], lanes | _lanes_of(found)))
            region &= ~sum(1 << node for node in layer)
        return found

    def _total_us(self, forks: list[Fork]) -> float:
        return simulate(self._graph, [fork.stage for fork in forks], self._costs).total_us

    def _game(self, players: list[int], lanes: _Lanes) -> Fork:
        """Let the players play a game for each split of the cores, and return the fork with the best result."""
        members = tuple(tuple(bits(player)) for player in players)
        together = sum(players)
        everywhere = self._cores[: self._stages.widest]
        best = Fork(members, (everywhere,), None, Stage((self._stages.group(together, everywhere),)))
        best_us = self._stages.times_us(together)[len(everywhere)]
        for split in self._stages.splits if len(players) > 1 else []:
            firsts = [sum(split[:number]) for number in range(len(split))]
            parts = tuple(self._cores[first : first + size] for first, size in zip(firsts, split))
            outcome = play(self._load_us(players, parts, lanes))
            needed_us = outcome.makespan_us + self._costs.handover_us  # for a reader of all parts
            if needed_us < best_us:
                chosen = [[p for p, at in zip(players, outcome.choices) if at == part] for part in range(len(parts))]
                groups = tuple(self._stages.group(sum(mine), part) for mine, part in zip(chosen, parts) if mine)
                best, best_us = Fork(members, parts, outcome, Stage(groups)), needed_us
        return best

    def _load_us(self, players: list[int], parts: tuple[tuple[int, ...], ...], lanes: _Lanes) -> np.ndarray:
        """Return how long each player occupies each part of the cores, microseconds, shape (players, parts).

        The time includes the player's operators and a handover of its inputs from another lane.
        """
        rows = []
        for player in players:
            sources = {source for node in bits(player) for source in self._graph.nodes[node].inputs}
            origins = {lanes[source] for source in sources if source in lanes}
            times_us = self._stages.times_us(player)
            rows.append(
                [
                    times_us[len(part)] * self._costs.slowdown + self._costs.handover_us * bool(origins - {part[0]})
                    for part in parts
                ]
            )
        return np.array(rows)


def _lanes_of(forks: Iterable[Fork]) -> _Lanes:
    return {step.node: group.cores[0] for fork in forks for group in fork.stage.groups for step in group.steps}


def _pieces(region: int, before: list[int], after: list[int]) -> Iterator[tuple[int, bool]]:
    """Cut a connected set of nodes at the nodes through which every path goes.

    Args:
        before, after: for each node, the nodes that are certainly earlier or later.

    Yields:
        Parts in order, each with whether it is a chain of nodes through which every path goes.
    """
    line = seen = 0
    for node in bits(region):
        bit = 1 << node
        if region & ~(before[node] | after[node] | bit):
            continue
        gap = region & before[node] & ~seen
        if gap:
            if line:
                yield line, True
            yield gap, False
            line = 0
        line |= bit
        seen |= gap | bit
    if line:
        yield line, True
    if region & ~seen:
        yield region & ~seen, False


def _reached(edges: Sequence[Sequence[int]], order: Iterable[int]) -> list[int]:
    """Return for each node the set of nodes that its edges reach directly or indirectly.

    Args:
        order: nodes in an order in which the targets of edges come first.
    """
    found = [0] * len(edges)
    for node in order:
        for other in edges[node]:
            found[node] |= found[other] | 1 << other
    return found
