"""What every policy has to keep to, and what some of them are known to find."""

from __future__ import annotations

import numpy as np
import pytest

from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.parallel.planning.costs import Costs, simulate
from op_profiler.parallel.planning.graph import KernelGraph
from op_profiler.parallel.planning.plan import Plan, Stage
from op_profiler.parallel.planning.policies import POLICIES
from op_profiler.parallel.planning.policies.exhaustive import LARGEST

from .graphs import chain, chains, diamond, equal_costs, graph_of, inception, layered, random_costs, randwire

GRAPHS = {
    "one operator": chain(1),
    "chain": chain(9),
    "diamond": diamond(),
    "inception": inception(3),
    "two chains": chains(2, 6),
    "wired at random": randwire(24, seed=1),
    "independent": graph_of([()] * 7),
    **{f"random {nodes}/{seed}": layered(nodes, seed) for nodes, seed in ((8, 0), (8, 1), (12, 2), (40, 1))},
}


@pytest.mark.parametrize("cores", [(0,), (0, 1), (2, 5, 7, 8)], ids=lambda cores: f"{len(cores)} cores")
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_makes_a_plan_that_can_be_run_and_the_same_twice(
    name: str, graph: KernelGraph, cores: tuple[int, ...]
) -> None:
    costs = random_costs(graph, 1, threads=(1, 2, 4), handover_us=3.0, slowdown=1.1)
    if name == "exhaustive" and len(graph) > LARGEST:
        with pytest.raises(UsageError, match="takes up to"):
            POLICIES.get(name)(graph, costs, cores)
        return
    stages = POLICIES.get(name)(graph, costs, cores)
    plan = Plan(name, graph.models, graph.digest, "device", "processor", stages)
    plan.check(graph, device="device", processor="processor", cores=cores)
    assert np.isfinite(simulate(graph, stages, costs).end_us).all()
    assert POLICIES.get(name)(graph, costs, cores) == stages


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
@pytest.mark.parametrize("name", ["threads", "greedy", "ios"])
def test_never_worse_than_one_after_the_other(name: str, graph: KernelGraph) -> None:
    for seed, slowdown in ((0, 1.0), (1, 1.6)):
        costs = random_costs(graph, seed, handover_us=20.0, slowdown=slowdown)
        alone = simulate(graph, POLICIES.get("sequential")(graph, costs, (0, 1)), costs)
        assert simulate(graph, POLICIES.get(name)(graph, costs, (0, 1)), costs).total_us <= alone.total_us


@pytest.mark.parametrize("name", ["greedy", "ios", "nash"])
def test_two_chains_that_do_not_gain_from_threads_take_half_the_time(name: str) -> None:
    graph = chains(2, 20)
    costs = equal_costs(graph, {1: 10.0, 2: 9.5})
    stages = POLICIES.get(name)(graph, costs, (0, 1))
    assert simulate(graph, stages, costs).total_us == pytest.approx(200)


@pytest.mark.parametrize("name", ["greedy", "ios", "nash"])
def test_operators_that_gain_in_full_from_threads_are_not_run_side_by_side(name: str) -> None:
    graph = inception(2)
    costs = equal_costs(graph, {1: 10.0, 2: 5.0}, handover_us=1.0)
    stages = POLICIES.get(name)(graph, costs, (0, 1))
    assert simulate(graph, stages, costs).total_us == pytest.approx(5.0 * len(graph))


@pytest.mark.parametrize("name", ["threads", "greedy", "ios", "nash"])
def test_operators_of_a_chain_have_the_threads_of_their_turnaround_points(name: str) -> None:
    graph = chain(20)
    rng = np.random.default_rng(0)
    costs = Costs({count: rng.uniform(5, 20, len(graph)) for count in (1, 2, 4)}, handover_us=1.0)
    stages = POLICIES.get(name)(graph, costs, (0, 1, 2, 3))
    assert _threads(stages) == [costs.best_threads(node, 4) for node in range(len(graph))]
    least = np.min(list(costs.latency_us.values()), axis=0)
    assert simulate(graph, stages, costs).total_us == pytest.approx(least.sum())


def test_all_cores_where_all_were_measured_and_the_most_otherwise() -> None:
    graph = chain(3)
    costs = equal_costs(graph, {1: 9.0, 2: 6.0, 8: 1.0})
    assert _threads(POLICIES.get("sequential")(graph, costs, (0, 1, 2, 3))) == [2, 2, 2]


def test_a_policy_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="greedy"):
        POLICIES.get("greedi")


def _threads(stages: tuple[Stage, ...]) -> list[int]:
    return [step.threads for stage in stages for step in stage.steps]
