"""Finds Nash equilibria of games in which each player chooses one resource.

A player ends when all players on the same resource have ended, so its cost is the load of that resource. This game is
load balancing on unrelated machines (Koutsoupias & Papadimitriou 1999, STACS). If all players have equal weights, it is
a congestion game with Rosenthal's potential (1973, Int. J. Game Theory 2, 65). In general, each improving move lowers
the larger one of the two loads that it changes, so the descending order of all loads is a generalised ordinal potential
(Monderer & Shapley 1996, Games and Economic Behavior 14, 124; Even-Dar, Kesselman & Mansour 2003, ICALP): best
responses end in an equilibrium in pure strategies, whoever moves first.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from op_profiler.errors import MissingPackageError

_EXACT = 256
"""Largest number of strategy profiles for which all equilibria are enumerated."""
_MOST_MIXED = 4
"""Largest number of resources for which mixed equilibria are enumerated; their number can grow exponentially."""
_LARGEST_OPTIMUM = 200
"""Largest product of players and resources for which the optimum is computed."""

Mixed = tuple[tuple[float, ...], ...]
"""A strategy profile: for each player, the probabilities of its strategies."""


@dataclasses.dataclass(frozen=True)
class GameOutcome:
    """Result of a game.

    Attributes:
        choices: resource of each player in the best equilibrium that was found: the one with the smallest makespan.
        makespan_us: makespan (largest load) of the best equilibrium that was found, microseconds.
        worst_us: makespan of the worst equilibrium that was found, microseconds.
        exact: whether all equilibria in pure strategies were enumerated; otherwise best responses found some
            equilibria, and others may be better or worse.
        equilibria: number of equilibria that were found.
        load_us: the game, as passed to `play`.
    """

    choices: tuple[int, ...]
    makespan_us: float
    worst_us: float
    exact: bool
    equilibria: int
    load_us: np.ndarray = dataclasses.field(repr=False, compare=False)

    @functools.cached_property
    def optimum_us(self) -> float | None:
        """The smallest makespan of all assignments, microseconds; None if the game is too large to compute it."""
        return optimum_us(self.load_us)

    @functools.cached_property
    def mixed(self) -> tuple[Mixed, ...] | None:
        """Return the equilibria in mixed strategies of a game with two players and up to four resources.

        The result is None for other games, and if pygambit is not installed. No plan uses mixed strategies, because
        they are no better than the best pure equilibrium. They show how players that do not coordinate would choose.
        """
        players, resources = self.load_us.shape
        if players != 2 or resources > _MOST_MIXED or _pygambit() is None:
            return None
        found = extreme_equilibria(costs_of(self.load_us))
        return tuple(one for one in found if any(max(each) < 1 for each in one))

    @property
    def price_of_stability(self) -> float | None:
        """Return the ratio of the best equilibrium's makespan to the optimum; None if the optimum is unknown."""
        return self.makespan_us / self.optimum_us if self.optimum_us else None

    @property
    def price_of_anarchy(self) -> float | None:
        """Return the ratio of the worst equilibrium's makespan to the optimum.

        The result is None if the optimum or some equilibria are unknown.
        """
        return self.worst_us / self.optimum_us if self.exact and self.optimum_us else None


def play(load_us: np.ndarray) -> GameOutcome:
    """Find the equilibria of a game in which each player chooses one resource.

    Args:
        load_us: time for which each player occupies each resource, including the transfer of its inputs, microseconds,
            shape (players, resources).
    """
    players, resources = load_us.shape
    exact = resources**players <= _EXACT and _pygambit() is not None
    if exact:
        found = [tuple(each.index(1.0) for each in one) for one in pure_equilibria(costs_of(load_us))]
    else:
        found = _by_best_responses(load_us)
    spans = [_makespan(load_us, choices) for choices in found]
    best = min(range(len(found)), key=lambda at: (spans[at], found[at]))
    return GameOutcome(found[best], spans[best], max(spans), exact, len(found), load_us)


def costs_of(load_us: np.ndarray) -> list[np.ndarray]:
    """Return for each player an array of its costs by the choices of all players, shape (resources,) * players."""
    players, resources = load_us.shape
    tables = [np.empty((resources,) * players) for _ in range(players)]
    for choices in itertools.product(range(resources), repeat=players):
        loads = _loads(load_us, choices)
        for player, choice in enumerate(choices):
            tables[player][choices] = loads[choice]
    return tables


def pure_equilibria(costs: Sequence[np.ndarray]) -> list[Mixed]:
    """Return all equilibria in pure strategies of a game, computed by pygambit.

    Args:
        costs: for each player its finite cost as a function of all players' choices, shape (strategies of player 0, of
            player 1, ...).

    Raises:
        MissingPackageError: pygambit is not installed.
    """
    gambit = _needed_pygambit()
    return [_probabilities(one, costs) for one in gambit.nash.enumpure_solve(_gambit_game(costs)).equilibria]


def extreme_equilibria(costs: Sequence[np.ndarray]) -> list[Mixed]:
    """Return the extreme equilibria of a game with two players; all other equilibria are mixtures of extreme ones.

    Args:
        costs: for both players the finite cost as a function of both choices, shape (strategies of player 0, of
            player 1).

    Raises:
        MissingPackageError: pygambit is not installed.
    """
    gambit = _needed_pygambit()
    return [_probabilities(one, costs) for one in gambit.nash.enummixed_solve(_gambit_game(costs)).equilibria]


def optimum_us(load_us: np.ndarray) -> float | None:
    """Return the smallest makespan of all assignments of players to resources (R||Cmax), microseconds.

    It is computed by mixed-integer programming; the result is None if `load_us` has more than `_LARGEST_OPTIMUM`
    entries.

    Args:
        load_us: as for `play`.
    """
    players, resources = load_us.shape
    if load_us.size > _LARGEST_OPTIMUM:
        return None

    # Variable i * resources + k: whether player i uses resource k. The last variable: the makespan.
    once = np.kron(np.eye(players), np.ones(resources))
    loads = np.zeros((resources, load_us.size))
    for resource in range(resources):
        loads[resource, resource::resources] = load_us[:, resource]
    scale = float(load_us.max()) or 1.0
    found = milp(
        c=[*[0.0] * load_us.size, 1.0],
        constraints=[
            LinearConstraint(np.column_stack([once, np.zeros(players)]), 1, 1),
            LinearConstraint(np.column_stack([loads / scale, -np.ones(resources)]), -np.inf, 0),
        ],
        integrality=[*[1] * load_us.size, 0],
        bounds=Bounds([0.0] * (load_us.size + 1), [*[1.0] * load_us.size, np.inf]),
        options={"mip_rel_gap": 0.0},
    )
    chosen = found.x[:-1].reshape(players, resources).argmax(axis=1)
    return _makespan(load_us, tuple(int(choice) for choice in chosen))


def _by_best_responses(load_us: np.ndarray) -> list[tuple[int, ...]]:
    """Return the distinct equilibria that best responses reach from several starts.

    The starts are list scheduling, and all players on the same resource, for each resource.
    """
    players, resources = load_us.shape
    loads = np.zeros(resources)
    listed = [0] * players
    for player in np.argsort(-load_us.min(axis=1), kind="stable"):
        choice = int(np.argmin(loads + load_us[player]))
        listed[player] = choice
        loads[choice] += load_us[player, choice]
    starts = [listed, *([resource] * players for resource in range(resources))]
    return list(dict.fromkeys(_best_responses(load_us, start) for start in starts))


def _best_responses(load_us: np.ndarray, start: Sequence[int]) -> tuple[int, ...]:
    """Let players move one after the other, each to the resource on which it ends first, until no player gains."""
    choices = list(start)
    loads = _loads(load_us, choices)
    moved = True
    while moved:
        moved = False
        for player, at in enumerate(choices):
            there = loads + load_us[player]
            there[at] = loads[at]
            best = int(np.argmin(there))
            if there[best] < loads[at] * (1 - 1e-9):  # with gains by rounding alone, moves could cycle
                choices[player] = best
                loads = _loads(load_us, choices)
                moved = True
    return tuple(choices)


def _loads(load_us: np.ndarray, choices: Sequence[int]) -> np.ndarray:
    players, resources = load_us.shape
    chosen: np.ndarray = load_us[np.arange(players), list(choices)]
    return np.bincount(choices, weights=chosen, minlength=resources)


def _makespan(load_us: np.ndarray, choices: Sequence[int]) -> float:
    return float(_loads(load_us, choices).max())


def without_pygambit() -> tuple[str, ...]:
    """Return a note on how to install pygambit and what happens without it; empty if it is installed."""
    if _pygambit() is not None:
        return ()
    return (f"{MissingPackageError('pygambit', _ALL, extra='predict')}. Until then best responses solve all games",)


_ALL = "finding all equilibria of a game"


@functools.cache
def _pygambit() -> ModuleType | None:
    try:
        import pygambit
    except ImportError:
        return None
    return pygambit


def _needed_pygambit() -> ModuleType:
    gambit = _pygambit()
    if gambit is None:
        raise MissingPackageError("pygambit", _ALL, extra="predict")
    return gambit


def _gambit_game(costs: Sequence[np.ndarray]) -> Any:
    """Create a game for pygambit, through Gambit's file format: unlike the Python interface, this format is stable.

    Payoffs are costs with the opposite sign; in the file, the strategy of the first player varies fastest.
    """
    payoffs = np.stack([-table for table in costs], axis=-1)
    players = len(costs)
    fastest_first = payoffs.transpose(*reversed(range(players)), players).ravel()
    labels = " ".join(f'"{player}"' for player in range(players))
    shape = " ".join(str(size) for size in costs[0].shape)
    numbers = " ".join(f"{value:.9f}" for value in fastest_first)
    return _needed_pygambit().read_nfg(io.BytesIO(f'NFG 1 R "" {{ {labels} }} {{ {shape} }}\n\n{numbers}\n'.encode()))


def _probabilities(profile: Any, costs: Sequence[np.ndarray]) -> Mixed:
    return tuple(
        tuple(float(profile[str(player)][str(strategy + 1)]) for strategy in range(size))
        for player, size in enumerate(costs[0].shape)
    )
