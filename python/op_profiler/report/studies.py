"""Tables of what tuning, comparing and the vendor's kernels gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.report.tables import numbers

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.collection.studies.report import StudyReport
    from op_profiler.collection.summary import ModelReport
    from op_profiler.operators.operator import Operator


def show_studies(console: Console, report: ModelReport) -> None:
    """Print one table of operators, one of the model under both schedules, and what did not end."""
    studies = report.studies
    if studies is None or report.base is None:
        return
    base = report.base
    operators = {operator.key: operator for operator, _ in base.operators}
    if studies.tuned or studies.vendor:
        console.print(_operators(studies, operators))
        covered = {key for tuned in studies.tuned for key in tuned.operators}
        covered |= {key for vendor in studies.vendor for key in vendor.operators}
        left = [o.name.removeprefix("fused_") for o, _ in base.heavy() if o.key not in covered]
        if left:
            console.print(f"heavy, but without an op that a template computes: {', '.join(left)}", highlight=False)
    tune = report.request.studies.tune
    if tune is not None and tune.partial and any(t.partial_us for t in studies.tuned):
        console.print(_partial(studies, operators))
    if studies.compared:
        console.print(_comparison(studies))
    for problem in studies.problems:
        console.print(f"failed: {problem}", markup=False, highlight=False)


def _operators(studies: StudyReport, operators: dict[str, Operator]) -> object:
    from rich.table import Column, Table

    table = Table(
        "operator",
        Column("output", no_wrap=True),
        *numbers("default", "tuned", "default/tuned", "vendor", "vendor/tuned"),
        "best template",
        *numbers("trials", "failed"),
        title="heavy ops alone (of Relax with what is fused to them), side by side, us",
        title_justify="left",
    )
    tuned = {t.anchor: t for t in studies.tuned}
    vendor = {v.anchor: v for v in studies.vendor}
    for key in dict.fromkeys([*tuned, *vendor]):
        search, beside = tuned.get(key), vendor.get(key)
        source = search or beside
        assert source is not None
        operator = operators.get(source.operators[0])
        default = beside.default_us if beside else source.default_us
        best = beside.tuned_us if beside else (search.best_us if search else None)
        torch = beside.vendor_us if beside else None
        table.add_row(
            operator.anchor if operator else key,
            "x".join(map(str, operator.outputs[0].shape)) if operator else "",
            _us(default),
            _us(best),
            _ratio(default, best),
            _us(torch) if beside is None or beside.error is None else "failed",
            _ratio(torch, best),
            (search.template or "") if search else "",
            str(search.trials) if search else "",
            str(search.failed) if search else "",
        )
    return table


def _partial(studies: StudyReport, operators: dict[str, Operator]) -> object:
    from rich.table import Table

    counts = sorted({n for t in studies.tuned for n in t.partial_us})
    columns = numbers(*map(str, counts))
    table = Table("operator", *columns, title="best after so many trials, us", title_justify="left")
    for search in studies.tuned:
        operator = operators.get(search.operators[0])
        shape = "x".join(map(str, operator.outputs[0].shape)) if operator else search.anchor
        table.add_row(shape, *(_us(search.partial_us.get(count)) for count in counts))
    return table


def _comparison(studies: StudyReport) -> object:
    from rich.table import Table

    columns = numbers("threads", "default us", "tuned us", "speed-up", "95 % interval", "rounds", "outputs")
    table = Table(*columns, title="whole model, default and recorded schedules in turns", title_justify="left")
    for c in studies.compared:
        interval = f"{c.speedup_low:.3f} to {c.speedup_high:.3f}" if c.speedup_low and c.speedup_high else "-"
        outputs = f"{'agree' if c.agree else 'DISAGREE'} within {c.difference:.1g}"
        row = (f"{c.default_us:.1f}", f"{c.tuned_us:.1f}", f"{c.speedup:.3f}", interval, str(c.rounds), outputs)
        table.add_row(str(c.threads), *row)
    return table


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _ratio(numerator: float | None, denominator: float | None) -> str:
    return "-" if not numerator or not denominator else f"{numerator / denominator:.2f}"
