"""From models and a policy to a plan that was measured beside running one operator after the other."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.c_compiler import compiler
from op_profiler.errors import ModelError, UnknownNameError, UsageError
from op_profiler.measure.turns import locks_of, measuring
from op_profiler.parallel.collaborate import Collaboration, collaborate
from op_profiler.parallel.comparison import CorunResult, compare
from op_profiler.parallel.loaded_models import Models, load_models, mergeable
from op_profiler.parallel.measured_costs import Profile, in_order, measure_costs, plan_of
from op_profiler.parallel.planning.costs import Costs, simulate
from op_profiler.parallel.planning.games import without_pygambit
from op_profiler.parallel.planning.plan import Plan, Stage, read_plan
from op_profiler.parallel.planning.policies import POLICIES
from op_profiler.parallel.stored_coruns import record_coruns
from op_profiler.parallel.timing import Timed, Way, time_in_turn

if TYPE_CHECKING:
    from op_profiler.collection.request import CollectRequest

AUTO, COLLABORATE = "auto", "collaborate"
CHOICES = (*(name for name in POLICIES if name != "exhaustive"), "exhaustive", COLLABORATE, AUTO)
COSTS = ("measured", "predicted")
AUTO_POLICIES = ("sequential", "threads", "greedy", "ios", "nash")
_UNTUNED_POLICIES = ("greedy", "ios")
_TUNING_SECONDS = 60.0  # for building the kernels to choose from, and again for the search
_MOST_MEASURED = 6
_LONG_BUILD_SECONDS = 240.0
_SHORT_ROUNDS, _MOST_ROUNDS = 21, 101
_CHOICE_SECONDS = 5.0

Announce = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorunRequest:
    """What to run side by side, and how.

    Attributes:
        models: one or several, all for the same target (for several see `op_profiler.parallel.several_targets`).
        policy: one of `CHOICES`.
        plan: file of a plan that was made before; the policy is then not asked.
        cores: that a plan may use; for cuda the number of its streams.
        merge: plan for the models with parallel operators merged into one kernel; ``auto`` tries both.
        costs: ``measured`` on this machine, or ``predicted`` from a dataset.
        db: dataset that costs are predicted from (None: the one that ships), and that measured co-runs are stored in.
        rounds: how often the plan and sequential are timed.
    """

    models: tuple[CollectRequest, ...]
    policy: str = AUTO
    plan: Path | None = None
    cores: int
    merge: bool = False
    costs: str = "measured"
    db: str | None = None
    rounds: int = 40

    def check(self) -> None:
        """Refuse what cannot work.

        Raises:
            UsageError: an option is out of range; names what it may be.
        """
        if self.policy not in CHOICES:
            raise UnknownNameError("policy", self.policy, CHOICES)
        if self.costs not in COSTS:
            raise UnknownNameError("costs", self.costs, COSTS)
        if self.policy == COLLABORATE and self.costs != "measured":
            raise UsageError("the policy collaborate measures what it tunes: leave --costs at measured")
        if self.rounds < 1:
            raise UsageError(f"--rounds {self.rounds} is out of range; give 1 or more")
        if self.models[0].kind.on_gpu:
            self._check_gpu()
        for request in self.models:
            request.check()

    def _check_gpu(self) -> None:
        if self.policy == COLLABORATE:
            raise UsageError("--policy collaborate tunes for processors; for cuda take one of the others")
        if self.costs != "measured" or self.db is not None:
            raise UsageError("for cuda, costs are measured and co-runs are not stored: leave out --costs and --db")


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A plan and the models that it was made for.

    Attributes:
        profile: what it was made from; None where that was predictions, a file, or other kernels.
        collaboration: the tuning that it is a part of.
    """

    models: Models
    plan: Plan
    profile: Profile | None = None
    collaboration: Collaboration | None = None
    notes: tuple[str, ...] = ()


def corun(request: CorunRequest, announce: Announce) -> CorunResult:
    """Plan, run and compare.

    Raises:
        OpProfilerError: a model, a plan or a setting stands in the way; or a kernel fails in a stage, with its name.
    """
    request.check()
    if not request.models[0].kind.on_gpu:
        compiler()  # says what is missing, before minutes of building
    plan = read_plan(request.plan) if request.plan is not None else None
    if plan is not None:
        plan.check_models(tuple(one.model.name for one in request.models))
    missing = without_pygambit() if plan is None and request.policy in (AUTO, "nash") else ()
    for note in missing:
        announce(note)
    merge = bool(plan.merged) if plan is not None else request.merge

    def load(merged: bool) -> Models:
        return load_models(request.models, cores=request.cores, merge=merged, announce=announce)

    baseline = load(False)
    models = load(True) if merge else baseline
    tried: tuple[tuple[str, float, float], ...] = ()
    with measuring(locks_of([request.models[0].target]), announce):
        if plan is not None:
            winner = Candidate(models, plan)
        else:
            candidates = candidates_of(request, models, announce)
            if request.policy == AUTO and not merge:
                candidates += merged_candidates(request, baseline, announce)
            winner, tried = best_of(candidates, announce) if len(candidates) > 1 else (candidates[0], ())
        winner = dataclasses.replace(winner, notes=(*missing, *winner.notes))
        return _measured(request, winner, baseline, tried, announce)


def candidates_of(request: CorunRequest, models: Models, announce: Announce) -> list[Candidate]:
    """The plan of the policy; of ``auto`` those of several policies, each different plan once."""
    profile = None
    if request.costs == "measured":
        announce("measuring the operators")
        profile = measure_costs(models)
        models = dataclasses.replace(models, split=profile.split)
    from op_profiler.parallel.planning.policies.nash import nash_forks, told

    costs = profile.costs if profile is not None else predicted_costs(request, models, announce)
    announce("planning")
    found: dict[tuple[Stage, ...], Candidate] = {}
    policies = {AUTO: AUTO_POLICIES, COLLABORATE: _UNTUNED_POLICIES}
    for name in policies.get(request.policy, (request.policy,)):
        notes: tuple[str, ...] = ()
        if request.policy == "nash":
            forks = nash_forks(models.graph, costs, models.cores)
            stages, notes = tuple(fork.stage for fork in forks), (told(forks),)
        else:
            stages = POLICIES.get(name)(models.graph, costs, models.cores)
        predicted_us = simulate(models.graph, stages, costs).total_us
        plan = plan_of(models, name, stages, predicted_us)
        found.setdefault(stages, Candidate(models, plan, profile, notes=notes))
    candidates = list(found.values())
    if request.policy == AUTO:
        candidates += _otherwise_cut(candidates[0])
    if request.policy == COLLABORATE and profile is not None:
        candidates = _tuned(request, models, profile, candidates, announce)
    return candidates


def _otherwise_cut(candidate: Candidate) -> list[Candidate]:
    """The plan with operators cut in the other way, where there is one: which is faster may have changed meanwhile."""
    models, plan, profile = candidate.models, candidate.plan, candidate.profile
    in_order_us = profile.in_order_us if profile is not None else {}
    return [
        Candidate(
            dataclasses.replace(models, split=split),
            dataclasses.replace(plan, split=split, predicted_us=in_order_us.get(split, plan.predicted_us)),
            profile,
        )
        for split in models.splits
        if split != models.split
    ]


def merged_candidates(request: CorunRequest, models: Models, announce: Announce) -> list[Candidate]:
    """The same for the models with merged operators; none where there is nothing to merge, where it cannot be built, or
    where the build of `models` took minutes: this one would take as long."""
    seconds = sum(one.build_seconds for one in models.compiled)
    if seconds > _LONG_BUILD_SECONDS:
        announce(f"without merged operators, since a build takes {seconds:.0f} s: --merge plans for them alone")
        return []
    if not mergeable(request.models):
        return []
    try:
        merged = load_models(request.models, cores=request.cores, merge=True, announce=announce)
    except ModelError as error:
        announce(f"without merged operators: {error}")
        return []
    return candidates_of(request, merged, announce)


def _tuned(
    request: CorunRequest, models: Models, profile: Profile, untuned: Sequence[Candidate], announce: Announce
) -> list[Candidate]:
    """Plans with the operators as they were built, tuned each alone, and tuned together."""
    from op_profiler.parallel.schedule_proposals import proposals
    from op_profiler.predict.schedules.suggestions import load_trials
    from op_profiler.shipped import shipped_trials

    if models.on_gpu:
        raise UsageError("the policy collaborate has no schedules for a GPU; use another, or --target llvm")
    announce("building the best few schedules of each operator")
    rows = load_trials(request.db, shipped_trials(), announce)
    rows = [row for row in rows if row["device_kind"] == models.machine.device.kind]
    schedules = proposals(models, profile.costs.latency_us[1], rows, seconds=_TUNING_SECONDS)
    announce("tuning operators alone and together")
    found = collaborate(models, profile, schedules, seconds=_TUNING_SECONDS)
    plans = {found.alone: ("tuned alone", found.predicted_us), found.jointly: (COLLABORATE, sum(found.jointly_us))}
    tuned = [Candidate(models, plan_of(models, name, stages, us)) for stages, (name, us) in plans.items()]
    notes = ("others used the machine while operators were tuned",) if found.foreign_load else ()
    return [
        dataclasses.replace(one, profile=found.profile, collaboration=found, notes=notes) for one in (*untuned, *tuned)
    ]


def predicted_costs(request: CorunRequest, models: Models, announce: Announce) -> Costs:
    """What a dataset says of the operators."""
    from op_profiler.predict.latency.open_predictor import open_predictor

    predictor = open_predictor("default", db=request.db, note=announce)
    counts = [count for count in predictor.thread_counts if count <= len(models.cores)]
    return Costs.from_predictor(predictor, models.graph, threads=counts)


def best_of(
    candidates: Sequence[Candidate], announce: Announce
) -> tuple[Candidate, tuple[tuple[str, float, float], ...]]:
    """Measure those that are predicted best, in turn, and take the fastest.

    Those of ``auto`` that run nothing side by side, cut by blocks and by rows, depend least on costs, which on a shared
    host are not the same from one minute to the next: they are always among them.
    """
    always = [one.plan.policy == "sequential" and one.plan.merged == candidates[0].plan.merged for one in candidates]
    few = [one for one, must in zip(candidates, always, strict=True) if must]
    others = [one for one, must in zip(candidates, always, strict=True) if not must]
    few += sorted(others, key=lambda one: one.plan.predicted_us or 0.0)[: _MOST_MEASURED - len(few)]
    announce(f"measuring {len(few)} plans")
    timed = _time(few)
    tried = tuple(
        (c.plan.title, float(c.plan.predicted_us or 0.0), float(us)) for c, us in zip(few, timed.median_us, strict=True)
    )
    return few[int(np.argmin(timed.median_us))], tried


def _time(candidates: Sequence[Candidate]) -> Timed:
    """The plans in turn."""
    models = candidates[0].models
    with contextlib.ExitStack() as stack:
        executors = [stack.enter_context(c.models.executor(c.plan)) for c in candidates]
        return time_in_turn(
            [Way(lambda: None, executor.run) for executor in executors],
            rounds=_MOST_ROUNDS,
            meter=models.machine.meter(len(models.cores)),
            limits=models.machine.limits,
            fewest=_SHORT_ROUNDS,
            until=time.monotonic() + _CHOICE_SECONDS,
        )


def _measured(
    request: CorunRequest,
    winner: Candidate,
    baseline: Models,
    tried: tuple[tuple[str, float, float], ...],
    announce: Announce,
) -> CorunResult:
    """The winner beside sequential, in fresh rounds: those that chose it favour it."""
    announce("comparing with sequential")
    notes = [*winner.notes, *(note for one in winner.models.compiled for note in one.notes)]
    timed, run = compare(winner.models, winner.plan, baseline, request.rounds)
    if request.db is not None and winner.profile is None:
        notes.append("co-runs are not stored: what operators take alone was not measured, only predicted or not asked")
    if request.db is not None and winner.profile is not None:
        announce("storing co-runs")
        count = record_coruns(request.db, request.models, winner.models, winner.profile, winner.plan, run)
        notes.append(f"{count} groups of operators that ran side by side are in {request.db}")
    compared = winner.plan
    if request.policy == AUTO and request.plan is None and not timed.faster(1):
        notes.append(
            f"the best plan ({compared.title}) was not faster than sequential and is not returned: this is one "
            "operator after the other on all cores, as TVM's own executor runs them; the operators' times are of lanes"
        )
        winner = Candidate(baseline, in_order(baseline, baseline.thread_counts[-1]))
        run = compare(winner.models, winner.plan, baseline, 1)[1]
    strangers = sorted({core for core, bound in run.bound_to.items() if bound != core})
    if strangers:
        notes.append(f"the system did not bind the lanes of cores {strangers} to them")
    return CorunResult(
        models=winner.models,
        plan=winner.plan,
        compared=compared,
        timed=timed,
        run=run,
        tried=tried,
        collaboration=winner.collaboration,
        notes=tuple(dict.fromkeys(notes)),
    )
