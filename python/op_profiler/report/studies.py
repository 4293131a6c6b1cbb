"""Tables of searches for schedules, of models under two schedules, and of the vendor's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.operators.titles import title_of
from op_profiler.report.page.amounts import half_width, us_text
from op_profiler.report.tables import numbers, print_line, show_table, texts

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.collection.studies.report import StudyReport
    from op_profiler.collection.summary import ModelReport
    from op_profiler.operators.operator import Operator


def show_studies(console: Console, report: ModelReport) -> None:
    """Print a table of the tuned operators, a table of the model under default and recorded schedules, and failures."""
    studies = report.studies
    if studies is None or report.base is None:
        return
    base = report.base
    operators = {operator.key: operator for operator, _ in base.operators}
    if studies.tuned or studies.vendor:
        _show_operators(console, studies, operators)
        covered = {key for tuned in studies.tuned for key in tuned.operators}
        covered |= {key for vendor in studies.vendor for key in vendor.operators}
        left = [title_of(o.op_names) for o, _ in base.heavy() if o.key not in covered]
        if left:
            print_line(console, f"heavy, but without an op that a template computes: {', '.join(left)}")
    tune = report.request.studies.tune
    if tune is not None and tune.partial and any(t.partial_us for t in studies.tuned):
        _show_partial(console, studies, operators)
    if studies.compared:
        _show_comparison(console, studies)
    for problem in studies.problems:
        print_line(console, f"failed: {problem}")


def _show_operators(console: Console, studies: StudyReport, operators: dict[str, Operator]) -> None:
    headings = [
        *texts("operator"),
        *numbers("output", rank=1),
        *numbers("default", "tuned", "default/tuned"),
        *numbers("vendor", "vendor/tuned", rank=1),
        *texts("best template", rank=3),
        *numbers("trials", "failed", rank=2),
    ]
    tuned = {t.anchor: t for t in studies.tuned}
    vendor = {v.anchor: v for v in studies.vendor}
    rows = []
    for key in dict.fromkeys([*tuned, *vendor]):
        search, beside = tuned.get(key), vendor.get(key)
        source = search or beside
        assert source is not None
        operator = operators.get(source.operators[0])
        default = beside.default_us if beside else source.default_us
        best = beside.tuned_us if beside else (search.best_us if search else None)
        torch = beside.vendor_us if beside else None
        rows.append(
            [
                title_of([operator.anchor]) if operator and operator.anchor else key,
                "x".join(map(str, operator.outputs[0].shape)) if operator else "",
                us_text(default),
                us_text(best),
                _ratio(default, best),
                ("failed" if beside.error is not None else us_text(torch) + "*" * (beside.disturbed_by is not None))
                if beside is not None
                else "-",
                _ratio(torch, best) if beside is None or beside.disturbed_by is None else "-",
                (search.template or "") if search else "",
                str(search.trials) if search else "",
                str(search.failed) if search else "",
            ]
        )
    title = "heavy ops in isolation (for Relax with the ops fused to them), side by side, us"
    show_table(console, title, headings, rows)
    disturbed = sorted({v.disturbed_by for v in vendor.values() if v.disturbed_by is not None})
    if disturbed:
        why = "; ".join(disturbed)
        print_line(console, f"* disturbed ({why}), so there is no ratio; measure again when the machine is idle")


def _show_partial(console: Console, studies: StudyReport, operators: dict[str, Operator]) -> None:
    counts = sorted({n for t in studies.tuned for n in t.partial_us})
    rows = []
    for search in studies.tuned:
        operator = operators.get(search.operators[0])
        shape = "x".join(map(str, operator.outputs[0].shape)) if operator else search.anchor
        rows.append([shape, *(us_text(search.partial_us.get(count)) for count in counts)])
    headings = [*numbers("operator"), *numbers(*map(str, counts))]
    show_table(console, "best after so many trials, us", headings, rows)


def _show_comparison(console: Console, studies: StudyReport) -> None:
    rows = []
    for c in studies.compared:
        interval = f"{c.speedup_low:.3f} to {c.speedup_high:.3f}" if c.speedup_low and c.speedup_high else "-"
        outputs = f"{'agree' if c.agree else 'DISAGREE'} within {c.difference:.1g}"
        share = half_width(c.speedup_low, c.speedup_high)
        halves = [None if share is None else share / c.speedup * us for us in (c.default_us, c.tuned_us)]
        times = (us_text(c.default_us, halves[0]), us_text(c.tuned_us, halves[1]), f"{c.speedup:.3f}")
        rows.append([str(c.threads), *times, interval, str(c.rounds), outputs])
    headings = [
        *numbers("threads", "default, us", "tuned, us", "speed-up"),
        *numbers("95 % interval", rank=1),
        *numbers("rounds", rank=3),
        *texts("outputs", rank=2),
    ]
    show_table(console, "whole model, default and recorded schedules in turns", headings, rows)


def _ratio(numerator: float | None, denominator: float | None) -> str:
    return "-" if not numerator or not denominator else f"{numerator / denominator:.2f}"
