"""Plans that policies make for models, and the choice between them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.errors import ModelError
from op_profiler.parallel.corun.costs import Profile, measure_costs, predicted_costs
from op_profiler.parallel.corun.models import Models, load_models, mergeable, plan_of
from op_profiler.parallel.corun.request import AUTO, COLLABORATE, Announce, CorunRequest
from op_profiler.parallel.corun.timing import Timed, Way, time_in_turn
from op_profiler.parallel.planning.costs import Costs, simulate
from op_profiler.parallel.planning.plan import Plan, Stage
from op_profiler.parallel.planning.policies import POLICIES

if TYPE_CHECKING:
    from op_profiler.parallel.corun.collaborate import Collaboration

_SEVERAL_POLICIES = {AUTO: ("sequential", "threads", "greedy", "ios", "nash"), COLLABORATE: ("greedy", "ios")}
"""Of those that choose between the plans of others: whose."""
_TUNING_SECONDS = 60.0  # for building the kernels to choose from, and again for the search
_MOST_MEASURED = 6
_LONG_BUILD_SECONDS = 240.0
_SHORT_ROUNDS, _MOST_ROUNDS = 21, 101
_CHOICE_SECONDS = 5.0

Tried = tuple[tuple[str, float, float], ...]
"""Of plans that were measured to choose from: name, predicted and measured microseconds."""


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


def candidates_of(request: CorunRequest, models: Models, announce: Announce) -> list[Candidate]:
    """The plan of the policy; of ``auto`` those of several policies, each different plan once."""
    profile: Profile | None = None
    notes: tuple[str, ...] = ()
    if request.costs == "measured":
        announce("measuring the operators")
        profile = measure_costs(models)
        models, costs = dataclasses.replace(models, split=profile.split), profile.costs
    else:
        costs, whose = predicted_costs(models, request.targets[0], request.db, announce)
        notes = (whose,)
    announce("planning")
    found: dict[tuple[Stage, ...], Candidate] = {}
    for name in _SEVERAL_POLICIES.get(request.policy, (request.policy,)):
        stages, more = _planned(name, models, costs, explain=request.policy == name)
        plan = plan_of(models, name, stages, simulate(models.graph, stages, costs).total_us)
        found.setdefault(stages, Candidate(models, plan, profile, notes=(*notes, *more)))
    candidates = list(found.values())
    if request.policy == AUTO:
        candidates += _otherwise_cut(candidates[0])
    if request.policy == COLLABORATE and profile is not None:
        candidates = _tuned(request, models, profile, candidates, announce)
    return candidates


def merged_candidates(request: CorunRequest, models: Models, announce: Announce) -> list[Candidate]:
    """The same for the models with merged operators; none where there is nothing to merge, where it cannot be built, or
    where the build of `models` took minutes: this one would take as long."""
    seconds = sum(one.build_seconds for one in models.compiled)
    if seconds > _LONG_BUILD_SECONDS:
        announce(f"without merged operators, since a build takes {seconds:.0f} s: --merge plans for them alone")
        return []
    requests = request.on(request.targets[0])
    if not mergeable(requests):
        return []
    try:
        merged = load_models(requests, cores=request.cores, merge=True, announce=announce)
    except ModelError as error:
        announce(f"without merged operators: {error}")
        return []
    return candidates_of(request, merged, announce)


def best_of(candidates: Sequence[Candidate], announce: Announce) -> tuple[Candidate, Tried]:
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


def _planned(name: str, models: Models, costs: Costs, *, explain: bool) -> tuple[tuple[Stage, ...], tuple[str, ...]]:
    """The stages of a policy, and what it tells of them."""
    if name == "nash" and explain:
        from op_profiler.parallel.planning.policies.nash import nash_forks, told

        forks = nash_forks(models.graph, costs, models.cores)
        return tuple(fork.stage for fork in forks), (told(forks),)
    return POLICIES.get(name)(models.graph, costs, models.cores), ()


def _otherwise_cut(candidate: Candidate) -> list[Candidate]:
    """The plan with operators cut in the other way, where there is one: which is faster may have changed meanwhile."""
    models, plan, profile = candidate.models, candidate.plan, candidate.profile
    in_order_us = profile.in_order_us if profile is not None else {}
    return [
        Candidate(
            dataclasses.replace(models, split=split),
            dataclasses.replace(plan, split=split, predicted_us=in_order_us.get(split, plan.predicted_us)),
            profile,
            notes=candidate.notes,
        )
        for split in models.splits
        if split != models.split
    ]


def _tuned(
    request: CorunRequest, models: Models, profile: Profile, untuned: Sequence[Candidate], announce: Announce
) -> list[Candidate]:
    """Plans with the operators as they were built, tuned each alone, and tuned together."""
    from op_profiler.parallel.corun.collaborate import collaborate
    from op_profiler.parallel.corun.schedule_proposals import proposals
    from op_profiler.predict.schedules.suggestions import load_trials
    from op_profiler.shipped import shipped_trials

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
