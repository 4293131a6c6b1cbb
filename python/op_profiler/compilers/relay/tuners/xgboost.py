"""Tuners of AutoTVM with a cost model of gradient-boosted trees, whose features are computed in this process.

AutoTVM starts new processes for the features at every training, which takes seconds and does not support templates
other than TVM's. To compute features other than knobs, every point must be lowered, so a search with such features
takes fewer steps.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.relay.tuners.autotvm import AutoTvmTuner, of_autotvm
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Target
from op_profiler.cores import usable_cores
from op_profiler.lean_imports import load_xgboost
from op_profiler.tuning.tuners.tuner import Tuner

if TYPE_CHECKING:
    from op_profiler.tuning.task import Task

_PLAN = 32
"""Number of trials between two trainings of the cost model."""


def knob(task: Task, seed: int) -> Tuner:
    """Return a tuner whose cost model predicts the cost from knob values."""
    return _tuner(task, "knob", "reg")


def itervar(task: Task, seed: int) -> Tuner:
    """Return a tuner with a cost model over features of each loop, for which every point must be lowered."""
    return _tuner(task, "itervar", "reg")


def curve(task: Task, seed: int) -> Tuner:
    """Return a tuner whose cost model predicts the cost from sampled curves of reuse over the loops.

    The context relation features of Chen et al., Learning to Optimize Tensor Programs, NeurIPS 2018.
    """
    return _tuner(task, "curve", "reg")


def rank(task: Task, seed: int) -> Tuner:
    """Return a tuner whose cost model ranks points by features of each loop, with a pairwise objective."""
    return _tuner(task, "itervar", "rank-binary")  # xgboost 2 refuses graded relevance, which plain "rank" hands over


def _tuner(task: Task, features: str, loss: str) -> Tuner:
    tuner = load_tvm().autotvm.tuner
    cost_models: Any = _cost_models()
    mine = of_autotvm(task)

    class CostModel(cost_models.XGBoostCostModel):
        def _reset_pool(self, space: Any, target: Target, task: Any) -> None:
            cost_models._extract_popen_initializer(space, target, task)
            self.pool = _InProcess()

    steps = {"n_iter": 300, "parallel_size": 128} if features == "knob" else {"n_iter": 40, "parallel_size": 16}
    optimizer = tuner.sa_model_optimizer.SimulatedAnnealingOptimizer(
        mine.autotvm, early_stop=30, log_interval=0, **steps
    )
    model = CostModel(
        mine.autotvm, feature_type=features, loss_type=loss, num_threads=usable_cores(), log_interval=None
    )
    return AutoTvmTuner(tuner.model_based_tuner.ModelBasedTuner(mine.autotvm, model, optimizer, _PLAN), mine)


@functools.cache
def _cost_models() -> Any:
    """Return AutoTVM's module of cost models, imported again: its callbacks derive from a class of xgboost, which was
    hidden during the first import (`load_tvm`)."""
    tuner = load_tvm().autotvm.tuner
    load_xgboost()
    return importlib.reload(tuner.xgboost_cost_model)


class _InProcess:
    """Stands in for AutoTVM's pool of processes."""

    def map_with_error_catching(self, function: Any, arguments: Any) -> list[Any]:
        """Apply a function to arguments; where it fails, the result has no value, and the cost model uses zeros."""
        popen_pool = load_tvm().contrib.popen_pool
        MapResult, StatusKind = popen_pool.MapResult, popen_pool.StatusKind
        results = []
        for argument in arguments:
            try:
                results.append(MapResult(StatusKind.COMPLETE, function(argument)))
            except Exception as error:  # noqa: BLE001 - a point that cannot be lowered
                results.append(MapResult(StatusKind.EXCEPTION, error))
        return results
