"""The precisions of one model beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from op_profiler.collection.summary import ModelReport

_COLUMNS = ("threads", "whole model us", "float32 / this", "relative error", "largest error", "cosine", "same top-1")


def show_precisions(console: Console, reports: Sequence[ModelReport]) -> None:
    """Print a table for each model that was measured in more than one precision."""
    models: dict[str, list[ModelReport]] = {}
    for report in reports:
        label = f"{report.label}{report.request.measuring.resources_label}"
        models.setdefault(label, []).append(report)
    for label, group in models.items():
        if len({report.request.build.precision for report in group}) > 1 and any(report.threads for report in group):
            console.print(_table(f"{label}: precisions, outputs against float32", group))


def _table(title: str, group: Sequence[ModelReport]) -> object:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    table.add_column("precision")
    for column in _COLUMNS:
        table.add_column(column, justify="right")
    base = {n: _whole_us(r, n) for r in group if r.request.build.precision == "float32" for n in r.threads}
    for report in group:
        if not report.threads:
            table.add_row(report.request.build.precision, *["-"] * len(_COLUMNS))
        for threads in sorted(report.threads):
            table.add_row(report.request.build.precision, *_cells(report, threads, base.get(threads)))
    return table


def _whole_us(report: ModelReport, threads: int) -> float | None:
    timing = report.threads[threads].timing
    return timing.whole_model.median_us if timing is not None else None


def _cells(report: ModelReport, threads: int, float32_us: float | None) -> list[str]:
    timing = report.threads[threads].timing
    whole = _whole_us(report, threads)
    accuracy = (timing.details.get("accuracy") if timing is not None else None) or {}
    cells = [
        str(threads) if threads else "-",
        "failed" if whole is None else f"{whole:.1f}",
        "-" if whole is None or float32_us is None else f"{float32_us / whole:.2f}",
    ]
    for name, form in (("relative_error", ".2e"), ("largest_error", ".2e"), ("cosine", ".5f")):
        cells.append(format(accuracy[name], form) if name in accuracy else "-")
    cells.append({True: "yes", False: "no"}.get(accuracy.get("same_top1"), "-"))  # type: ignore[arg-type]
    return cells
