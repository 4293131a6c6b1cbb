"""What ``auto`` chooses from, and the choice."""

from __future__ import annotations

import dataclasses

import pytest

from op_profiler.frontends.frontend import ModelRequest
from op_profiler.parallel.corun.candidates import PlanCandidate, best_of, candidates_of
from op_profiler.parallel.corun.comparison import compare
from op_profiler.parallel.corun.costs import measure_costs
from op_profiler.parallel.corun.models import Models, in_order
from op_profiler.parallel.corun.request import CorunRequest


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked what is measured, not which is faster."""
    monkeypatch.setattr("op_profiler.parallel.corun.candidates._CHOICE_SECONDS", 0.0)


def test_auto_measures_running_in_order_by_blocks_and_by_rows(branching: Models) -> None:
    if len(branching.cores) < 2:
        pytest.skip("one core only")
    request = CorunRequest(models=(ModelRequest(source="local", name="mlp"),), threads=2)
    candidates = candidates_of(request, branching, lambda text: None)
    profile = candidates[0].profile
    assert profile is not None and set(profile.in_order_us) == {"blocks", "rows"}
    assert {one.models.split for one in candidates[:-1]} == {profile.split} == {candidates[0].plan.split}
    other = candidates[-1].plan
    assert other.policy == "sequential" and other.split != profile.split
    assert other.predicted_us == profile.in_order_us[other.split]
    winner, tried = best_of(candidates, lambda text: None)
    assert {"sequential", "sequential, by rows"} <= {name for name, *_ in tried}
    assert any(winner is one for one in candidates)
    slow = [dataclasses.replace(one, plan=dataclasses.replace(one.plan, predicted_us=1e9)) for one in candidates]
    others = [dataclasses.replace(one, plan=dataclasses.replace(one.plan, policy="other")) for one in candidates * 4]
    tried = best_of([slow[0], *others, slow[-1]], lambda text: None)[1]
    assert {"sequential", "sequential, by rows"} <= {name for name, *_ in tried} and len(tried) == 6


def test_only_the_cores_in_use_are_watched(branching: Models, watched: set[tuple[int, ...]]) -> None:
    """Work of others elsewhere meets a plan's at the memory only."""
    models = dataclasses.replace(branching, cores=branching.cores[:1])
    candidate = PlanCandidate(models, in_order(models, 1), measure_costs(models))
    best_of([candidate, candidate], lambda text: None)
    compare(models, candidate.plan, models, 1)
    assert watched == {branching.cores[:1]}
