"""What single stages take, measured: for policies that ask for stages rather than for operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from op_profiler.parallel.corun.models import in_order, plan_of
from op_profiler.parallel.runtime.lane_executor import Programme, happens_before, lane_tables, load_side_by_side
from op_profiler.parallel.runtime.lanes import Lanes

if TYPE_CHECKING:
    from op_profiler.parallel.corun.models import Models
    from op_profiler.parallel.planning.plan import Stage


class StageTimer:
    """Runs stages by themselves, over tensors that a run of the whole models has filled; none of them share memory.

    Attributes:
        count: how many stages were measured.
    """

    count: int

    def __init__(self, models: Models, *, rounds: int) -> None:
        self._models = models
        self._rounds = rounds
        nothing_ended = [0] * len(models.graph)
        loaded = load_side_by_side(models.graph, models.compiled, nothing_ended, models.machine.runtime, models.inputs)
        self._kernels = [kernel for model in loaded for kernel in model.kernels]
        self.count = 0
        self._run(in_order(models, 1).stages, 1)

    def us(self, stage: Stage) -> float:
        """Median microseconds from the start of the first operator to the end of the last.

        Raises:
            MeasureError: a kernel fails.
        """
        self.count += 1
        return self._run((stage,), self._rounds)

    def of_all_us(self, stages: tuple[Stage, ...]) -> float:
        """The same for several stages that are run as a plan."""
        return self._run(stages, self._rounds)

    def _run(self, stages: tuple[Stage, ...], rounds: int) -> float:
        plan = plan_of(self._models, "stage", stages)
        programme = Programme(self._models.graph, plan, happens_before(self._models.graph, plan))
        with Lanes(programme.cores, lane_tables(programme, self._kernels), programme.signals) as lanes:
            lanes.run()
            samples = []
            for _ in range(rounds):
                lanes.run()
                times = np.concatenate(lanes.times_us())
                samples.append(times[:, 1].max() - times[:, 0].min())
        return float(np.median(samples))
