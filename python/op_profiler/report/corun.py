"""A plan and its times on the screen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.parallel.comparison import CorunResult
    from op_profiler.parallel.several_targets import TargetsResult
    from op_profiler.parallel.timing import Timed


def show(console: Console, result: CorunResult) -> None:
    """The stages of the plan with what each operator took, then the summary."""
    from rich.table import Table

    plan, graph = result.plan, result.models.graph
    table = Table(title=f"{' + '.join(plan.models)}: plan of {plan.title}")
    lanes = f"{result.models.lane}s"
    for name in ("stage", lanes, "threads", "start us", "us", "operator"):
        table.add_column(name, justify="left" if name in (lanes, "operator") else "right", overflow="fold")
    for number, stage in enumerate(plan.stages):
        for group in stage.groups:
            for step in group.steps:
                start, end = result.run.timeline_us[step.node]
                name = graph.nodes[step.node].name.removeprefix("tvmgen_default_")
                owner = f"{graph.models[graph.nodes[step.node].model]}: " if len(graph.models) > 1 else ""
                cores = ",".join(map(str, group.cores[: step.threads]))
                own = f" ({step.schedule.template})" if step.schedule is not None else ""
                times = f"{start:.1f}", f"{end - start:.1f}"
                row = (str(number), cores, str(step.threads), *times, f"{owner}{name}{own}")
                table.add_row(*row)
    console.print(table)
    for policy, predicted, measured in result.tried:
        console.print(f"tried: {policy}: predicted {predicted:.1f} us, measured {measured:.1f} us", highlight=False)
    for tuned in result.collaboration.to_json() if result.collaboration is not None else ():
        text = f"stage {tuned['stage']}: tuned alone {tuned['alone_us']:.1f} us, jointly {tuned['jointly_us']:.1f} us"
        console.print(text, highlight=False)
    print(summary(result))


def summary(result: CorunResult) -> str:
    """Predicted, measured, and whether the outputs are those of sequential."""
    return comparison(result, "sequential", f"plan ({result.compared.title})", result.compared.predicted_us)


def comparison(result: CorunResult | TargetsResult, first: str, second: str, predicted_us: float | None) -> str:
    """The times of two ways by their names, and whether the outputs of the second one are those of the first one."""
    timed = result.timed
    not_compared = timed.not_compared(1)
    speedup = f"speed-up {timed.speedup(1):.3f}{_interval(timed.speedup_interval(1), 3)}"
    lines = [
        f"{first} {_us(timed, 0)}; {second} {_us(timed, 1)}"
        + (f", predicted {predicted_us:.1f} us" if predicted_us is not None else ""),
        f"{speedup if not_compared is None else 'no speed-up'}, {len(timed.samples_us)} rounds in turn"
        + ("; under foreign load" if timed.load.foreign else ""),
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


def _us(timed: Timed, way: int) -> str:
    return f"{timed.median_us[way]:.1f} us{_interval(timed.interval_us(way), 1)}"
