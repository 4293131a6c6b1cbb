"""AutoTVM's own searches that need no cost model."""

from __future__ import annotations

from typing import Any

from op_profiler.tuning.tuners.tuner import Tuner

_POPULATION = 50


def genetic(task: Any, seed: int) -> Tuner:
    from tvm.autotvm import tuner

    found: Tuner = tuner.GATuner(task, pop_size=min(_POPULATION, len(task.config_space)))
    return found


def random(task: Any, seed: int) -> Tuner:
    from tvm.autotvm import tuner

    found: Tuner = tuner.RandomTuner(task)
    return found


def grid(task: Any, seed: int) -> Tuner:
    from tvm.autotvm import tuner

    found: Tuner = tuner.GridSearchTuner(task)
    return found


def droplet(task: Any, seed: int) -> Tuner:
    from tvm.autotvm import tuner

    found: Tuner = tuner.DropletTuner(task)
    return found
