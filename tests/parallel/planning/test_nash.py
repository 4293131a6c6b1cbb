"""Games whose equilibria are known, and the games that are played in a graph."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from op_profiler.errors import MissingPackageError
from op_profiler.parallel.planning.costs import Costs, simulate
from op_profiler.parallel.planning.games import (
    _pygambit,
    costs_of,
    extreme_equilibria,
    optimum_us,
    play,
    pure_equilibria,
    without_pygambit,
)
from op_profiler.parallel.planning.policies.nash import games_sentence, nash, nash_forks
from op_profiler.testing.graphs import chains, diamond, equal_costs, inception, layered, random_costs

PRISONERS = [np.array([[1.0, 3.0], [0.0, 2.0]]), np.array([[1.0, 0.0], [3.0, 2.0]])]  # years; 0 keeps silent
PENNIES = [np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 1.0]])]
BATTLE = [np.array([[0.0, 3.0], [3.0, 2.0]]), np.array([[2.0, 3.0], [3.0, 0.0]])]


def test_prisoners_confess() -> None:
    assert pure_equilibria(PRISONERS) == [((0, 1), (0, 1))]
    assert extreme_equilibria(PRISONERS) == [((0, 1), (0, 1))]


def test_matching_pennies_has_no_pure_equilibrium_and_one_mixed() -> None:
    assert pure_equilibria(PENNIES) == []
    assert extreme_equilibria(PENNIES) == [((0.5, 0.5), (0.5, 0.5))]


def test_battle_of_the_sexes_has_two_pure_equilibria_and_one_mixed() -> None:
    assert sorted(pure_equilibria(BATTLE)) == [((0, 1), (0, 1)), ((1, 0), (1, 0))]
    (mixed,) = set(extreme_equilibria(BATTLE)) - set(pure_equilibria(BATTLE))
    assert [*mixed[0], *mixed[1]] == pytest.approx([0.75, 0.25, 0.25, 0.75])


def test_pure_equilibria_of_three_players_are_those_that_nobody_leaves() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        costs = [rng.uniform(0, 9, (2, 3, 4)) for _ in range(3)]
        expected = set()
        for choices in itertools.product(range(2), range(3), range(4)):
            alternatives = [np.moveaxis(costs[p], p, -1)[choices[:p] + choices[p + 1 :]] for p in range(3)]
            if all(costs[p][choices] <= alternatives[p].min() for p in range(3)):
                expected.add(choices)
        found = {tuple(each.index(1.0) for each in one) for one in pure_equilibria(costs)}
        assert found == expected


def test_two_machines_with_jobs_2_2_1_1_have_the_price_of_anarchy_4_to_3() -> None:
    """With 2 and 2 on one machine and 1 and 1 on the other nobody gains by moving; the optimum is 3."""
    outcome = play(np.repeat([[2.0], [2.0], [1.0], [1.0]], 2, axis=1))
    assert outcome.exact and outcome.optimum_us == 3 and outcome.makespan_us == 3
    assert outcome.price_of_stability == 1
    assert outcome.price_of_anarchy == pytest.approx(4 / 3)
    assert outcome.equilibria == 6  # both jobs of 2 apart from each other: 2 * 2, or together: 2


def test_two_equal_jobs_may_draw_lots_for_two_machines() -> None:
    outcome = play(np.ones((2, 2)))
    assert outcome.equilibria == 2 and outcome.makespan_us == 1
    assert outcome.mixed == (((0.5, 0.5), (0.5, 0.5)),)
    assert play(np.ones((3, 2))).mixed is None


def test_each_player_pays_for_the_load_of_its_resource() -> None:
    first, second = costs_of(np.array([[2.0, 5.0], [3.0, 4.0]]))
    assert first.tolist() == [[5, 2], [5, 9]]
    assert second.tolist() == [[5, 4], [3, 9]]


@pytest.mark.parametrize("seed", range(4))
def test_best_responses_end_in_an_equilibrium(seed: int) -> None:
    load_us = np.random.default_rng(seed).uniform(1, 50, (40, 3))
    outcome = play(load_us)
    assert not outcome.exact and outcome.equilibria >= 1
    loads = np.bincount(outcome.choices, weights=load_us[np.arange(40), outcome.choices], minlength=3)
    assert outcome.makespan_us == pytest.approx(loads.max())
    for player, at in enumerate(outcome.choices):
        elsewhere = [loads[other] + load_us[player, other] for other in range(3) if other != at]
        assert loads[at] <= min(elsewhere) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_the_optimum_is_the_best_of_all_assignments(seed: int) -> None:
    load_us = np.random.default_rng(seed).uniform(1, 50, (6, 3))
    best = min(
        np.bincount(choices, weights=load_us[np.arange(6), list(choices)], minlength=3).max()
        for choices in itertools.product(range(3), repeat=6)
    )
    assert optimum_us(load_us) == pytest.approx(best)
    outcome = play(load_us[:5])
    assert outcome.exact and outcome.price_of_stability == pytest.approx(1)


@pytest.fixture
def no_pygambit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "pygambit", None)
    _pygambit.cache_clear()
    yield
    _pygambit.cache_clear()


def test_without_pygambit_best_responses_solve_small_games_too_and_it_is_told(no_pygambit: None) -> None:
    load_us = np.array([[2.0, 2.0], [2.0, 2.0], [1.0, 1.0], [1.0, 1.0]])
    outcome = play(load_us)
    assert not outcome.exact and outcome.mixed is None
    assert outcome.makespan_us == 3 and outcome.price_of_stability == pytest.approx(1)
    assert outcome.price_of_anarchy is None, "the worst equilibrium may be one that was not found"
    (note,) = without_pygambit()
    assert "source ./env_var.sh predict" in note and "best responses solve all games" in note
    graph = diamond()
    games = games_sentence(nash_forks(graph, Costs({1: np.full(4, 10.0), 2: np.full(4, 9.0)}), (0, 1)))
    assert games.startswith("1 games, 0 of them with all equilibria") and "worst" not in games
    with pytest.raises(MissingPackageError, match="equilibria of a game needs the package 'pygambit'"):
        pure_equilibria(costs_of(load_us))


def test_with_pygambit_there_is_nothing_to_tell() -> None:
    assert without_pygambit() == () and play(np.ones((2, 2))).exact


def test_an_optimum_that_would_take_too_long_is_left_open() -> None:
    outcome = play(np.ones((120, 2)))
    assert outcome.optimum_us is None and outcome.price_of_stability is None


def test_the_branches_of_a_module_play_for_the_cores() -> None:
    graph = inception(1)
    costs = equal_costs(graph, {1: 10.0, 2: 9.0}, handover_us=1.0)
    forks = nash_forks(graph, costs, (0, 1))
    assert [fork.players for fork in forks] == [((0,),), ((1,), (2, 3), (4, 5, 6), (7, 8)), ((9,),)]
    assert [fork.outcome is None for fork in forks] == [True, False, True]
    outcome = forks[1].outcome
    assert outcome is not None and outcome.exact and outcome.price_of_stability == pytest.approx(1)
    assert outcome.makespan_us == 42  # 4 operators on each core, and for two branches what they read is handed over
    assert forks[1].resources == ((0,), (1,))


def test_where_nobody_gains_all_cores_take_one_branch_after_the_other() -> None:
    (_, fork, _) = nash_forks(diamond(), equal_costs(diamond(), {1: 10.0, 2: 5.0}, handover_us=1.0), (0, 1))
    assert fork.outcome is None and len(fork.stage.groups) == 1


def test_models_are_the_players_where_there_are_several() -> None:
    graph = chains(3, 10)
    (fork,) = nash_forks(graph, equal_costs(graph, {1: 10.0, 2: 9.0, 4: 8.0}), (0, 1, 2, 3))
    assert len(fork.players) == 3 and fork.outcome is not None
    assert len({group.cores for group in fork.stage.groups}) == 3


def test_a_long_branch_gets_the_larger_part_of_the_cores() -> None:
    graph = chains(2, 4)
    alone = np.array([80.0] * 4 + [20.0] * 4)
    costs = Costs({1: alone, 2: alone / 1.9, 3: alone / 2.7, 4: alone / 2.8})
    (fork,) = nash_forks(graph, costs, (0, 1, 2, 3))
    assert {len(group.cores): group.steps[0].node for group in fork.stage.groups} == {3: 0, 1: 4}


def test_a_plan_of_games_beats_one_operator_after_the_other_where_threads_pay_little() -> None:
    for graph in (inception(4), layered(60, seed=2)):
        costs = random_costs(graph, 3, handover_us=1.0)
        total_us = simulate(graph, nash(graph, costs, (0, 1)), costs).total_us
        assert total_us < 0.95 * costs.latency_us[2].sum()


def test_games_are_told_in_a_sentence() -> None:
    graph = diamond()
    apart = Costs({1: np.full(4, 10.0), 2: np.full(4, 9.0)})
    assert games_sentence(nash_forks(graph, apart, (0, 1))).startswith("1 games, 1 of them with all equilibria")
    assert "best equilibrium over optimum up to 1.000" in games_sentence(nash_forks(graph, apart, (0, 1)))
    together = Costs({1: np.full(4, 10.0), 2: np.full(4, 5.0)})
    assert games_sentence(nash_forks(graph, together, (0, 1))).startswith("at no fork")
