"""The test suite of the contract `Tuner`."""

from __future__ import annotations

import random

import numpy as np
import pytest

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.targets.target import resolve_target
from op_profiler.tuning.candidate import TaskSpec, TrialResult
from op_profiler.tuning.task import Task
from op_profiler.tuning.tuners.tuner import Tuner, TunerFactory

DENSE = TaskSpec(
    "dense_pack.op_profiler", (("TENSOR", (16, 64), "float32"), ("TENSOR", (4, 64, 16), "float32"), None, "float32")
)
"""A product of small matrices, whose space has a few hundred points."""
_BATCH, _BATCHES = 8, 5


class TunerSuite:
    """Tests that a tuner proposes valid points, each at most once, and that equal seeds give equal proposals.

    Nothing is built: the cost of a point is computed from its number.

    Fixtures:
        factory: an `op_profiler.tuning.tuners.tuner.TunerFactory`.
    """

    @pytest.fixture
    def factory(self) -> TunerFactory:
        """The `TunerFactory` under test."""
        raise NotImplementedError

    @pytest.fixture
    def task(self) -> Task:
        """The `Task` to search; by default the product of small matrices `DENSE`."""
        return compiler_in_use().task(DENSE, resolve_target("llvm"))

    def test_each_point_of_the_space_is_proposed_at_most_once(self, factory: TunerFactory, task: Task) -> None:
        """Check that the proposals of five batches are valid and distinct."""
        proposed = _proposals(_seeded(factory, task))
        assert proposed and len(proposed) == len(set(proposed))
        assert all(0 <= point < task.size and task.is_valid(point) for point in proposed)

    def test_the_same_seed_gives_the_same_proposals(self, factory: TunerFactory, task: Task) -> None:
        """Compare the proposals of two tuners with one seed."""
        first, second = (_proposals(_seeded(factory, task)) for _ in range(2))
        assert first == second

    def test_failures_are_results(self, factory: TunerFactory, task: Task) -> None:
        """Check that proposals stay distinct if every trial fails."""
        proposed = _proposals(_seeded(factory, task), fails=True)
        assert proposed and len(proposed) == len(set(proposed))


def _seeded(factory: TunerFactory, task: Task, seed: int = 3) -> Tuner:
    """Return a tuner with a seed, as `make_tuner` creates it."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    return factory(task, seed)


def _proposals(tuner: Tuner, *, fails: bool = False) -> list[int]:
    """Return the points of a few batches, in order."""
    found: list[int] = []
    for _ in range(_BATCHES):
        if not tuner.has_next():
            break
        points = tuner.next_batch(_BATCH)
        assert len(points) <= _BATCH
        if not points:
            break
        found += points
        tuner.update(points, [_result(point, fails) for point in points])
    return found


def _result(point: int, fails: bool) -> TrialResult:
    if fails:
        return TrialResult(failure="run", error="it does not run")
    return TrialResult(samples_us=(1.0 + point % 7,))
