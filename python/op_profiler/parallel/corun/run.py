"""`corun`: makes a plan for models, and measures it next to sequential execution."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from op_profiler.addresses import without_password
from op_profiler.measure.turns import measuring
from op_profiler.option_values import several
from op_profiler.parallel.corun.candidates import PlanCandidate, Tried, best_of, candidates_of, merged_candidates
from op_profiler.parallel.corun.comparison import CorunResult, compare
from op_profiler.parallel.corun.models import Models, in_order, load_models
from op_profiler.parallel.corun.request import AUTO, Announce, CorunRequest
from op_profiler.parallel.corun.several_targets import corun_on_targets
from op_profiler.parallel.corun.storing import record_coruns
from op_profiler.parallel.planning.games import without_pygambit
from op_profiler.parallel.planning.plan import read_plan
from op_profiler.targets.target import locks_of

if TYPE_CHECKING:
    from op_profiler.parallel.corun.several_targets import TargetsResult


def corun(request: CorunRequest, announce: Announce) -> CorunResult | TargetsResult:
    """Run operators side by side on one target, or models on several targets, and compare with sequential execution.

    Args:
        announce: called with the name of each slow step.

    Raises:
        OpProfilerError: a model, a plan, a target or a setting cannot be used; or a kernel fails, which the message
            names.
    """
    request.check()
    if len(request.targets) > 1:
        return corun_on_targets(request, announce)
    return corun_on_one_target(request, announce)


def corun_on_one_target(request: CorunRequest, announce: Announce) -> CorunResult:
    """Load models, measure the operators, plan, choose, and measure the chosen plan next to sequential execution.

    Args:
        request: a request whose method `check` raised nothing.
    """
    request.lanes.check()
    plan = read_plan(request.plan) if request.plan is not None else None
    if plan is not None:
        plan.check_models(tuple(model.name for model in request.models))
    missing = without_pygambit() if plan is None and request.policy in (AUTO, "nash") else ()
    for note in missing:
        announce(note)
    merge = bool(plan.merged) if plan is not None else request.merge
    (target,) = request.targets
    requests = request.on(target)

    def load(merged: bool) -> Models:
        return load_models(requests, cores=request.cores, merge=merged, announce=announce)

    baseline = load(False)
    models = load(True) if merge else baseline
    tried: Tried = ()
    with measuring(locks_of([target]), announce):
        if plan is not None:
            winner = PlanCandidate(models, plan)
        else:
            candidates = candidates_of(request, models, announce)
            if request.policy == AUTO and not merge:
                candidates += merged_candidates(request, baseline, announce)
            winner, tried = best_of(candidates, announce) if len(candidates) > 1 else (candidates[0], ())
        winner = dataclasses.replace(winner, notes=(*missing, *winner.notes))
        return _measured(request, winner, baseline, tried, announce)


def _measured(
    request: CorunRequest, winner: PlanCandidate, baseline: Models, tried: Tried, announce: Announce
) -> CorunResult:
    """Measure the chosen candidate and sequential execution in new rounds, and store the co-runs.

    The rounds in which the candidate was chosen would favour it.
    """
    announce("comparing with sequential")
    notes = [*winner.notes, *(note for one in winner.models.compiled for note in one.notes)]
    timed, run = compare(winner.models, winner.plan, baseline, request.rounds)
    if request.db is not None and winner.profile is None:
        notes.append("co-runs are not stored: the times of operators in isolation were not measured, only predicted")
    if request.db is not None and winner.profile is not None:
        announce("storing co-runs")
        requests = request.on(request.targets[0])
        count = record_coruns(request.db, requests, winner.models, winner.profile, winner.plan, run)
        notes.append(
            f"{several(count, 'group')} of operators that ran side by side: stored in {without_password(request.db)}"
        )
    compared, compared_graph, compared_run = winner.plan, winner.models.graph, run
    if request.policy == AUTO and request.plan is None and not timed.faster(1):
        notes.append(
            f"the best plan ({compared.title}) was not faster than sequential and is not returned: this is one "
            "operator after the other on all cores, as TVM's own executor runs them; the times of operators are of "
            "worker threads"
        )
        winner = PlanCandidate(baseline, in_order(baseline, baseline.thread_counts[-1]))
        run = compare(winner.models, winner.plan, baseline, 1)[1]
    if run.not_recorded is not None:
        notes.append(f"kernels are launched one by one, and not as a graph: {run.not_recorded}")
    strangers = sorted({core for core, bound in run.bound_to.items() if bound != core})
    if strangers:
        notes.append(f"the system did not bind the worker threads of cores {strangers} to them")
    return CorunResult(
        models=winner.models,
        plan=winner.plan,
        compared=compared,
        compared_graph=compared_graph,
        compared_run=compared_run,
        timed=timed,
        run=run,
        baseline=baseline.graph,
        tried=tried,
        collaboration=winner.collaboration,
        notes=tuple(dict.fromkeys(notes)),
    )
