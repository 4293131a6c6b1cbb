"""Results of ``op-profiler corun``: tables, JSON and traces."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler import json_text
from op_profiler.files import write_whole
from op_profiler.operators.titles import title_of
from op_profiler.parallel.corun.child import CorunAnswer
from op_profiler.parallel.corun.comparison import CorunResult
from op_profiler.parallel.corun.request import CorunRequest
from op_profiler.parallel.corun.timing import NO_INTERVAL
from op_profiler.parallel.planning.plan import placed
from op_profiler.report.page.amounts import half_width, us_text
from op_profiler.report.page.coruns import corun_part
from op_profiler.report.page.report import report_of, write_report
from op_profiler.report.tables import numbers, print_line, screen, show_table, texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from rich.console import Console

    from op_profiler.fleet.jobs import EndedTask
    from op_profiler.parallel.corun.several_targets import TargetsResult
    from op_profiler.parallel.corun.timing import TimedWays
    from op_profiler.parallel.planning.graph import KernelGraph
    from op_profiler.parallel.planning.plan import Plan


def report_result(
    result: CorunResult | TargetsResult,
    *,
    quiet: bool,
    json_file: Path | None,
    plan_file: Path | None,
    trace_file: Path | None,
    report_file: Path | None = None,
) -> None:
    """Print the results, and write the requested files.

    Args:
        quiet: print the summary only.
        json_file: ``-`` for standard output; nothing else is printed then.
        plan_file, trace_file, report_file: files to write about a plan; ignored if `result` is a `TargetsResult`.

    Raises:
        OpProfilerError: a file cannot be written.
    """
    text = json_text.dumps(result, indent=1)
    if str(json_file) == "-":
        print(text)
    elif quiet:
        print(summary(result))
    else:
        console = screen()
        if isinstance(result, CorunResult):
            _show_plan(console, result)
        else:
            _show_targets(console, result)
        print_line(console, summary(result))
    if json_file is not None and str(json_file) != "-":
        write_whole(json_file, text + "\n")
    if not isinstance(result, CorunResult):
        return
    if plan_file is not None:
        write_whole(plan_file, json_text.dumps(result.plan.to_json(result.models.graph), indent=1) + "\n")
    if trace_file is not None:
        events = chrome_trace(result.models.graph, result.plan, result.run.timeline_us, lane=result.models.lanes.lane)
        write_whole(trace_file, json_text.dumps(events) + "\n")
    if report_file is not None:
        write_report(report_file, report_of(coruns=[corun_part(result)]))


def summary(result: CorunResult | TargetsResult) -> str:
    """Return a text with the predicted and measured times, and whether the outputs equal those of sequential
    execution."""
    if not isinstance(result, CorunResult):
        return _summary_of_targets(result)
    return _comparison(result, "sequential", f"plan ({result.compared.title})", result.compared.predicted_us)


def _show_plan(console: Console, result: CorunResult) -> None:
    """Print the stages of the plan with the time of each operator."""
    plan, graph = result.plan, result.models.graph
    rows = []
    for number, step, cores in placed(plan.stages):
        start, end = result.run.timeline_us[step.node]
        operator = graph.nodes[step.node].operator
        output = "x".join(map(str, operator.outputs[0].shape)) if operator.outputs else ""
        owner = f"{graph.models[graph.nodes[step.node].model]}: " if len(graph.models) > 1 else ""
        own = f" ({step.schedule.template})" if step.schedule is not None else ""
        times = f"{start:.1f}", f"{end - start:.1f}"
        name = f"{owner}{title_of(operator.op_names)}{own}"
        rows.append([str(number), ",".join(map(str, cores)), str(step.threads), *times, name, output])
    headings = [
        *numbers("stage", f"{result.models.lanes.lane}s", "threads", "start, us", "us"),
        *texts("operator"),
        *numbers("output", rank=1),
    ]
    show_table(console, f"{' + '.join(plan.models)}: plan of {plan.title}", headings, rows)
    for policy, predicted, measured in result.tried:
        print_line(console, f"tried: {policy}: predicted {predicted:.1f} us, measured {measured:.1f} us")
    for tuned in result.collaboration.to_json() if result.collaboration is not None else ():
        both = f"tuned in isolation {us_text(tuned['alone_us'])} us, jointly {us_text(tuned['jointly_us'])} us"
        print_line(console, f"stage {tuned['stage']}: {both}")


def _show_targets(console: Console, result: TargetsResult) -> None:
    """Print a row for each model with its latency on each target, including transfers."""
    rows = [
        [model, *(f"{latency:.1f}" for latency in row)]
        for model, row in zip(result.models, result.outcome.load_us, strict=True)
    ]
    headings = [*texts("model"), *numbers(*result.targets)]
    show_table(console, f"{' + '.join(result.models)}: us in isolation", headings, rows)


def _summary_of_targets(result: TargetsResult) -> str:
    """Return the target of each model, the equilibria of the choice of targets, the times, and whether the outputs
    equal those on one target."""
    outcome = result.outcome
    placed = [
        p.target + (f" (cores {','.join(map(str, p.cores))})" if p.cores else "") + f": {', '.join(p.models)}"
        for p in result.placements
    ]
    found = "in all" if outcome.exact else "found by best responses"
    prices = "the optimum of so large a game is not computed"
    if outcome.price_of_stability is not None:
        prices = f"price of the best {outcome.price_of_stability:.3f}"
    if outcome.price_of_anarchy is not None:
        prices += f", of the worst {outcome.price_of_anarchy:.3f}"
    names = f"all on {result.sequential.target}", f"side by side ({result.policy})"
    return "\n".join(
        [
            *placed,
            f"equilibria {found}: {outcome.equilibria}; {prices}",
            _comparison(result, *names, result.predicted_us),
        ]
    )


def _comparison(result: CorunResult | TargetsResult, first: str, second: str, predicted_us: float | None) -> str:
    """Return the times of two named ways to run the models, and whether the second has the outputs of the first."""
    timed = result.timed
    not_compared = timed.not_compared(1)
    speedup = f"speed-up {timed.speedup(1):.3f}{_interval(timed.speedup_interval(1), 3) or f' ({NO_INTERVAL})'}"
    lines = [
        f"{first} {_us(timed, 0)}; {second} {_us(timed, 1)}"
        + (f", predicted {predicted_us:.1f} us" if predicted_us is not None else ""),
        f"{speedup if not_compared is None else 'no speed-up'}, {len(timed.samples_us)} rounds in turn"
        + ("; under background load" if timed.load.foreign else ""),
        *([] if not_compared is None else [not_compared]),
    ]
    if result.outputs_equal:
        lines.append(f"outputs equal those of {first}, bit for bit")
    else:
        verdict = "as kernels that add in another order may" if result.outputs_agree else "WRONG"
        lines.append(f"outputs differ by {result.largest_difference:.1e} of the largest value: {verdict}")
    return "\n".join([*lines, *(f"note: {note}" for note in result.notes)])


def _interval(interval: tuple[float, float], digits: int) -> str:
    low, high = interval
    return f" ({low:.{digits}f} to {high:.{digits}f}, 95 %)" if math.isfinite(low) else ""


def _us(timed: TimedWays, way: int) -> str:
    low, high = timed.interval_us(way)
    half_us = half_width(low, high)
    interval = f" ({us_text(low, half_us)} to {us_text(high, half_us)}, 95 %)" if math.isfinite(low) else ""
    return f"{us_text(timed.median_us[way], half_us)} us{interval}"


def report_sweep(found: Sequence[EndedTask], *, quiet: bool, json_file: Path | None) -> int:
    """Print the results of co-runs on the machines of a cluster as a table with a row per task, and failures on stderr;
    write the results as a JSON list.

    Args:
        quiet: print no table.
        json_file: as in `report_result`.

    Returns:
        The exit code: the largest of all tasks.
    """
    rows = [_of_machine(ended) for ended in found]
    text = json_text.dumps([row for row, _ in rows], indent=1)
    if str(json_file) == "-":
        print(text)
    elif not quiet:
        _show_sweep([row for row, _ in rows])
    if json_file is not None and str(json_file) != "-":
        write_whole(json_file, text + "\n")
    for row, _ in rows:
        if row["error"] is not None:
            print(f"error: {row['asked_policy']} on {row['machine'] or 'no machine'}: {row['error']}", file=sys.stderr)
    return max((code for _, code in rows), default=0)


def _of_machine(ended: EndedTask) -> tuple[dict[str, Any], int]:
    """Return the result of a task, and its exit code."""
    answer = ended.answer if isinstance(ended.answer, CorunAnswer) else CorunAnswer(None, ended.error, ended.error_code)
    asked = ended.task.request
    assert isinstance(asked, CorunRequest)
    row = {
        "machine": ended.machine.host if ended.machine is not None else None,
        "models": [model.name for model in asked.models],
        "asked_policy": asked.policy,
        "error": answer.error,
        **(answer.result or {}),
    }
    return row, answer.error_code if answer.error is not None else int(not row["outputs_agree"])


def _show_sweep(rows: Sequence[Mapping[str, Any]]) -> None:
    table = []
    for row in rows:
        if row["error"] is None:
            speedup = row["speedup"]
            low, high = row["speedup_interval"] or (-math.inf, math.inf)
            sure = _interval((low, high), 3) or f" ({NO_INTERVAL})"
            times = f"{row['sequential_us']:.1f}", f"{row['plan_us']:.1f}", f"{speedup:.3f}{sure}" if speedup else "-"
            outputs = "equal" if row["outputs_equal"] else f"error {row['largest_difference']:.1e}"
            outputs += "" if row["outputs_agree"] else ", WRONG"
            table.append([row["machine"], row["asked_policy"], row["compared_policy"], *times, outputs])
    headings = [
        *texts("machine", "asked for", "policy"),
        *numbers("one by one, us", "plan, us", "speed-up"),
        *texts("outputs"),
    ]
    show_table(screen(), " + ".join(rows[0]["models"]) if rows else "nothing", headings, table)


def chrome_trace(graph: KernelGraph, plan: Plan, timeline_us: np.ndarray, *, lane: str = "core") -> dict[str, Any]:
    """Return the trace of a run of a plan, in the JSON object format of the Trace Event Format.

    Args:
        timeline_us: start and end of every node in microseconds, shape (nodes, 2).
        lane: what the plan distributes the nodes over: ``core`` or ``stream``.
    """
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"{' + '.join(plan.models)} ({plan.policy})"}}
    ]
    events += [
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": core, "args": {"name": f"{lane} {core}"}}
        for core in plan.cores
    ]
    for number, step, cores in placed(plan.stages):
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
            for core in cores
        ]
    return {"traceEvents": events, "displayTimeUnit": "ns"}
