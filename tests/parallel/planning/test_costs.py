"""What a plan costs on paper: by hand for small plans, and by the law of processor sharing."""

from __future__ import annotations

import numpy as np
import pytest

from op_profiler.errors import UsageError
from op_profiler.parallel.planning.costs import Costs, simulate
from op_profiler.parallel.planning.plan import Group, PlanError, Stage, Step
from op_profiler.testing.graphs import chain, diamond, equal_costs, graph_of, layered, random_costs

BESIDE = (Stage((Group((Step(0, 1),), (0,)), Group((Step(1, 1),), (1,)))),)


def _stage(*groups: tuple[tuple[int, ...], list[tuple[int, int]]]) -> Stage:
    return Stage(tuple(Group(tuple(Step(*step) for step in steps), cores) for cores, steps in groups))


def test_an_operator_waits_for_its_inputs_and_its_cores_and_for_nothing_else() -> None:
    graph = graph_of([(), (), (0,), (1,)])
    costs = Costs({1: np.array([10.0, 30.0, 5.0, 5.0])})
    stages = (_stage(((0,), [(0, 1)]), ((1,), [(1, 1)])), _stage(((0,), [(2, 1)]), ((1,), [(3, 1)])))
    found = simulate(graph, stages, costs)
    assert found.start_us.tolist() == [0, 0, 10, 30]  # node 2 does not wait for node 1: stages are no barriers
    assert found.end_us.tolist() == [10, 30, 15, 35]
    assert found.total_us == 35


def test_an_operator_uses_the_first_cores_of_its_group_only() -> None:
    graph = graph_of([(), ()])
    costs = Costs({1: np.array([10.0, 20.0]), 2: np.array([6.0, 12.0])})
    one_core = (_stage(((0, 1), [(0, 1)])), _stage(((1,), [(1, 1)])))
    assert simulate(graph, one_core, costs).total_us == 20
    both_cores = (_stage(((0, 1), [(0, 2)])), _stage(((1,), [(1, 1)])))
    assert simulate(graph, both_cores, costs).total_us == 26


def test_handing_over_costs_between_lanes_and_not_within_one() -> None:
    costs = equal_costs(diamond(), {1: 10.0, 2: 8.0}, handover_us=3.0)
    split = (_stage(((0,), [(0, 1)])), _stage(((0,), [(1, 1)]), ((1,), [(2, 1)])), _stage(((0,), [(3, 1)])))
    found = simulate(diamond(), split, costs)
    assert found.start_us.tolist() == [0, 10, 13, 26]
    assert simulate(diamond(), (_stage(((0,), [(n, 1) for n in range(4)])),), costs).total_us == 40


def test_changing_threads_costs_nothing() -> None:
    costs = equal_costs(chain(3), {1: 10.0, 2: 8.0}, handover_us=3.0)
    changing = (_stage(((0, 1), [(0, 2), (1, 1), (2, 2)])),)
    assert simulate(chain(3), changing, costs).start_us.tolist() == [0, 8, 18]


def test_operators_slow_each_other_down_as_long_as_they_run_side_by_side() -> None:
    costs = Costs({1: np.array([10.0, 30.0])}, slowdown=1.5)
    found = simulate(graph_of([(), ()]), BESIDE, costs)
    assert found.end_us.tolist() == [15, 35]  # 10 of the work of the longer one are done by 15, 20 are left


@pytest.mark.parametrize("slowdown", [1.0, 1.3])
def test_without_sharing_the_simulation_is_the_longest_path(slowdown: float) -> None:
    graph = layered(60, seed=3)
    costs = random_costs(graph, 3, slowdown=slowdown)
    stages = tuple(_stage(((node,), [(node, 1)])) for node in range(len(graph)))
    ends = np.zeros(len(graph))
    for node in graph.nodes:
        ends[node.index] = max((ends[i] for i in node.inputs), default=0.0) + costs.latency_us[1][node.index]
    found = simulate(graph, stages, costs)
    if slowdown == 1.0:
        assert found.end_us == pytest.approx(ends)
    else:
        assert ends.max() < found.total_us <= slowdown * ends.max() * (1 + 1e-9)


def test_a_part_of_a_graph_can_be_simulated() -> None:
    found = simulate(chain(3), (_stage(((0,), [(1, 1)])),), equal_costs(chain(3), {1: 4.0}))
    assert found.total_us == 4 and np.isnan(found.start_us[[0, 2]]).all()


def test_a_circle_is_refused() -> None:
    stages = (_stage(((0,), [(1, 1), (0, 1)])),)
    with pytest.raises(PlanError, match="circle"):
        simulate(chain(2), stages, equal_costs(chain(2), {1: 1.0}))


def test_the_turnaround_point_is_the_least_latency_that_the_cores_allow() -> None:
    costs = Costs({1: np.array([5.0, 9.0]), 2: np.array([4.0, 9.0]), 4: np.array([3.0, 12.0])})
    assert [costs.best_threads(0, most) for most in (1, 2, 3, 4)] == [1, 2, 2, 4]
    assert costs.best_threads(1, 4) == 1
    with pytest.raises(UsageError, match=r"only at \[2\]"):
        Costs({2: np.ones(1)}).best_threads(0, 1)
