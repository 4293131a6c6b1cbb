"""Tunes operators that run side by side together: how they divide the cores, and which schedule each of them has.

Every operator has a few schedules to choose from. First each operator is tuned in isolation: all its schedules are
measured at every thread count while no other operator runs, and a plan is made from the best latencies, with the
schedules that belong to them. From this plan, a coordinate descent varies two things whose effect measurements in
isolation cannot show:

- the stages: one group after the other on all cores, or groups side by side with each split of the cores;
- the schedules of operators that run beside others, beginning with the operators that were slowed down most when copies
  of the models ran side by side. A schedule is judged by the core time of its operator and of all operators beside it,
  so that a schedule that is fast only at the cost of its neighbours does not win.

All times are from whole runs of the models, so that each operator runs between its neighbours and on its own tensors.
One run tries one choice for every stage, or for all operators that do not run beside each other, so the number of runs
does not depend on the size of the models. Choices are measured alternately, and a choice replaces another only if the
95 % confidence interval of their differences shows that it is faster.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.parallel.corun.costs import warm_durations_us, warm_timeline_us
from op_profiler.parallel.corun.models import in_order, plan_of
from op_profiler.parallel.corun.timing import in_quiet_rounds, surely_fastest
from op_profiler.parallel.planning.costs import Costs, simulate
from op_profiler.parallel.planning.plan import Stage, Step
from op_profiler.parallel.planning.policies import POLICIES
from op_profiler.parallel.planning.policies.stage_costs import StageCosts

if TYPE_CHECKING:
    from op_profiler.parallel.corun.costs import Profile
    from op_profiler.parallel.corun.models import Models
    from op_profiler.parallel.runtime.executor import Executor
    from op_profiler.schedules.schedule import Schedule

_ROUNDS, _FEWEST_ROUNDS = 15, 7
_PASSES = 2
_WAYS = 4

Stages = tuple[Stage, ...]
_Choices = tuple["Schedule | None", ...]
_Schedules = Mapping[int, "Schedule | None"]


@dataclasses.dataclass(frozen=True)
class Collaboration:
    """Result of `collaborate`.

    Attributes:
        alone: the plan of operators that were tuned in isolation.
        jointly: the plan after joint tuning; its stages contain the same operators as those of `alone`, in another
            arrangement or with other schedules. Equal to `alone` if `alone` was not slower.
        predicted_us: predicted time of `alone`, microseconds.
        alone_us, jointly_us: time of each stage of `alone` and `jointly`, measured alternately, microseconds. The time
            of a stage begins when all stages before it have ended.
        profile: costs of the models as built, with times in isolation under the other schedules.
        foreign_load: whether rounds of the search were kept in spite of background load.
    """

    alone: Stages
    jointly: Stages
    predicted_us: float
    alone_us: tuple[float, ...]
    jointly_us: tuple[float, ...]
    profile: Profile
    foreign_load: bool

    @property
    def shared(self) -> tuple[int, ...]:
        """Return the numbers of the stages in which operators run side by side in at least one of the two plans."""
        pairs = enumerate(zip(self.alone, self.jointly, strict=True))
        return tuple(number for number, pair in pairs if any(len(stage.groups) > 1 for stage in pair))

    def to_json(self) -> list[dict[str, float]]:
        """Return the times of the `shared` stages as JSON-serializable dictionaries."""
        return [{"stage": i, "alone_us": self.alone_us[i], "jointly_us": self.jointly_us[i]} for i in self.shared]


def collaborate(
    models: Models, profile: Profile, schedules: Mapping[str, Sequence[Schedule]], *, seconds: float
) -> Collaboration:
    """Tune the operators of models in isolation, and then together.

    Args:
        profile: measured costs of the models as they were built.
        schedules: further schedules to choose from, by the compiler's hash of the operator (`Kernel.label`).
        seconds: time limit, after which the search begins no further measurement.

    Raises:
        PlanError: an operator cannot be built with one of its schedules.
        MeasureError: a kernel fails.
    """
    search = _Search(models, profile, schedules, time.monotonic() + seconds)
    alone = search.tuned_alone()
    jointly = alone
    for _ in range(_PASSES):
        before = jointly
        jointly = search.with_better_schedules(search.with_better_stages(jointly))
        if jointly == before:
            break
    alone_us, jointly_us = np.median(search.stages_us(alone, jointly), axis=0).tolist()
    if sum(jointly_us) >= sum(alone_us):
        jointly, jointly_us = alone, alone_us
    predicted_us = simulate(models.graph, alone, search.costs).total_us
    return Collaboration(
        alone,
        jointly,
        predicted_us,
        tuple(alone_us),
        tuple(jointly_us),
        dataclasses.replace(profile, tuned_us=search.tuned_us),
        search.foreign_load,
    )


class _Search:
    """State of a joint tuning: it measures choices and decides between them.

    Attributes:
        costs: costs with the latency of each operator's best schedule at each thread count.
        tuned_us: samples of every operator in isolation with every schedule except that of the build, microseconds.
        foreign_load: whether rounds were kept in spite of background load.
    """

    costs: Costs
    tuned_us: dict[Step, np.ndarray]
    foreign_load: bool

    def __init__(
        self, models: Models, profile: Profile, schedules: Mapping[str, Sequence[Schedule]], end: float
    ) -> None:
        self._models = models
        self._end = end
        self._patience_seconds = models.machine.limits.repeat_seconds  # budget of all comparisons together
        self.foreign_load = False
        self.tuned_us = {}
        self._choices: list[_Choices] = [(None, *schedules.get(label, ())) for label in models.labels]
        self._best, latency_us = self._measured_alone(sorted(profile.alone_us))
        self.costs = dataclasses.replace(profile.costs, latency_us=latency_us)
        self._stage_costs = StageCosts(models.graph, self.costs, models.cores)
        self._slowed_us = np.zeros(len(models.graph))
        if profile.together_us.size:
            self._slowed_us = np.median(profile.together_us, axis=0).max(axis=0) - profile.costs.latency_us[1]

    def tuned_alone(self) -> Stages:
        """Return a plan from the latencies of operators tuned in isolation, with the schedules that belong to them.

        The plan is the better one of the policies ``greedy`` and ``ios``.
        """
        graph, cores = self._models.graph, self._models.cores
        plans = [POLICIES.get(name)(graph, self.costs, cores) for name in ("greedy", "ios")]
        best = min(plans, key=lambda stages: simulate(graph, stages, self.costs).total_us)
        return _scheduled(best, {step.node: self._best[step.threads][step.node] for step in _steps(best)})

    def with_better_stages(self, stages: Stages) -> Stages:
        """Return a copy of a plan in which every stage has the fastest arrangement that was measured."""
        ways = [self._ways(stage) for stage in stages]
        best = list(stages)
        for number in range(max(map(len, ways), default=0)):
            if time.monotonic() > self._end:
                break
            tried = [some[number] if number < len(some) else stage for some, stage in zip(ways, best)]
            samples_us = self.stages_us(tuple(best), tuple(tried))
            places = [surely_fastest(samples_us[:, :, stage], 0) for stage in range(len(best))]
            best = [(old, new)[place] for old, new, place in zip(best, tried, places)]
        return tuple(best)

    def with_better_schedules(self, stages: Stages) -> Stages:
        """Return a copy of a plan in which every operator that runs beside others has its best schedule.

        The best schedule has the least core time of the operator and of the operators beside it.
        """
        chosen = {step.node: step.schedule for step in _steps(stages)}
        threads = np.array([count for _, count in sorted((step.node, step.threads) for step in _steps(stages))])
        with self._models.executor(plan_of(self._models, "collaborate", stages)) as executor:
            beside = self._in_rounds(lambda: _beside(warm_timeline_us(executor))).mean(axis=0) > 0.5
            order = sorted(range(len(threads)), key=lambda node: (-self._slowed_us[node], node))
            order = [node for node in order if len(self._choices[node]) > 1 and beside[node].sum() > 1]
            for batch in batches(order, beside):
                if time.monotonic() > self._end:
                    break
                core_us = self._durations_us(executor, chosen, batch) * threads
                for node in batch:
                    choices = self._choices[node]
                    around_us = core_us[:, : len(choices)] @ beside[node]
                    chosen[node] = choices[surely_fastest(around_us, choices.index(chosen[node]))]
        return _scheduled(stages, chosen)

    def stages_us(self, *plans: Stages) -> np.ndarray:
        """Run plans alternately; return the times of their stages in microseconds, shape (rounds, plans, stages)."""
        with contextlib.ExitStack() as stack:
            executors = [
                stack.enter_context(self._models.executor(plan_of(self._models, "collaborate", stages)))
                for stages in plans
            ]
            return self._in_rounds(
                lambda: [_stages_us(warm_timeline_us(executor), stages) for executor, stages in zip(executors, plans)]
            )

    def _measured_alone(self, counts: Sequence[int]) -> tuple[dict[int, _Choices], dict[int, np.ndarray]]:
        """Measure all schedules in isolation; return each node's best schedule, and its latency, by thread count.

        Args:
            counts: thread counts.
        """
        everything = list(range(len(self._choices)))
        with contextlib.ExitStack() as stack:
            executors = [stack.enter_context(self._models.executor(in_order(self._models, n))) for n in counts]
            by_count = self._in_rounds(
                lambda: [self._durations_once_us(executor, {}, everything) for executor in executors]
            ).swapaxes(0, 1)
        best, latency_us = {}, {}
        for threads, samples_us in zip(counts, by_count, strict=True):
            places = [surely_fastest(samples_us[:, : len(c), node], 0) for node, c in enumerate(self._choices)]
            best[threads] = tuple(choices[place] for choices, place in zip(self._choices, places))
            latency_us[threads] = np.median(samples_us, axis=0)[places, everything]
            self.tuned_us |= {
                Step(node, threads, choice): samples_us[:, number, node]
                for node, choices in enumerate(self._choices)
                for number, choice in enumerate(choices)
                if choice is not None
            }
        return best, latency_us

    def _durations_us(self, executor: Executor, chosen: _Schedules, batch: Sequence[int]) -> np.ndarray:
        """Time all operators while the operators of a batch use each of their schedules, one after the other.

        Returns:
            Times in microseconds, shape (rounds, choices, nodes).
        """
        return self._in_rounds(lambda: self._durations_once_us(executor, chosen, batch))

    def _durations_once_us(self, executor: Executor, chosen: _Schedules, batch: Sequence[int]) -> np.ndarray:
        rows = []
        for number in range(max(len(self._choices[node]) for node in batch)):
            new = {node: self._choices[node][number] for node in batch if number < len(self._choices[node])}
            executor.use(self._models.functions({**chosen, **new}))
            rows.append(warm_durations_us(executor))
        return np.array(rows)

    def _ways(self, stage: Stage) -> list[Stage]:
        """Return the best few other arrangements of a stage.

        An operator keeps its schedule if its thread count does not change; otherwise it gets its best schedule in
        isolation at the new thread count.
        """
        there = {(step.node, step.threads): step.schedule for step in stage.steps}
        ways: list[Stage] = []
        for way in self._stage_costs.ways(sum(1 << step.node for step in stage.steps)):
            own = {
                step.node: there.get((step.node, step.threads), self._best[step.threads][step.node])
                for step in way.steps
            }
            if _arrangement(way) != _arrangement(stage):
                ways += _scheduled((way,), own)
        return ways[:_WAYS]

    def _in_rounds(self, one_round: Callable[[], object]) -> np.ndarray:
        """Return the samples of the rounds of one comparison, shape (rounds, ...); few rounds after the time limit."""
        machine, cores = self._models.machine, self._models.cores
        samples, load = in_quiet_rounds(
            lambda _: one_round(),
            rounds=_ROUNDS,
            meter=machine.meter(len(cores)),
            limits=dataclasses.replace(machine.limits, repeat_seconds=self._patience_seconds),
            fewest=_FEWEST_ROUNDS,
            until=self._end,
        )
        self._patience_seconds -= load.repeated_seconds
        self.foreign_load |= load.foreign
        return np.array(samples)


def batches(order: Sequence[int], beside: np.ndarray) -> list[list[int]]:
    """Divide operators into batches whose schedules can be varied in the same run.

    No two operators of a batch run at the same time, and no operator runs beside two operators of a batch.

    Args:
        order: nodes of the operators, the most important first.
        beside: whether two nodes run at the same time, shape (nodes, nodes); True for a node and itself.
    """
    found: list[tuple[set[int], list[int]]] = []
    for node in order:
        near = set(np.flatnonzero(beside[node]).tolist())
        touched, members = next((batch for batch in found if not batch[0] & near), (set[int](), []))
        if not members:
            found.append((touched, members))
        touched |= near
        members.append(node)
    return [members for _, members in found]


def _arrangement(stage: Stage) -> set[object]:
    """Return which operators use which cores with how many threads, independent of their order."""
    return {(group.cores, frozenset((step.node, step.threads) for step in group.steps)) for group in stage.groups}


def _beside(timeline_us: np.ndarray) -> np.ndarray:
    start, end = timeline_us.T
    return (start[:, None] < end[None, :]) & (start[None, :] < end[:, None]) | np.eye(len(start), dtype=bool)


def _stages_us(timeline_us: np.ndarray, stages: Stages) -> np.ndarray:
    ends = [timeline_us[[step.node for step in stage.steps], 1].max() for stage in stages]
    return np.diff(np.maximum.accumulate(ends), prepend=0.0)


def _steps(stages: Stages) -> Iterable[Step]:
    return (step for stage in stages for step in stage.steps)


def _scheduled(stages: Stages, schedules: _Schedules) -> Stages:
    """Return a copy of stages with these schedules, given by node."""
    return tuple(
        Stage(
            tuple(
                dataclasses.replace(
                    group, steps=tuple(dataclasses.replace(step, schedule=schedules[step.node]) for step in group.steps)
                )
                for group in stage.groups
            )
        )
        for stage in stages
    )
