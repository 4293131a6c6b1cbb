"""Schedules that are worth trying for the operators of a plan."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.errors import OpProfilerError
from op_profiler.parallel.planning.plan import PlanError
from op_profiler.predict.schedules.proposals import good_schedules, propose
from op_profiler.predict.schedules.ranking import RankingModel, examples
from op_profiler.schedules.schedule import OWN_TEMPLATE, UNKNOWN, Schedule

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.parallel.corun.models import Models

_EACH = 3


def proposals(
    models: Models, latency_us: np.ndarray, rows: Sequence[Mapping[str, Any]], *, seconds: float
) -> dict[str, tuple[Schedule, ...]]:
    """The best few schedules of the operators by a ranking that is learned from trials; they are built already.

    Args:
        latency_us: of each node, shape (nodes,): operators that take longer in sum come first.
        rows: trials of the flat table, made on this kind of device.
        seconds: after which no further operator is looked at.

    Returns:
        By the compiler's hash of an operator (`Kernel.label`); what cannot be built or computes something else is left
        out.

    Raises:
        OpProfilerError: there are too few trials.
    """
    own = next((task.spec.template for label in models.labels for task in models.variants.tasks(label)), OWN_TEMPLATE)
    endings = (OWN_TEMPLATE, f".{own.rpartition('.')[2]}")  # of Relay, whose trials ship, and of the compiler in use
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
