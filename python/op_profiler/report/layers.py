"""The time of a model by its layers, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.report.tables import at_counts, numbers

if TYPE_CHECKING:
    from op_profiler.collection.summary import ModelReport

_MOST_ROWS = 40


def layer_table(report: ModelReport, depth: int) -> object:
    """A row a layer, the slowest at the largest thread count first; the rest in one row. Where none is known, a
    sentence.

    Args:
        depth: parts of a layer's path that are kept; 0 for all.
    """
    from rich.table import Column, Table

    if not report.layers:
        return "time by layer: the source of this model names no layers, or an older version stored it"
    counts = sorted(count for count, thread in report.threads.items() if thread.measurements)
    by_count = {count: {one.layer: one for one in report.by_layer(count, depth or None)} for count in counts}
    last = by_count[counts[-1]]
    known = sum(one.share for layer, one in last.items() if layer)
    columns = (*numbers("share"), Column("layer", overflow="fold"), *numbers("kernels"), *at_counts(counts))
    table = Table(*columns, title=f"time by layer, {known:.1%} of it attributed", title_justify="left")
    names = list(last)
    groups = [[name] for name in names[:_MOST_ROWS]] + ([names[_MOST_ROWS:]] if names[_MOST_ROWS:] else [])
    for group in groups:
        label = f"{len(group)} others" if len(group) > 1 else group[0] or "not known"
        times = [sum(found[name].us for name in group if name in found) for found in by_count.values()]
        table.add_row(
            f"{sum(last[name].share for name in group):.1%}",
            label,
            str(sum(last[name].calls for name in group)),
            *(f"{us:.1f}" for us in times),
        )
    return table
