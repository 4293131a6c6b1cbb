"""Limits of time, and a search by a cost model that walks less far."""

from __future__ import annotations

from typing import Any

import pytest

from op_profiler.tuning.trials.runner import TrialLimits


@pytest.fixture(scope="session")
def patient() -> TrialLimits:
    """Limits that no candidate reaches because others use the machine."""
    return TrialLimits(build_seconds=600.0, run_seconds=600.0)


@pytest.fixture(autouse=True)
def short_walks(tvm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step takes as long as any other."""
    from tvm.autotvm.tuner.sa_model_optimizer import SimulatedAnnealingOptimizer

    usual = SimulatedAnnealingOptimizer.__init__

    def short(self: Any, task: Any, *, n_iter: int, parallel_size: int, **options: Any) -> None:
        usual(self, task, n_iter=min(n_iter, 6), parallel_size=min(parallel_size, 16), **options)

    monkeypatch.setattr(SimulatedAnnealingOptimizer, "__init__", short)
