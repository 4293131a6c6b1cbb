"""Compares a plan with sequential execution: times from the same rounds, and outputs."""

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
    """Observations from runs of a plan, except for its total time.

    Attributes:
        timeline_us: start and end of every operator in one run, microseconds, shape (nodes, 2).
        durations_us: time of every operator, microseconds, shape (rounds, nodes).
        sequential_us: time of every operator of the models as built, one after the other on all cores, microseconds,
            shape (nodes of the models as built,): medians over a few runs, with the call overhead subtracted.
        load: background load while `durations_us` was measured.
        bound_to: for every core of the plan, the core that its lane was bound to, as the system reports it; None if the
            lane was not bound.
        not_recorded: on a GPU, why the kernels were launched one by one and not as a recorded CUDA graph; None if they
            were launched as a graph, and on a processor.
        threads_used: effective thread count of every operator, shape (nodes,).
        ran_on: core on which every operator ended (on a GPU: its stream), shape (nodes,).
        outputs_equal: whether all outputs equal those of sequential execution bit for bit.
        largest_difference: largest difference between an output and that of sequential execution, divided by the
            largest value of the sequential output.
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

    With the policy ``auto``, the best plan is not returned if it was not faster than sequential execution: `plan` is
    then a sequential plan, and `compared` is the best plan. Otherwise `compared` is `plan`.

    Attributes:
        models: the models that `plan` runs.
        plan: the returned plan.
        compared: the plan that was timed next to sequential execution.
        compared_graph, compared_run: kernels and run of `compared`.
        timed: times from the same rounds; way 0 is sequential execution, way 1 is `compared`.
        run: run of `plan`.
        baseline: the kernels of the models as built, which sequential execution runs.
        tried: candidates that ``auto`` and ``collaborate`` measured: title, predicted and measured microseconds.
        collaboration: result of tuning operators together; None if they were not tuned together.
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
        """Largest difference between an output of `run` and of sequential execution, relative to the largest value."""
        return self.run.largest_difference

    @property
    def outputs_agree(self) -> bool:
        """Whether the outputs of `run` are equal or close enough to those of sequential execution (`outputs_agree`)."""
        return outputs_agree(self.plan, self.outputs_equal, self.largest_difference)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary of the result.

        Times and ``speedup`` are those of `compared`, whose title is in ``compared_policy``, even if another plan is
        returned, whose policy is in ``policy``.
        """
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
        """Return the plan's stages as JSON-serializable values, with threads, core and times of each operator."""
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
    """Return whether the outputs of a plan agree with those of sequential execution.

    If all kernels of the plan are those of the build, outputs must be equal; otherwise they may differ by `_TOLERANCE`.

    Args:
        equal: whether the outputs are equal bit for bit.
        largest_difference: largest difference of the outputs, relative to the largest value.
    """
    return equal or (not plan.as_built and largest_difference <= _TOLERANCE)


def compare(models: Models, plan: Plan, baseline: Models, rounds: int) -> tuple[TimedWays, PlanRun]:
    """Time sequential execution and a plan alternately, and compare their outputs.

    Args:
        models: models of the plan.
        baseline: the models as built, which TVM's own executor runs sequentially.
        rounds: number of rounds.

    Returns:
        The times, with sequential execution as way 0 and the plan as way 1, and other observations of the plan's runs.
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
    """Return the time of every operator in sequential execution, microseconds, shape (nodes,)."""
    baseline.sequential().prepare()
    overhead = max((model.call_overhead_us() or 0.0 for model in baseline.loaded), default=0.0)
    walks = [
        [us for model in baseline.loaded for us in model.walk("model", [True] * len(model.labels))]
        for _ in range(_WALKS)
    ]
    return np.maximum(np.median(np.asarray(walks), axis=0) - overhead, 0.0)
