"""The search strategies by name: AutoTVM's, with seeds, and with what TVM 0.19 needs under newer libraries."""

from __future__ import annotations

import random
from typing import Any

from op_profiler.compilers.relay.tvm_build import load_tvm
from op_profiler.cores import usable_cores
from op_profiler.errors import UnknownNameError

TUNERS = ("xgb_knob", "xgb", "xgb-rank", "xgb_itervar", "xgb_curve", "ga", "random", "gridsearch", "droplet")
_XGB = {
    # name: (features, loss)
    "xgb": ("itervar", "reg"),
    "xgb-rank": ("itervar", "rank-binary"),  # xgboost 2 refuses graded relevance, which plain "rank" hands over
    "xgb_knob": ("knob", "reg"),
    "xgb_itervar": ("itervar", "reg"),
    "xgb_curve": ("curve", "reg"),
}
_PLAN = 32
"""Trials between two trainings of the cost model."""
_POPULATION = 50


def make_tuner(name: str, task: Any, seed: int) -> Any:
    """An `autotvm.tuner.Tuner`; the same seed gives the same proposals for the same results.

    Raises:
        UnknownNameError: no such tuner.
    """
    if name not in TUNERS:
        raise UnknownNameError("tuner", name, TUNERS)
    load_tvm()
    import numpy as np
    from tvm.autotvm import tuner

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - AutoTVM draws from the global generators
    if name in _XGB:
        return _xgb_tuner(task, *_XGB[name])
    if name == "ga":
        return tuner.GATuner(task, pop_size=min(_POPULATION, len(task.config_space)))
    if name == "random":
        return tuner.RandomTuner(task)
    if name == "gridsearch":
        return tuner.GridSearchTuner(task)
    return tuner.DropletTuner(task)


def _xgb_tuner(task: Any, features: str, loss: str) -> Any:
    """AutoTVM's XGBTuner with features computed in this process.

    AutoTVM starts new processes for them at every training, which takes seconds and loses templates that are not TVM's.
    Features other than knobs need every point lowered, so the search over them takes fewer steps.
    """
    from tvm.autotvm.tuner import xgboost_cost_model
    from tvm.autotvm.tuner.model_based_tuner import ModelBasedTuner
    from tvm.autotvm.tuner.sa_model_optimizer import SimulatedAnnealingOptimizer

    class CostModel(xgboost_cost_model.XGBoostCostModel):
        def _reset_pool(self, space: Any, target: Any, task: Any) -> None:
            xgboost_cost_model._extract_popen_initializer(space, target, task)
            self.pool = _InProcess()

    steps = {"n_iter": 300, "parallel_size": 128} if features == "knob" else {"n_iter": 40, "parallel_size": 16}
    optimizer = SimulatedAnnealingOptimizer(task, early_stop=30, log_interval=0, **steps)
    model = CostModel(task, feature_type=features, loss_type=loss, num_threads=usable_cores(), log_interval=None)
    return ModelBasedTuner(task, model, optimizer, _PLAN)


class _InProcess:
    """Stands in for AutoTVM's pool of processes."""

    def map_with_error_catching(self, function: Any, arguments: Any) -> list[Any]:
        """Apply a function; an argument that it fails for has no value, and the cost model takes zeros for it."""
        from tvm.contrib.popen_pool import MapResult, StatusKind

        results = []
        for argument in arguments:
            try:
                results.append(MapResult(StatusKind.COMPLETE, function(argument)))
            except Exception as error:  # noqa: BLE001 - a point that cannot be lowered
                results.append(MapResult(StatusKind.EXCEPTION, error))
        return results
