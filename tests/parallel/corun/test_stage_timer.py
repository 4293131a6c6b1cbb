"""Stages that are measured by themselves."""

from __future__ import annotations

from op_profiler.parallel.corun.costs import measure_costs
from op_profiler.parallel.corun.models import Models, plan_of
from op_profiler.parallel.corun.stage_timer import StageTimer
from op_profiler.parallel.planning.policies.exhaustive import exhaustive
from op_profiler.parallel.planning.policies.ios import ios_candidates


def test_measured_stages_agree_with_the_exhaustive_search(branching: Models) -> None:
    costs = measure_costs(branching).costs
    timer = StageTimer(branching, rounds=3)
    found = ios_candidates(branching.graph, costs, branching.cores, count=1, stage_us=timer.us)
    asked = timer.count
    assert found.complete and asked > len(branching.graph)
    with branching.executor(plan_of(branching, "ios", found.candidates[0])) as executor:
        executor.run()
    if len(branching.graph) <= 12:
        best = exhaustive(branching.graph, costs, branching.cores)
        assert sorted(step.node for stage in best for step in stage.steps) == list(range(len(branching.graph)))
