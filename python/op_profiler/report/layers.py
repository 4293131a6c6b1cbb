"""Layers in tables, and the table of a model's time by layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.report.tables import at_counts, numbers, print_line, show_table, texts

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.collection.summary import ModelReport
    from op_profiler.operators.layers import CallLayers

_MOST_ROWS = 40


def layers_text(calls: CallLayers) -> str:
    """Return the first layer of the first call, and the number of other layers in the same kernel; empty if the layers
    are unknown."""
    if not calls:
        return ""
    first = calls[0][0] if calls[0] else "not known"
    return first + (f" (+{len(calls[0]) - 1})" if len(calls[0]) > 1 else "")


def show_layers(console: Console, report: ModelReport, depth: int) -> None:
    """Print a row per layer, the slowest at the largest thread count first; layers beyond `_MOST_ROWS` share one row.

    If no layer is known, print a sentence.

    Args:
        depth: number of parts of a layer's path that are kept; 0 for all.
    """
    if not report.layers:
        print_line(console, "time by layer: the source of this model names no layers, or an older version stored it")
        return
    counts = sorted(count for count, thread in report.threads.items() if thread.measurements)
    by_count = {count: {one.layer: one for one in report.by_layer(count, depth or None)} for count in counts}
    last = by_count[counts[-1]]
    known = sum(one.share for layer, one in last.items() if layer)
    names = list(last)
    groups = [[name] for name in names[:_MOST_ROWS]] + ([names[_MOST_ROWS:]] if names[_MOST_ROWS:] else [])
    rows = []
    for group in groups:
        label = f"{len(group)} others" if len(group) > 1 else group[0] or "not known"
        times = [sum(found[name].us for name in group if name in found) for found in by_count.values()]
        share, kernels = (sum(getattr(last[name], what) for name in group) for what in ("share", "calls"))
        rows.append([f"{share:.1%}", label, *(f"{us:.1f}" for us in times), str(kernels)])
    headings = [*numbers("share"), *texts("layer"), *at_counts(counts), *numbers("kernels", rank=1)]
    show_table(console, f"time by layer, {known:.1%} of it attributed", headings, rows)
