"""Tests here import `networks`, `relay_cases` and `tuned`.

Models that Relay imports come of a process that has imported its TVM already.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from op_profiler.compilers.relax import relay_models
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.targets.target import resolve_target
from op_profiler.tuning.trials.runner import TrialLimits, TrialRunner

from ....nursery import forked_child

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def forked_importers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_models, "Child", forked_child())


@pytest.fixture(scope="session")
def target() -> Any:
    load_tvm()
    return resolve_target("llvm")


@pytest.fixture(scope="session")
def quick(target: Any) -> Any:
    from networks import quickly_built

    return quickly_built(target)


@pytest.fixture(scope="session")
def runner(target: Any) -> Iterator[TrialRunner]:
    limits = TrialLimits(build_seconds=600.0, run_seconds=600.0, minimum_us=100.0)
    with TrialRunner(str(target), 1, limits=limits) as made:
        yield made
