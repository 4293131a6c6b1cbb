"""Stages that are measured by themselves, as `benchmarks/ios_quality.py` does."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from op_profiler.parallel.corun.costs import measure_costs
from op_profiler.parallel.corun.models import Models, plan_of
from op_profiler.parallel.planning.policies.exhaustive import exhaustive
from op_profiler.parallel.planning.policies.ios import ios_candidates

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("ios_quality", BENCHMARKS / "ios_quality.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_measured_stages_agree_with_the_exhaustive_search(branching: Models, benchmark_module: Any) -> None:
    costs = measure_costs(branching).costs
    timer = benchmark_module.StageTimer(branching, rounds=3)
    found = ios_candidates(branching.graph, costs, branching.cores, count=1, stage_us=timer.us)
    asked = timer.count
    assert found.complete and asked > len(branching.graph)
    with branching.executor(plan_of(branching, "ios", found.candidates[0])) as executor:
        executor.run()
    if len(branching.graph) <= 12:
        best = exhaustive(branching.graph, costs, branching.cores)
        assert sorted(step.node for stage in best for step in stage.steps) == list(range(len(branching.graph)))
