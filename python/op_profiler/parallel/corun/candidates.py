"""Creates candidate plans for models with the planning policies, and chooses the fastest of them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.errors import ModelError, OpProfilerError
from op_profiler.parallel.corun.collaborate import collaborate
from op_profiler.parallel.corun.contention import GAINS, SharedParts
from op_profiler.parallel.corun.costs import Profile, measure_costs, predicted_costs
from op_profiler.parallel.corun.models import Models, load_models, mergeable, plan_of
from op_profiler.parallel.corun.request import AUTO, COLLABORATE, Announce, CorunRequest
from op_profiler.parallel.corun.timing import TimedWays, Way, time_in_turn
from op_profiler.parallel.planning.costs import Costs, simulate
from op_profiler.parallel.planning.plan import Plan, PlanError, Stage
from op_profiler.parallel.planning.policies import POLICIES
from op_profiler.parallel.planning.policies.nash import games_sentence, nash_forks
from op_profiler.prediction.schedules.proposals import good_schedules, propose
from op_profiler.prediction.schedules.ranking import RankingModel, examples
from op_profiler.prediction.schedules.suggestions import load_trials
from op_profiler.schedules.schedule import OWN_TEMPLATE, UNKNOWN, Schedule
from op_profiler.shipped import shipped_trials

if TYPE_CHECKING:
    from op_profiler.parallel.corun.collaborate import Collaboration

_SEVERAL_POLICIES = {AUTO: ("sequential", "threads", "greedy", "ios", "nash"), COLLABORATE: ("greedy", "ios")}
"""For policies that choose between plans of several policies: the names of these policies."""
_TUNING_SECONDS = 60.0  # for building the schedule variants, and again for the search
_MOST_MEASURED = 6
_LONG_BUILD_SECONDS = 240.0
_SHORT_ROUNDS, _MOST_ROUNDS = 21, 101
_CHOICE_SECONDS = 5.0

Tried = tuple[tuple[str, float, float], ...]
"""Measured candidates: title of the plan, predicted and measured time in microseconds."""


_EACH = 3


@dataclasses.dataclass(frozen=True)
class PlanCandidate:
    """A candidate plan and the models that it runs.

    Attributes:
        profile: measured costs that the plan is based on; None if it is based on predictions or was read from a file.
        collaboration: result of the joint tuning that the plan is from; None without joint tuning.
        notes: notes for the user on the plan.
    """

    models: Models
    plan: Plan
    profile: Profile | None = None
    collaboration: Collaboration | None = None
    notes: tuple[str, ...] = ()


def candidates_of(request: CorunRequest, models: Models, announce: Announce) -> list[PlanCandidate]:
    """Return the candidate plan of the requested policy, or several distinct ones for ``auto`` and ``collaborate``."""
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
    found: dict[tuple[Stage, ...], PlanCandidate] = {}
    for name in _SEVERAL_POLICIES.get(request.policy, (request.policy,)):
        stages, more = _planned(name, models, costs, explain=request.policy == name)
        plan = plan_of(models, name, stages, simulate(models.graph, stages, costs).total_us)
        found.setdefault(stages, PlanCandidate(models, plan, profile, notes=(*notes, *more)))
    candidates = list(found.values())
    if request.policy == AUTO:
        candidates += _otherwise_cut(candidates[0])
    if profile is not None and request.policy == COLLABORATE:
        candidates = _tuned(request, models, profile, candidates, announce)
    if profile is not None and request.policy == AUTO and _gains_together(models, candidates):
        try:
            candidates = _tuned(request, models, profile, candidates, announce)
        except OpProfilerError as error:
            announce(f"operators are not tuned together: {error}")
    return candidates


def merged_candidates(request: CorunRequest, models: Models, announce: Announce) -> list[PlanCandidate]:
    """Build the models with merged operators, and return the candidate plans for them.

    Returns:
        An empty list if no operators can be merged, if the merged models cannot be built, or if building `models` took
        minutes, because building the merged models would take as long.
    """
    seconds = sum(one.build_seconds for one in models.compiled)
    if seconds > _LONG_BUILD_SECONDS:
        announce(
            f"without merged operators, since a build takes {seconds:.0f} s: --merge plans for merged operators only"
        )
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


def best_of(candidates: Sequence[PlanCandidate], announce: Announce) -> tuple[PlanCandidate, Tried]:
    """Time the candidates with the lowest predicted times alternately; return the fastest, and the times of all.

    Sequential plans, with operators cut by blocks and by rows, are always measured: they depend least on costs, which
    change from minute to minute on a shared host.
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
    """Return the stages that a policy plans, and notes about them.

    Args:
        explain: whether to describe the games of the policy ``nash`` in a note.
    """
    if name == "nash" and explain:
        forks = nash_forks(models.graph, costs, models.cores)
        return tuple(fork.stage for fork in forks), (games_sentence(forks),)
    return POLICIES.get(name)(models.graph, costs, models.cores), ()


def _otherwise_cut(candidate: PlanCandidate) -> list[PlanCandidate]:
    """Return the same plan with operators cut in the other way (by blocks or by rows), in a list; empty without one.

    The other way may have become faster since the costs were measured.
    """
    models, plan, profile = candidate.models, candidate.plan, candidate.profile
    in_order_us = profile.in_order_us if profile is not None else {}
    return [
        PlanCandidate(
            dataclasses.replace(models, split=split),
            dataclasses.replace(plan, split=split, predicted_us=in_order_us.get(split, plan.predicted_us)),
            profile,
            notes=candidate.notes,
        )
        for split in models.splits
        if split != models.split
    ]


def _gains_together(models: Models, candidates: Sequence[PlanCandidate]) -> bool:
    """Return whether operators that run side by side in any candidate compete for one of the resources in `GAINS`."""
    if models.lanes.only_measured:
        return False
    operators = [node.operator for node in models.graph.nodes]
    stages = (stage for candidate in candidates for stage in candidate.plan.stages)
    return not GAINS.isdisjoint(SharedParts.of(models.cores).contentions(operators, stages))


def _tuned(
    request: CorunRequest, models: Models, profile: Profile, untuned: Sequence[PlanCandidate], announce: Announce
) -> list[PlanCandidate]:
    """Return the untuned plans, a plan of operators tuned in isolation, and a plan of operators tuned together."""
    announce("building the best few schedules of each operator")
    rows = load_trials(request.db, shipped_trials(), announce)
    rows = [row for row in rows if row["device_kind"] == models.machine.device.kind]
    schedules = proposals(models, profile.costs.latency_us[1], rows, seconds=_TUNING_SECONDS)
    announce("tuning operators in isolation and together")
    found = collaborate(models, profile, schedules, seconds=_TUNING_SECONDS)
    plans = {
        found.alone: ("tuned in isolation", found.predicted_us),
        found.jointly: (COLLABORATE, sum(found.jointly_us)),
    }
    tuned = [PlanCandidate(models, plan_of(models, name, stages, us)) for stages, (name, us) in plans.items()]
    notes = ("others used the machine while operators were tuned",) if found.foreign_load else ()
    return [
        dataclasses.replace(one, profile=found.profile, collaboration=found, notes=notes) for one in (*untuned, *tuned)
    ]


def _time(candidates: Sequence[PlanCandidate]) -> TimedWays:
    """Time the plans alternately, in rounds."""
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


def proposals(
    models: Models, latency_us: np.ndarray, rows: Sequence[Mapping[str, Any]], *, seconds: float
) -> dict[str, tuple[Schedule, ...]]:
    """Choose the best few schedules of each operator by a ranking model fitted to trials; build and return them.

    Args:
        latency_us: latency of each node, microseconds, shape (nodes,); operators with the largest total come first.
        rows: trials as rows of the flat table, measured on the same kind of device.
        seconds: time after which no further operator is considered.

    Returns:
        Schedules by the compiler's hash of an operator (`Kernel.label`), without the schedule of the build and without
        schedules that cannot be built or compute wrong values.

    Raises:
        OpProfilerError: there are too few trials.
    """
    own = next((task.spec.template for label in models.labels for task in models.variants.tasks(label)), OWN_TEMPLATE)
    endings = (
        OWN_TEMPLATE,
        f".{own.rpartition('.')[2]}",
    )  # templates of Relay, whose trials are included, and of the compiler in use
    rows = [row for row in rows if str(row["template"]).endswith(endings)]
    data = examples(rows)
    try:
        model = RankingModel.train(data)
    except ValueError as error:
        raise OpProfilerError(f"{error}; tune some models first (op-profiler collect --iftune true)") from error
    good = good_schedules(rows, data)
    weight_us: dict[str, float] = {}
    for label, latency in zip(models.labels, latency_us, strict=True):
        weight_us[label] = weight_us.get(label, 0.0) + float(latency)
    found: dict[str, tuple[Schedule, ...]] = {}
    started = time.monotonic()
    for label in sorted(weight_us, key=lambda label: (-weight_us[label], label)):
        if time.monotonic() - started > seconds:
            break
        tasks = models.variants.tasks(label)
        if not tasks:
            continue
        occurrence = models.variants.occurrence(label)
        anchor = compiler_in_use().anchor(occurrence)
        ranked = propose(anchor, tasks, model, good, count=_EACH, threads=len(models.cores))
        built = models.schedules.get(occurrence.operator.key, UNKNOWN)
        others = [
            p.schedule for p in ranked if (p.schedule.template, p.schedule.knobs) != (built.template, built.knobs)
        ]
        found[label] = tuple(schedule for schedule in others if _works(models, label, schedule))
    return found


def _works(models: Models, label: str, schedule: Schedule) -> bool:
    try:
        models.variants.function(label, schedule)
    except PlanError:
        return False
    return True
