"""What every policy has to keep to, and what some of them are known to find."""

from __future__ import annotations

import numpy as np
import pytest

from op_profiler.errors import UnknownNameError
from op_profiler.parallel.planning.costs import Costs, simulate
from op_profiler.parallel.planning.graph import KernelGraph
from op_profiler.parallel.planning.plan import Stage
from op_profiler.parallel.planning.policies import POLICIES
from op_profiler.parallel.planning.policies.exhaustive import LARGEST, exhaustive
from op_profiler.parallel.planning.policies.policy import Policy
from op_profiler.testing import PolicySuite
from op_profiler.testing.graphs import chain, chains, equal_costs, inception, random_costs
from op_profiler.testing.policy import GRAPHS


class TestPolicies(PolicySuite):
    @pytest.fixture(params=POLICIES)
    def policy(self, request: pytest.FixtureRequest) -> Policy:
        return POLICIES.get(request.param)

    @pytest.fixture
    def largest(self, policy: Policy) -> int:
        return LARGEST if policy is exhaustive else 1_000_000


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
