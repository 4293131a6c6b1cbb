"""`OperatorSearch`: a search for the schedule of an operator.

A tuner proposes candidates and a runner measures them, until the requested number of trials is reached.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Target
from op_profiler.schedules.records import Record, computation_of
from op_profiler.schedules.schedule import Schedule
from op_profiler.tuning.candidate import Candidate, Runner, TaskSpec, TrialResult
from op_profiler.tuning.task import Config, Task
from op_profiler.tuning.tuners import TUNERS
from op_profiler.tuning.tuners.tuner import Tuner

_BATCH = 16
_FINALISTS = 5
_FINAL_ROUNDS = 15
_NO_POINT = -1
"""Index in a record for a schedule that is not a point of a space: the schedule that a template uses without a record.
"""

Known = Callable[[TaskSpec], Mapping[str, TrialResult]]
"""Function that returns the results of earlier searches for a task, by the key of the schedule."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """One candidate that was tried.

    Attributes:
        candidate: task and point.
        schedule: schedule of the candidate.
        result: samples or failure.
        new: whether the candidate was measured in this search; False: the result is from an earlier search.
    """

    candidate: Candidate
    schedule: Schedule
    result: TrialResult
    new: bool = True


@dataclasses.dataclass(frozen=True)
class Finalist:
    """One of the best candidates, a default schedule or the champion, measured alternately with the other finalists.

    Attributes:
        candidate: task and point.
        schedule: schedule of the candidate.
        result: samples of the alternating measurement.
        config: the point in the form of schedule records.
    """

    candidate: Candidate
    schedule: Schedule
    result: TrialResult
    config: Config


@dataclasses.dataclass(frozen=True)
class Search:
    """Result of a search.

    Attributes:
        trials: trials in the order in which they were made; the template's default schedule, if it has one, is the
            first.
        finalists: the fastest first; empty if nothing could be measured.
    """

    trials: tuple[Trial, ...]
    finalists: tuple[Finalist, ...]

    @property
    def default(self) -> Finalist | None:
        """The finalist with the default schedule of a template; None if no default schedule has a time."""
        return next((f for f in self.finalists if f.candidate.index is None), None)

    def best_after(self, count: int) -> float | None:
        """Return the median time of the best of the first `count` trials in microseconds; None if all trials failed."""
        best = min((t.result.median_us for t in self.trials[:count]), default=float("inf"))
        return best if best != float("inf") else None


class OperatorSearch:
    """A search of the spaces of all templates that can compute one operator.

    If there are several templates, each first gets a quarter of the trials; the other trials go to the template with
    the best candidate.

    Args:
        tasks: one task for each template.
        target: target of the kernels.
        runner: builds and measures candidates.
        tuner: name of the tuner, one of `TUNERS`.
        trials: number of trials, without those of default schedules.
        seed: seed of the tuners.
        defaults: tasks whose default schedules are measured for comparison.
        champion: the schedule in use so far, which is always measured next to the finalists; None: there is none.
        known: function that returns results of earlier searches.
        on_trial: called with every trial, new or known, as soon as its result exists.
    """

    def __init__(
        self,
        tasks: Sequence[TaskSpec],
        target: Target,
        runner: Runner,
        *,
        tuner: str,
        trials: int,
        seed: int = 0,
        defaults: Sequence[TaskSpec] = (),
        champion: Candidate | None = None,
        known: Known = lambda task: {},
        on_trial: Callable[[Trial], None] = lambda trial: None,
    ) -> None:
        self._target = target
        self._runner = runner
        self._count = trials
        self._known = known
        self._on_trial = on_trial
        self._defaults = defaults
        self._champion = champion
        self._spaces = [_Space(task, target, tuner, seed + number) for number, task in enumerate(tasks)]
        self._tasks = {space.spec: space.task for space in self._spaces}
        self._first_share = trials / 4 if len(self._spaces) > 1 else 0
        self._memory: dict[TaskSpec, dict[str, TrialResult]] = {}
        self._trials: list[Trial] = []

    def run(self) -> Search:
        """Search, and return the trials and finalists.

        A known result counts as a trial, so an interrupted search resumes where it stopped.
        """
        for spec in self._defaults:
            self._tasks[spec] = self._tasks.get(spec) or compiler_in_use().task(spec, self._target)
            schedule = self._tasks[spec].default()
            self._try([(Candidate(spec, None), schedule)])
        started = len(self._trials)
        while (left := self._count - (len(self._trials) - started)) > 0:
            space = self._next_space()
            if space is None:
                break
            behind = math.ceil(self._first_share - space.tried)
            self._batch(space, min(_BATCH, left, behind if behind > 0 else _BATCH))
        return Search(tuple(self._trials), self._final())

    def _next_space(self) -> _Space | None:
        open_spaces = [space for space in self._spaces if not space.exhausted and space.tuner.has_next()]
        if not open_spaces:
            return None
        behind = [space for space in open_spaces if space.tried < self._first_share]
        if behind:
            return min(behind, key=lambda space: space.tried)
        return min(open_spaces, key=lambda space: space.best_us)

    def _batch(self, space: _Space, count: int) -> None:
        points = space.tuner.next_batch(count)
        if not points:  # `has_next` was true, but the tuner has no more points
            space.exhausted = True
            return
        candidates = [(Candidate(space.spec, point), space.task.applied(point)) for point in points]
        results = self._try(candidates)
        space.learn(points, results)

    def _try(self, candidates: list[tuple[Candidate, Schedule]]) -> list[TrialResult]:
        """Return the results of candidates of one task; a candidate whose schedule has a known result is not
        measured."""
        spec = candidates[0][0].task
        if spec not in self._memory:
            self._memory[spec] = dict(self._known(spec))
        memory = self._memory[spec]
        new = [c for c, schedule in candidates if schedule.key not in memory]
        best = min((t.result.median_us for t in self._trials), default=float("inf"))
        measured = iter(self._runner.run(new, best) if new else ())
        results = []
        for candidate, schedule in candidates:
            known = memory.get(schedule.key)
            result = known if known is not None else next(measured)
            trial = Trial(candidate, schedule, result, known is None)
            self._trials.append(trial)
            self._on_trial(trial)
            results.append(result)
        memory |= {schedule.key: result for (_, schedule), result in zip(candidates, results)}
        return results

    def _final(self) -> tuple[Finalist, ...]:
        """Measure the best candidates again, alternately, and return them, the fastest first.

        They are measured again because the best of many noisy times is too low by chance. The default schedules, the
        champion and the best candidate of every template are always included; a default schedule only once, although it
        is also a point of some spaces.
        """
        timed = [t for t in self._trials if t.result.samples_us]
        defaults = {(t.candidate.task, t.schedule.key) for t in timed if t.candidate.index is None}
        points = [t for t in timed if t.candidate.index is None or (t.candidate.task, t.schedule.key) not in defaults]
        ranked = sorted(points, key=lambda t: t.result.median_us)
        chosen = ranked[:_FINALISTS]
        for spec in self._tasks:
            chosen += [t for t in ranked if t.candidate.task == spec and t not in chosen][:1]
        chosen += [t for t in ranked if t.candidate.index is None and t not in chosen]
        if not chosen:
            return ()
        schedules = {t.candidate: t.schedule for t in chosen}
        champion = self._champion
        if champion is not None and champion not in schedules and champion.index is not None:
            schedule = self._tasks[champion.task].applied(champion.index)
            if (champion.task, schedule.key) not in defaults:
                schedules[champion] = schedule
        results = self._runner.compare(list(schedules), _FINAL_ROUNDS)
        finalists = [
            Finalist(candidate, schedule, result, self._tasks[candidate.task].config(candidate.index))
            for (candidate, schedule), result in zip(schedules.items(), results)
            if result.error is None
        ]
        return tuple(sorted(finalists, key=lambda f: f.result.median_us))


class _Space:
    """One template's space and the tuner that proposes its points."""

    def __init__(self, spec: TaskSpec, target: Target, tuner: str, seed: int) -> None:
        self.spec = spec
        self.task = compiler_in_use().task(spec, target)
        self.tuner = make_tuner(tuner, self.task, seed)
        self.tried = 0
        self.exhausted = False
        self.best_us = float("inf")

    def learn(self, points: Sequence[int], results: Sequence[TrialResult]) -> None:
        """Pass the results of the tuner's last proposals to the tuner."""
        self.best_us = min([self.best_us, *(result.median_us for result in results)])
        self.tuner.update(points, results)
        self.tried += len(results)


def candidate_of(record: Record, specs: Iterable[TaskSpec], target: Target) -> Candidate | None:
    """Return the candidate that a record describes; None if the record fits no task, or the space lacks the point.

    Args:
        specs: tasks that the record may belong to.
    """
    for spec in specs:
        mine = spec.template, computation_of(spec.template, spec.arguments)
        if mine != (record.template, record.computation):
            continue
        if int(record.config.get("index", _NO_POINT)) == _NO_POINT:
            return Candidate(spec, None)
        point = compiler_in_use().task(spec, target).point(record.knobs)
        return Candidate(spec, point) if point is not None else None
    return None


def make_tuner(name: str, task: Task, seed: int) -> Tuner:
    """Return the tuner with a name for a task; set the seeds of Python's and numpy's global generators.

    Raises:
        UnknownNameError: there is no tuner of this name.
        UsageError: the tuner does not support this compiler.
    """
    factory = TUNERS.get(name)
    load_tvm()
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    return factory(task, seed)
