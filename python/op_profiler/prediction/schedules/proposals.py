"""Proposed schedules for an operator: those that a ranking expects to be the fastest."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from op_profiler.operators.operator import Operator
from op_profiler.prediction.schedules.ranking import Example, RankingModel, best_of_groups, features_of
from op_profiler.schedules.schedule import Schedule
from op_profiler.tuning.candidate import Candidate
from op_profiler.tuning.task import Task

_DRAWN = 1500
_SIMILAR = 60
_STEPS = 3


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A schedule that a ranking expects to be fast.

    Attributes:
        candidate: the schedule as a task and an index into the search space of the task.
        score: result of `RankingModel.predict`; lower is better.
    """

    candidate: Candidate
    schedule: Schedule
    score: float


def propose(
    anchor: Operator,
    tasks: Sequence[Task],
    model: RankingModel,
    known: Sequence[tuple[str, Mapping[str, Any], float]],
    *,
    count: int,
    threads: int,
    seed: int = 0,
) -> list[Proposal]:
    """Return `count` schedules of an anchor that the ranking expects to be the fastest, the best first.

    The ranking scores random schedules, schedules similar to `known`, and neighbours of the schedules with the best
    scores.

    Args:
        anchor: the operator.
        tasks: one task for each template that can compute the anchor.
        model: the ranking.
        known: good schedules of other operators: template, knobs, and time divided by the best time of that operator.
        count: number of schedules; fewer are returned if the search spaces of the tasks contain fewer.
        threads: thread count of the kernels.
        seed: seed of the random schedules.
    """
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - tasks draw from the global generators
    fields = dataclasses.asdict(anchor)
    found: dict[tuple[str, int], Proposal] = {}

    def score(task: Task, points: set[int]) -> None:
        spec = task.spec
        new = [point for point in points if (spec.template, point) not in found and task.is_valid(point)]
        if not new:
            return
        schedules = [task.schedule(point) for point in new]
        features = [features_of(fields, s.template, dataclasses.asdict(s.factors), threads) for s in schedules]
        for point, schedule, value in zip(new, schedules, model.predict(features)):
            found[spec.template, point] = Proposal(Candidate(spec, point), schedule, float(value))

    for task in tasks:
        template = task.spec.template
        points = {task.random_point() for _ in range(min(_DRAWN, task.size))}
        good = sorted((k for k in known if k[0] == template), key=lambda k: k[2])[:_SIMILAR]
        points |= {point for point in (task.point(knobs, nearest=True) for _, knobs, _ in good) if point is not None}
        score(task, points)
        for _ in range(_STEPS):
            mine = sorted((p for (t, _), p in found.items() if t == template), key=lambda p: p.score)
            starts = [p.candidate.index for p in mine[:_SIMILAR] if p.candidate.index is not None]
            score(task, {task.neighbour(start) for start in starts for _ in range(6)})
    return _diverse(sorted(found.values(), key=lambda p: p.score), count)


def _diverse(ranked: list[Proposal], count: int) -> list[Proposal]:
    """Return the first `count` proposals, without those that differ from an earlier one in at most one knob.

    If there are too few of these, the first of the other proposals are added.
    """
    chosen: list[Proposal] = []
    for proposal in ranked:
        if len(chosen) == count:
            break
        if all(_differences(proposal.schedule, other.schedule) > 1 for other in chosen):
            chosen.append(proposal)
    return chosen + [p for p in ranked if p not in chosen][: count - len(chosen)]


def _differences(one: Schedule, other: Schedule) -> int:
    if one.template != other.template:
        return len(one.knobs)
    return sum(1 for name, value in one.knobs.items() if other.knobs.get(name) != value)


def good_schedules(
    rows: Sequence[Mapping[str, Any]], data: Sequence[Example], share: float = 1.3
) -> list[tuple[str, Mapping[str, Any], float]]:
    """Return the trials whose time is at most `share` times the best time of their group.

    Args:
        rows: rows of the flat table, in the order of `data`.
        data: the trials.

    Returns:
        template, knobs, and time divided by the best time of the group, for each of these trials.
    """
    best = best_of_groups(data)
    return [
        (str(row["template"]), row["knobs"], example.latency_us / best[example.group])
        for row, example in zip(rows, data)
        if example.latency_us <= share * best[example.group]
    ]
