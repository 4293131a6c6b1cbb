"""A run of a plan as a trace that Perfetto (https://ui.perfetto.dev) and chrome://tracing open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Plan


def chrome_trace(graph: KernelGraph, plan: Plan, timeline_us: np.ndarray, *, lane: str = "core") -> dict[str, Any]:
    """The trace, in the JSON object format of the Trace Event Format; times are in microseconds.

    Args:
        timeline_us: start and end of every node, shape (nodes, 2).
        lane: what the cores of the plan are called.
    """
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"{' + '.join(plan.models)} ({plan.policy})"}}
    ]
    events += [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": core, "args": {"name": f"{lane} {core}"}}
        for core in plan.cores
    ]
    for number, stage in enumerate(plan.stages):
        for group in stage.groups:
            for step in group.steps:
                node = graph.nodes[step.node]
                start, end = timeline_us[step.node]
                arguments = {
                    "op": node.index,
                    "model": graph.models[node.model],
                    "anchor": node.operator.anchor,
                    "operator_key": node.operator.key,
                    "threads": step.threads,
                    "stage": number,
                }
                events += [
                    {
                        "name": node.name.removeprefix("tvmgen_default_"),
                        "cat": graph.models[node.model],
                        "ph": "X",
                        "pid": 0,
                        "tid": core,
                        "ts": round(float(start), 3),
                        "dur": round(float(end - start), 3),
                        "args": arguments,
                    }
                    for core in group.cores[: step.threads]
                ]
    return {"traceEvents": events, "displayTimeUnit": "ns"}
