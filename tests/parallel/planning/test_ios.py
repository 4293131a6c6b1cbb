"""IOS against all ways to cut a graph, its limits, and what it measures."""

from __future__ import annotations

import pytest

from op_profiler.parallel.planning.costs import Costs, simulate
from op_profiler.parallel.planning.graph import KernelGraph
from op_profiler.parallel.planning.plan import Stage, check_order
from op_profiler.parallel.planning.policies.exhaustive import exhaustive
from op_profiler.parallel.planning.policies.ios import ios_candidates
from op_profiler.parallel.planning.policies.stage_costs import StageCosts
from op_profiler.testing.graphs import chain, chains, diamond, equal_costs, graph_of, inception, layered, random_costs

SMALL = [diamond(), inception(1), graph_of([()] * 5), chains(2, 4), *(layered(9, seed) for seed in range(6))]


def _sum_of_stages(graph: KernelGraph, costs: Costs, cores: tuple[int, ...], stages: tuple[Stage, ...]) -> float:
    known = StageCosts(graph, costs, cores)
    sets = [sum(1 << step.node for step in stage.steps) for stage in stages]
    return sum(known.us(members, known.components(members)) for members in sets)


@pytest.mark.parametrize("cores", [(0, 1), (0, 1, 2, 3)], ids=len)
@pytest.mark.parametrize("graph", SMALL, ids=range(len(SMALL)))
def test_without_limits_it_finds_the_best_of_all(graph: KernelGraph, cores: tuple[int, ...]) -> None:
    costs = random_costs(graph, 4, threads=(1, 2, 4), handover_us=2.0, slowdown=1.1)
    size = len(graph)
    found = ios_candidates(graph, costs, cores, operators_per_group=size, groups_per_stage=size, count=3)
    best = _sum_of_stages(graph, costs, cores, exhaustive(graph, costs, cores))
    assert found.complete
    sums = [_sum_of_stages(graph, costs, cores, stages) for stages in found.candidates]
    assert min(sums) == pytest.approx(best)
    assert len(set(found.candidates)) == len(found.candidates)


def test_the_best_of_all_is_known_for_a_diamond() -> None:
    costs = equal_costs(diamond(), {1: 10.0, 2: 6.0}, handover_us=1.0)
    stages = exhaustive(diamond(), costs, (0, 1))
    assert _sum_of_stages(diamond(), costs, (0, 1), stages) == pytest.approx(6 + 11 + 6)
    assert [len(stage.groups) for stage in stages] == [1, 2, 1]


@pytest.mark.parametrize(("operators", "groups"), [(1, 2), (2, 8), (3, 1)])
def test_the_limits_of_the_paper_hold(operators: int, groups: int) -> None:
    graph = inception(3)
    costs = random_costs(graph, 5)
    found = ios_candidates(graph, costs, (0, 1), operators_per_group=operators, groups_per_stage=groups)
    known = StageCosts(graph, costs, (0, 1))
    assert found.complete and found.operators_per_group == operators and found.candidates
    for stages in found.candidates:
        check_order(graph, stages)
        for stage in stages:
            components = known.components(sum(1 << step.node for step in stage.steps))
            assert len(components) <= groups
            assert max(component.bit_count() for component in components) <= operators


def test_the_candidates_are_the_best_ones_in_order() -> None:
    graph = inception(2)
    costs = random_costs(graph, 6, handover_us=2.0)
    few = ios_candidates(graph, costs, (0, 1), count=1).candidates
    many = ios_candidates(graph, costs, (0, 1), count=8).candidates
    assert (len(few), len(many)) == (1, 8) and few[0] in many
    totals = [simulate(graph, stages, costs).total_us for stages in many]
    assert totals == sorted(totals)
    sums = sorted(_sum_of_stages(graph, costs, (0, 1), stages) for stages in many)
    assert sums[0] == pytest.approx(_sum_of_stages(graph, costs, (0, 1), few[0]))


def test_measured_stages_decide_where_they_are_given() -> None:
    """Costs say side by side, measuring says that this takes ten times as long."""
    graph = inception(1)
    costs = equal_costs(graph, {1: 10.0, 2: 9.0})
    asked: list[Stage] = []

    def measure(stage: Stage) -> float:
        asked.append(stage)
        one_after_the_other = 9.0 * sum(1 for _ in stage.steps)
        return one_after_the_other if len(stage.groups) == 1 else 10 * one_after_the_other

    by_costs = ios_candidates(graph, costs, (0, 1), count=1).candidates[0]
    measured = ios_candidates(graph, costs, (0, 1), count=1, stage_us=measure).candidates[0]
    assert any(len(stage.groups) > 1 for stage in by_costs)
    assert all(len(stage.groups) == 1 for stage in measured)
    assert len(asked) == len(set(asked))  # nothing is measured twice


def test_blocks_keep_the_number_of_states_small() -> None:
    one, ten = (ios_candidates(inception(n), random_costs(inception(n), 1), (0, 1)).states for n in (1, 10))
    assert ten < 11 * one


def test_two_models_are_searched_in_full() -> None:
    graph = chains(2, 60)
    found = ios_candidates(graph, random_costs(graph, 1), (0, 1))
    assert found.complete and found.states == 61 * 61 - 1


def test_a_space_that_is_too_large_is_searched_in_part_and_says_so() -> None:
    graph = layered(80, seed=7, width=10)
    costs = random_costs(graph, 7)
    found = ios_candidates(graph, costs, (0, 1), transitions=2000)
    assert not found.complete
    many = ios_candidates(graph, costs, (0, 1, 2, 3), transitions=2000)
    assert not many.complete and many.operators_per_group == 2
    for stages in found.candidates:
        check_order(graph, stages)
    alone_us = float(costs.latency_us[2].sum())
    assert simulate(graph, found.candidates[0], costs).total_us < 0.9 * alone_us


def test_a_chain_needs_no_stages_side_by_side() -> None:
    graph = chain(12)
    (stages,) = ios_candidates(graph, random_costs(graph, 1), (0, 1), count=1).candidates
    assert all(len(stage.groups) == 1 for stage in stages)
