"""The section of operators that ran side by side on a page."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.operators.titles import title_of
from op_profiler.option_values import several
from op_profiler.parallel.corun.comparison import outputs_agree
from op_profiler.parallel.corun.timing import NO_INTERVAL
from op_profiler.parallel.planning.plan import placed
from op_profiler.report.page.amounts import time_text
from op_profiler.report.page.several_models import Bar, CorunPart

if TYPE_CHECKING:
    from op_profiler.parallel.corun.comparison import CorunResult


def corun_part(result: CorunResult) -> CorunPart:
    """Return a co-run as the data of a page section: times and timelines of the plan and of sequential execution."""
    plan, timed = result.compared, result.timed
    sequential_us, plan_us = (float(us) for us in timed.median_us[:2])
    not_compared = timed.not_compared(1)
    lane = result.models.lanes.lane
    found = (
        f"The plan ({plan.title}) takes {time_text(plan_us)}, one operator after the other {time_text(sequential_us)}"
    )
    low, high = timed.speedup_interval(1)
    sure = f"{low:.2f} to {high:.2f}, 95 %" if math.isfinite(low) else NO_INTERVAL
    speedup = f": {timed.speedup(1):.2f} times as fast ({sure})." if not_compared is None else "."
    outputs = "The outputs are those of sequential, bit for bit."
    run = result.compared_run
    if not run.outputs_equal:
        agree = outputs_agree(plan, run.outputs_equal, run.largest_difference)
        how = "as other kernels may" if agree else "which is WRONG"
        outputs = f"The outputs differ by {run.largest_difference:.1e} of the largest value, {how}."
    return CorunPart(
        title=" + ".join(plan.models),
        models=list(plan.models),
        policy=plan.title,
        lane=lane,
        verdict=[found + speedup, f"Each was timed {several(len(timed.samples_us), 'round')} in turn. {outputs}"],
        warnings=[
            *([not_compared] if not_compared is not None else []),
            *(["Others used the machine meanwhile: take the times with care."] if timed.load.foreign else []),
            *result.notes,
        ],
        bars=_bars(result),
        sequential=_sequential(result),
        sequential_us=sequential_us,
        plan_us=plan_us,
    )


def _bars(result: CorunResult) -> list[Bar]:
    """Return the bars of one run of the plan."""
    graph = result.compared_graph
    bars = []
    for number, step, cores in placed(result.compared.stages):
        node = graph.nodes[step.node]
        start, end = (round(float(us), 3) for us in result.compared_run.timeline_us[step.node])
        bars.append(
            Bar(
                name=title_of(node.operator.op_names),
                model=node.model,
                anchor=node.operator.anchor,
                lanes=list(cores),
                threads=step.threads,
                stage=number,
                start_us=start,
                end_us=end,
            )
        )
    return bars


def _sequential(result: CorunResult) -> list[Bar]:
    """Return the bars of sequential execution on all lanes of the plan."""
    ends = np.cumsum(np.nan_to_num(result.compared_run.sequential_us))
    lanes = list(result.compared.cores)
    return [
        Bar(
            name=title_of(node.operator.op_names),
            model=node.model,
            anchor=node.operator.anchor,
            lanes=lanes,
            threads=len(lanes),
            stage=node.index,
            start_us=round(float(ends[node.index - 1]), 3) if node.index else 0.0,
            end_us=round(float(ends[node.index]), 3),
        )
        for node in result.baseline.nodes
    ]
