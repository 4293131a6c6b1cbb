"""The section of compared runs on a page."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from op_profiler.report.comparison import between, method, only_one_side, verdict, words
from op_profiler.report.page.several_models import ComparedLayer, ComparedRow, ComparedRun, ComparisonPart

if TYPE_CHECKING:
    from op_profiler.comparison.result import Comparison, RowComparison


def comparison_part(found: Comparison) -> ComparisonPart:
    """Return a comparison as the data of a page section.

    The rows are sorted by pair of runs and thread count; the whole model is first, then operators by their share of the
    time.
    """
    runs = [
        ComparedRun(title=run.title, between=between(run), warnings=list(run.warnings), only=only_one_side(run))
        for run in found.runs
    ]
    rows = [_row(number, row) for number, run in enumerate(found.runs) for row in run.rows]
    layers = [
        ComparedLayer(model=number, **dataclasses.asdict(one))
        for number, run in enumerate(found.runs)
        for one in run.layers
    ]
    return ComparisonPart(
        title=" + ".join(dict.fromkeys(run.title for run in found.runs)),
        verdict=verdict(found),
        method=method(found),
        notes=list(found.notes),
        runs=runs,
        layers=layers,
        rows=sorted(rows, key=lambda row: (row.model, row.threads, row.name is not None, -(row.share or 0.0))),
    )


def _row(number: int, row: RowComparison) -> ComparedRow:
    known = ComparedRow(
        model=number,
        name=row.title if row.name is not None else None,
        layer=row.layer,
        output=" x ".join(map(str, row.output)),
        threads=row.threads,
        words=words(row),
        share=row.share,
    )
    change = row.change
    if change is None:
        return known
    known.before_us, known.after_us, known.change = change.before_us, change.after_us, change.change
    known.low, known.high, known.real = change.low, change.high, change.real
    return known
