"""Tuners of AutoTVM without a cost model, and the adapter that all of its tuners share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.relay.search_task import AutoTvmTask
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import UsageError
from op_profiler.tuning.tuners.tuner import Tuner

if TYPE_CHECKING:
    from op_profiler.tuning.candidate import TrialResult
    from op_profiler.tuning.task import Task

_POPULATION = 50
_FAILED_SECONDS = 1e9  # AutoTVM's cost of a failure


class AutoTvmTuner:
    """A `Tuner` that delegates to one of AutoTVM's tuners.

    Args:
        tuner: `autotvm.tuner.Tuner` of the task's `autotvm`.
    """

    def __init__(self, tuner: Any, task: AutoTvmTask) -> None:
        self._tuner = tuner
        self._task = task

    def has_next(self) -> bool:
        """Return whether AutoTVM's tuner has points left."""
        return bool(self._tuner.has_next())

    def next_batch(self, count: int) -> Sequence[int]:
        """Return the points of the next candidates: an index of AutoTVM's space is the point of the task."""
        return [int(config.index) for config in self._tuner.next_batch(count)]

    def update(self, points: Sequence[int], results: Sequence[TrialResult]) -> None:
        """Pass the samples to AutoTVM's tuner in seconds; a failure costs 1e9 s, as in AutoTVM."""
        measure, task = load_tvm().autotvm.measure, self._task.autotvm
        now = time.time()
        inputs = [measure.MeasureInput(task.target, task, task.config_space.get(point)) for point in points]
        answers = []
        for result in results:
            if result.samples_us:
                costs = tuple(us / 1e6 for us in result.samples_us)
                answers.append(measure.MeasureResult(costs, 0, result.build_seconds, now))
            else:
                error = measure.MeasureErrorNo.RUNTIME_DEVICE
                answers.append(measure.MeasureResult((_FAILED_SECONDS,), error, 0.0, now))
        self._tuner.update(inputs, answers)


def of_autotvm(task: Task) -> AutoTvmTask:
    """Return a task with the type `AutoTvmTask`; reject tasks of other compilers.

    Raises:
        UsageError: the task belongs to another compiler.
    """
    if not isinstance(task, AutoTvmTask):
        raise UsageError("this tuner is AutoTVM's, for --compiler relay; give --tuner trees, random or gridsearch")
    return task


def genetic(task: Task, seed: int) -> Tuner:
    """Return a tuner with AutoTVM's genetic algorithm over knob values, with a population of at most 50.

    Raises:
        UsageError: the task belongs to another compiler.
    """
    tuner = load_tvm().autotvm.tuner
    mine = of_autotvm(task)
    return AutoTvmTuner(tuner.GATuner(mine.autotvm, pop_size=min(_POPULATION, len(mine.autotvm.config_space))), mine)


def droplet(task: Task, seed: int) -> Tuner:
    """Return a tuner with Droplet Search: descent along the knobs from the first point of the space; may end early.

    Canesche et al., The Droplet Search Algorithm for Kernel Scheduling, ACM TACO 2024.

    Raises:
        UsageError: the task belongs to another compiler.
    """
    tuner = load_tvm().autotvm.tuner
    mine = of_autotvm(task)
    return AutoTvmTuner(tuner.DropletTuner(mine.autotvm), mine)
