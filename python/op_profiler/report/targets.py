"""What models cost on each target, and which one they chose, on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.report.corun import comparison

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.parallel.several_targets import TargetsResult


def show(console: Console, result: TargetsResult) -> None:
    """A row for each model with its latency on each target, transfers included, then the summary."""
    from rich.table import Table

    table = Table(title=f"{' + '.join(result.models)}: us alone")
    table.add_column("model")
    for target in result.targets:
        table.add_column(target, justify="right", overflow="fold")
    for model, row in zip(result.models, result.outcome.load_us, strict=True):
        table.add_row(model, *(f"{latency:.1f}" for latency in row))
    console.print(table)
    print(summary(result))


def summary(result: TargetsResult) -> str:
    """Who runs where, the game, the times, and whether the outputs are those of one target."""
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
            comparison(result, *names, result.predicted_us),
        ]
    )
