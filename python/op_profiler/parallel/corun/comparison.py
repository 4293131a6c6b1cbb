"""Comparison of a plan with sequential execution: times of the same rounds, and outputs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.json_text import brief
from op_profiler.parallel.corun.costs import warm_durations_us
from op_profiler.parallel.corun.timing import Load, TimedWays, Way, compare_outputs, in_quiet_rounds, time_in_turn

if TYPE_CHECKING:
    from op_profiler.parallel.corun.collaborate import Collaboration
    from op_profiler.parallel.corun.models import Models
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Plan

_DURATIONS = 21  # rounds in which the operators of a plan are timed
_WALKS = 5  # sequential runs in which operators are timed
_TOLERANCE = 1e-4  # merged kernels and other schedules add in another order


@dataclasses.dataclass(frozen=True)
class PlanRun:
    """Observations of a run of a plan, other than its times.

    Attributes:
        timeline_us: start and end of every operator in one run, shape (nodes, 2).
        durations_us: time of every operator, shape (rounds, nodes); `load`: the background load meanwhile.
        sequential_us: time of every operator of the models as built, one after the other on all cores, shape (their
            nodes,): medians over a few runs, with the call overhead subtracted.
        bound_to: for every core of the plan the core that its lane was bound to, as the system reports it; None: not
            bound.
        threads_used: effective thread count of every operator, shape (nodes,); `ran_on`: the core on which it ended.
        not_recorded: why its kernels were launched one by one; None without launches, or if all were launched as one.
        outputs_equal: whether all outputs equal those of sequential execution bit for bit.
        largest_difference: largest difference between two outputs, divided by the largest value of the sequential one.
    """

    timeline_us: np.ndarray
    durations_us: np.ndarray
    sequential_us: np.ndarray
    load: Load
    bound_to: dict[int, int | None]
    not_recorded: str | None
    threads_used: np.ndarray
    ran_on: np.ndarray
    outputs_equal: bool
    largest_difference: float


@dataclasses.dataclass(frozen=True)
class CorunResult:
    """A plan, and the results of running it.

    Attributes:
        plan: the returned plan, for `models`; `run`: its run.
        baseline: the kernels of the models as built, which sequential execution runs.
        compared: the plan that was timed next to sequential execution: `plan`, or for ``auto`` the best one, if it was
            not faster.
        compared_graph, compared_run: its kernels and its run; those of `plan` if that was timed.
        timed: way 0 is sequential execution, way 1 `compared`.
        tried: candidates that ``auto`` and ``collaborate`` measured: name, predicted and measured microseconds.
        collaboration: for ``collaborate``, the result of tuning in isolation and together.
        notes: notes for the user.
    """

    models: Models
    plan: Plan
    compared: Plan
    compared_graph: KernelGraph
    compared_run: PlanRun
    timed: TimedWays
    run: PlanRun
    baseline: KernelGraph
    tried: tuple[tuple[str, float, float], ...]
    collaboration: Collaboration | None
    notes: tuple[str, ...]

    __repr__ = brief

    @property
    def outputs_equal(self) -> bool:
        """Whether all outputs of `run` equal those of sequential execution bit for bit."""
        return self.run.outputs_equal

    @property
    def largest_difference(self) -> float:
        """Largest difference between outputs of `run` and of sequential execution, relative to the largest value."""
        return self.run.largest_difference

    @property
    def outputs_agree(self) -> bool:
        """Whether the outputs are those of sequential execution, see `outputs_agree`."""
        return outputs_agree(self.plan, self.outputs_equal, self.largest_difference)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for scripts. The times and `speedup` are those of `compared_policy`, even if another
        plan, `policy`, is returned."""
        return {
            "models": list(self.plan.models),
            "policy": self.plan.policy,
            "compared_policy": self.compared.title,
            **self.timed.to_json(),
            "predicted_us": self.compared.predicted_us,
            "outputs_equal": self.outputs_equal,
            "outputs_agree": self.outputs_agree,
            "largest_difference": self.largest_difference,
            "merged": list(self.plan.merged),
            "split": self.plan.split,
            "tried": [{"policy": n, "predicted_us": p, "measured_us": m} for n, p, m in self.tried],
            "tuned_stages": self.collaboration.to_json() if self.collaboration is not None else None,
            "notes": list(self.notes),
            "stages": self._stages(),
        }

    def _stages(self) -> list[Any]:
        """Return the plan's stages, with threads, cores and time of each operator."""
        stages: list[Any] = self.plan.to_json(self.models.graph)["stages"]
        for operator in (o for stage in stages for group in stage for o in group["operators"]):
            start, end = self.run.timeline_us[operator["op"]].tolist()
            operator |= {
                "threads_effective": int(self.run.threads_used[operator["op"]]),
                "core_effective": int(self.run.ran_on[operator["op"]]),
                "start_us": start,
                "end_us": end,
            }
        return stages


def outputs_agree(plan: Plan, equal: bool, largest_difference: float) -> bool:
    """Return whether outputs of a plan are those of sequential execution: equal, or as close as can be expected if the
    kernels are not those of the build."""
    return equal or (not plan.as_built and largest_difference <= _TOLERANCE)


def compare(models: Models, plan: Plan, baseline: Models, rounds: int) -> tuple[TimedWays, PlanRun]:
    """Run sequential execution and a plan in turn.

    Args:
        models: models of the plan.
        baseline: the models as built, which TVM's own executor runs sequentially.

    Returns:
        The times, with sequential execution as way 0 and the plan as way 1, and the other observations of the plan.
    """
    machine, cores, sequential = baseline.machine, len(baseline.cores), baseline.sequential()
    with models.executor(plan) as executor:
        ways = [sequential, Way(lambda: None, executor.run)]
        timed = time_in_turn(ways, rounds=rounds, meter=machine.meter(cores), limits=machine.limits)
        sequential_us = _sequential_us(baseline)  # before the next run of the plan, which binds its lanes again
        sequential.prepare()
        sequential.run()
        expected = [array.copy() for array in baseline.sequential_outputs()]
        executor.run()
        equal, difference = compare_outputs(expected, executor.outputs())
        durations_us, load = in_quiet_rounds(
            lambda _: warm_durations_us(executor),
            rounds=_DURATIONS,
            meter=machine.meter(cores),
            limits=dataclasses.replace(
                machine.limits, repeat_seconds=machine.limits.repeat_seconds - timed.load.repeated_seconds
            ),
        )
        return timed, PlanRun(
            timeline_us=executor.timeline_us(),
            durations_us=np.asarray(durations_us),
            sequential_us=sequential_us,
            load=load,
            bound_to=executor.bound_to(),
            not_recorded=executor.not_recorded(),
            threads_used=executor.threads_used(),
            ran_on=executor.ran_on(),
            outputs_equal=equal,
            largest_difference=difference,
        )


def _sequential_us(baseline: Models) -> np.ndarray:
    """Return the time of every operator, one after the other in graph order."""
    baseline.sequential().prepare()
    overhead = max((model.call_overhead_us() or 0.0 for model in baseline.loaded), default=0.0)
    walks = [
        [us for model in baseline.loaded for us in model.walk("model", [True] * len(model.labels))]
        for _ in range(_WALKS)
    ]
    return np.maximum(np.median(np.asarray(walks), axis=0) - overhead, 0.0)
