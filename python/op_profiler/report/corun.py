"""A plan and its times on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.parallel.corun import CorunResult


def show(console: Console, result: CorunResult) -> None:
    """The stages of the plan with what each operator took, then the summary."""
    from rich.table import Table

    plan, graph = result.plan, result.models.graph
    table = Table(title=f"{' + '.join(plan.models)}: plan of {plan.policy}" + _merged(plan.merged))
    for name in ("stage", "cores", "threads", "start us", "us", "operator"):
        table.add_column(name, justify="left" if name in ("cores", "operator") else "right", overflow="fold")
    for number, stage in enumerate(plan.stages):
        for group in stage.groups:
            for step in group.steps:
                start, end = result.timeline_us[step.node]
                name = graph.nodes[step.node].name.removeprefix("tvmgen_default_")
                owner = f"{graph.models[graph.nodes[step.node].model]}: " if len(graph.models) > 1 else ""
                cores = ",".join(map(str, group.cores[: step.threads]))
                row = (str(number), cores, str(step.threads), f"{start:.1f}", f"{end - start:.1f}", f"{owner}{name}")
                table.add_row(*row)
    console.print(table)
    for policy, predicted, measured in result.tried:
        console.print(f"tried: {policy}: predicted {predicted:.1f} us, measured {measured:.1f} us", highlight=False)
    print(summary(result))


def summary(result: CorunResult) -> str:
    """Predicted, measured, and whether the outputs are those of sequential."""
    timed, plan = result.timed, result.plan
    low, high = timed.speedup_interval(1)
    lines = [
        f"sequential {_us(result, 0)}; plan ({plan.policy}{_merged(plan.merged)}) {_us(result, 1)}"
        + (f", predicted {plan.predicted_us:.1f} us" if plan.predicted_us is not None else ""),
        f"speed-up {timed.speedup(1):.3f} ({low:.3f} to {high:.3f}, 95 %, {len(timed.samples_us)} rounds in turn)"
        + ("; under foreign load" if timed.foreign_load else ""),
    ]
    if result.outputs_equal:
        lines.append("outputs equal those of sequential, bit for bit")
    else:
        verdict = "as merged kernels may" if result.outputs_agree else "WRONG"
        lines.append(f"outputs differ by {result.largest_difference:.1e} of the largest value: {verdict}")
    return "\n".join([*lines, *(f"note: {note}" for note in result.notes)])


def _us(result: CorunResult, way: int) -> str:
    low, high = result.timed.interval_us(way)
    return f"{result.timed.median_us[way]:.1f} us ({low:.1f} to {high:.1f})"


def _merged(kinds: tuple[str, ...]) -> str:
    return f", {', '.join(kinds)} merged" if kinds else ""
