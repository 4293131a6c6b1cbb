"""Explanations as text: a table of the losses, and a sentence an operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.analysis.explain.explanation import ModelExplanation, OperatorExplanation

_WIDTH = 150
_SHOWN_LOSSES = 3
_NUMBERS = ("calls", "us", "of the model", "of compute peak", "vectors")


def show(found: ModelExplanation, *, tables: bool, terminal: bool) -> None:
    """Print it.

    Args:
        tables: false for the sentences alone.
        terminal: whether a person looks at it, so that its width counts.
    """
    from rich.console import Console

    console = Console(width=None if terminal else _WIDTH, highlight=False)
    if tables:
        _table(console, found)
        for note in found.notes:
            console.print(f"note: {note}", markup=False)
    for operator in found.operators:
        console.print(f"\n{operator.sentence}" if tables else operator.sentence, markup=False, soft_wrap=not terminal)


def _table(console: Console, found: ModelExplanation) -> None:
    from rich.table import Table

    title = f"{found.model} on {found.processor}, {found.threads} threads: {found.whole_model_us:.1f} us"
    table = Table(title=title, title_justify="left")
    for name in ("operator", *_NUMBERS, "of traffic peak", "losses, us"):
        table.add_column(name, justify="right" if name in _NUMBERS else "left")
    for one in found.operators:
        losses = ", ".join(f"{loss.cause} {loss.lost_us:.1f}" for loss in one.losses[:_SHOWN_LOSSES])
        table.add_row(
            f"{one.name}\n{one.key}",
            str(one.calls),
            f"{one.time_us:.1f}",
            f"{one.model_share:.0%}",
            f"{one.compute_share:.0%}" if one.compute_share is not None else "-",
            f"{one.code.vector_share:.0%}" if one.code is not None else "-",
            _traffic(one),
            losses or "none that can be told",
        )
    console.print(table, markup=False)
    if any(share > 1 for one in found.operators for share in one.traffic_shares.values()):
        console.print("note: >100% of a traffic peak: a cache nearer to the core kept some of its tensors")


def _traffic(one: OperatorExplanation) -> str:
    return ", ".join(
        f"{level} {share:.0%}" if share <= 1 else f"{level} >100%" for level, share in one.traffic_shares.items()
    )
