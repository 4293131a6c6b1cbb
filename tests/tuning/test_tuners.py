"""Every strategy of the search."""

from __future__ import annotations

import pytest

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.targets.target import resolve_target
from op_profiler.testing import TunerSuite
from op_profiler.testing.tuner import DENSE
from op_profiler.tuning.candidate import TaskSpec
from op_profiler.tuning.task import Task
from op_profiler.tuning.tuners import TUNERS
from op_profiler.tuning.tuners.trees import trees
from op_profiler.tuning.tuners.tuner import TunerFactory

DISTINCT = list({TUNERS.get(name): name for name in reversed(list(TUNERS))}.values())
"""One name of each; some have two."""


class TestTuners(TunerSuite):
    @pytest.fixture(params=DISTINCT)
    def factory(self, request: pytest.FixtureRequest) -> TunerFactory:
        return TUNERS.get(request.param)


class TestTreesOfKnobsOfTvm(TunerSuite):
    """A template of TVM's, whose annotations stand among the factors of some points and not of others."""

    @pytest.fixture
    def factory(self) -> TunerFactory:
        return trees

    @pytest.fixture
    def task(self) -> Task:
        tensors = (("TENSOR", (1, 16, 12, 12), "float32"), ("TENSOR", (16, 1, 3, 3), "float32"))
        spec = TaskSpec(
            "depthwise_conv2d_nchw_spatial_pack.arm_cpu", (*tensors, (1, 1), (1, 1, 1, 1), (1, 1), "float32")
        )
        return compiler_in_use().task(spec, resolve_target("llvm"))


def test_where_one_point_of_several_is_valid_it_is_its_own_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    task = compiler_in_use().task(DENSE, resolve_target("llvm"))
    monkeypatch.setattr(task, "is_valid", lambda point: point == 5)
    assert task.size > 1 and task.neighbour(5) == 5
