"""What every strategy of the search for schedules keeps to."""

from __future__ import annotations

import random
import time
from types import ModuleType
from typing import Any

import pytest

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.tuning.candidate import TaskSpec
from op_profiler.tuning.tuners.tuner import Tuner, TunerFactory

DENSE = TaskSpec(
    "dense_pack.op_profiler", (("TENSOR", (16, 64), "float32"), ("TENSOR", (4, 64, 16), "float32"), None, "float32")
)
"""A product of small matrices, whose space has some hundred points."""
_BATCH, _BATCHES = 8, 5


class TunerSuite:
    """A tuner proposes points of the space, each at most once, and the same for the same results.

    Nothing is built: what a point costs follows from its knobs.

    Fixtures:
        factory: an `op_profiler.tuning.tuners.tuner.TunerFactory`.
    """

    @pytest.fixture
    def factory(self) -> TunerFactory:
        raise NotImplementedError

    @pytest.fixture
    def task(self) -> Any:
        return DENSE.create(load_tvm().target.Target("llvm"))

    def test_each_point_of_the_space_is_proposed_at_most_once(self, factory: TunerFactory, task: Any) -> None:
        proposed = _proposals(_seeded(factory, task), task)
        assert proposed and len(proposed) == len(set(proposed))
        assert all(0 <= index < len(task.config_space) for index in proposed)

    def test_the_same_seed_gives_the_same_proposals(self, factory: TunerFactory, task: Any) -> None:
        first, second = (_proposals(_seeded(factory, task), task) for _ in range(2))
        assert first == second

    def test_failures_are_results(self, factory: TunerFactory, task: Any) -> None:
        proposed = _proposals(_seeded(factory, task), task, fails=True)
        assert proposed and len(proposed) == len(set(proposed))


def _seeded(factory: TunerFactory, task: Any, seed: int = 3) -> Tuner:
    """As `make_tuner` makes it."""
    import numpy as np

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    return factory(task, seed)


def _proposals(tuner: Tuner, task: Any, *, fails: bool = False) -> list[int]:
    """The points of a few batches, in their order."""
    autotvm = load_tvm().autotvm
    found: list[int] = []
    for _ in range(_BATCHES):
        if not tuner.has_next():
            break
        configs = list(tuner.next_batch(_BATCH))
        assert len(configs) <= _BATCH
        if not configs:
            break
        found += [int(config.index) for config in configs]
        inputs = [autotvm.measure.MeasureInput(task.target, task, config) for config in configs]
        tuner.update(inputs, [_result(autotvm, config, fails) for config in configs])
    return found


def _result(autotvm: ModuleType, config: Any, fails: bool) -> Any:
    if fails:
        error = autotvm.measure.MeasureErrorNo.RUNTIME_DEVICE
        return autotvm.measure.MeasureResult((1e9,), error, 0.0, time.time())
    seconds = 1e-6 * (1 + sum(map(float, config.get_flatten_feature())) % 7)
    return autotvm.measure.MeasureResult((seconds,), 0, 0.0, 0.0)
