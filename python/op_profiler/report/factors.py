"""Results of an analysis of factors as tables, CSV or JSON."""

from __future__ import annotations

import csv
import dataclasses
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler import json_text
from op_profiler.errors import check_known
from op_profiler.option_values import several, threads_text
from op_profiler.report.tables import numbers, print_line, screen, show_table, texts

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.analysis.analyze import FactorAnalysis
    from op_profiler.analysis.correlations import Correlation
    from op_profiler.analysis.turnaround import Turnaround
    from op_profiler.analysis.unswept import TurnaroundPrediction


_MOST_VALUES = 6
"""Largest number of values of a factor in one row of a table."""


def check_format(format: str) -> None:
    """Raise UnknownNameError if `format` is not a format of `show`."""
    check_known("format", format, tuple(_FORMS))


def show(found: FactorAnalysis, format: str, *, quiet: bool) -> None:
    """Print an analysis of factors.

    Args:
        format: ``table``, ``csv`` or ``json``.
        quiet: whether to print one line per anchor instead of tables.
    """
    if quiet and format == "table":
        _print_strongest(found.correlations)
    else:
        _FORMS[format](found)


def _print_strongest(found: Sequence[Correlation]) -> None:
    """Print one line per anchor: the factor with the strongest relation to its latency."""
    strongest: dict[str, Correlation] = {}
    for c in (c for c in found if c.spearman is not None):
        strongest[c.anchor] = max(strongest.get(c.anchor, c), c, key=lambda one: abs(one.spearman or 0.0))
    for anchor, c in strongest.items():
        print(f"{anchor}: most with {c.factor}, {c.compared}: Spearman {_pair(c.spearman, c.spearman_p)}")
    if not strongest:
        print("too few measurements to determine with which factor latency correlates; --format json has the reasons")


def _print_json(found: FactorAnalysis) -> None:
    print(json_text.dumps(found, indent=1))


def _print_csv(found: FactorAnalysis) -> None:
    """Print all three results as one table, distinguished by the first column; nested values are JSON, and an empty
    cell is a missing value."""
    rows: list[dict[str, Any]] = [
        *({"result": "correlation", **dataclasses.asdict(one)} for one in found.correlations),
        *({"result": "turnaround", **dataclasses.asdict(one)} for one in found.turnarounds),
        *({"result": "prediction", **dataclasses.asdict(one)} for one in found.predictions),
    ]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        nested = (list, tuple, dict)
        writer.writerow({k: json_text.dumps(v) if isinstance(v, nested) else v for k, v in row.items()})


def _print_tables(found: FactorAnalysis) -> None:
    console = screen()
    _show_threads(console, [t for t in found.turnarounds if t.factor == "threads"])
    _show_correlations(console, found.correlations)
    _show_turnarounds(console, found.turnarounds)
    _show_predictions(console, found.predictions)


def _show_threads(console: Console, swept: Sequence[Turnaround]) -> None:
    """Print the speed-up of operators by thread count, and the smallest count that is enough for most of them."""
    counts = sorted({value for one in swept for value in one.values})
    rows = []
    for anchor in sorted({one.anchor for one in swept}):
        mine = [one for one in swept if one.anchor == anchor and one.values[0] == counts[0]]
        if mine:
            speedups = (_speedup(mine, count) for count in counts[1:])
            rows.append([anchor, str(len({one.operator_key for one in mine})), *speedups, _enough(mine)])
    if rows:
        headings = [
            *texts("anchor"),
            *numbers("operators", rank=2),
            *numbers(*(f"speed-up, {threads_text(int(n))}" for n in counts[1:])),
            *texts("enough for most", rank=1),
        ]
        show_table(console, f"threads: median speed-up over {threads_text(int(counts[0]))}", headings, rows)


def _speedup(swept: Sequence[Turnaround], count: float) -> str:
    found = [one.cost[0] / one.cost[one.values.index(count)] for one in swept if count in one.values]
    return f"{statistics.median(found):.2f}" if found else "-"


def _enough(swept: Sequence[Turnaround]) -> str:
    """Return the most frequent turnaround point of sweeps as text, with the share of the sweeps that have it."""
    ends = Counter(f"more than {t.values[-1]:g}" if t.value is None else f"{t.value:g}" for t in swept)
    ((end, count),) = ends.most_common(1)
    return f"{end} ({count / len(swept):.0%})"


def _show_correlations(console: Console, found: Sequence[Correlation]) -> None:
    rows = []
    for c in (c for c in found if c.not_enough is None):
        pairs = [(c.pearson, c.pearson_p), (c.spearman, c.spearman_p), (c.kendall, c.kendall_p)]
        information = "-" if c.mutual_information is None else f"{c.mutual_information:.2f}"
        cells = [c.anchor, c.factor, c.compared, str(c.samples), str(c.operators), *(_pair(*pair) for pair in pairs)]
        rows.append([*cells, information, _pair(c.eta, c.eta_p).removeprefix("+")])
    headings = [
        *texts("anchor", "factor"),
        *texts("compared", rank=4),
        *numbers("samples", rank=2),
        *numbers("operators", rank=3),
        *numbers("Pearson, log-log", rank=1),
        *numbers("Spearman"),
        *numbers("Kendall", rank=4),
        *numbers("mutual inf., nats", "eta", rank=1),
    ]
    title = "latency and factors (p in brackets; see --help for what is compared)"
    show_table(console, title, headings, rows)
    places = {(c.anchor, tuple(c.under.items())): c.under for c in found if c.under and c.not_enough is None}
    for (anchor, _), under in places.items():
        conditions = ", ".join(f"{name} {'not set' if value is None else value}" for name, value in under.items())
        print_line(console, f"between operators: {anchor}: under {conditions}")
    reasons: dict[str, dict[str, list[str]]] = {}
    for c in (c for c in found if c.not_enough is not None):
        reasons.setdefault(str(c.not_enough), {}).setdefault(c.anchor, []).append(c.factor)
    for reason, anchors in reasons.items():
        where = "; ".join(f"{anchor} ({', '.join(names)})" for anchor, names in anchors.items())
        print_line(console, f"not enough: {reason}: {where}")


def _pair(value: float | None, p: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:+.2f} ({'?' if p is None else f'{p:.1g}' if p >= 1e-4 else '<1e-4'})"


def _show_turnarounds(console: Console, turned: Sequence[Turnaround]) -> None:
    """Print a row for each factor and anchor with turnaround points, and a line per factor about sweeps without one."""
    rows = []
    factors = list(dict.fromkeys(one.factor for one in turned))
    for factor, anchor in sorted({(one.factor, one.anchor) for one in turned if _has_point(one)}):
        mine = [one for one in turned if (one.factor, one.anchor) == (factor, anchor) and _has_point(one)]
        rows.append([factor, anchor, _most_frequent(f"{one.value:g}" for one in mine)])
    if rows:
        headings = texts("factor", "anchor", "turnaround points (sweeps)")
        show_table(console, "turnaround points: beyond them a larger value saves too little", headings, rows)
    for factor in factors:
        mine = [one for one in turned if one.factor == factor]
        without = Counter(_without_value(one) for one in mine if not _has_point(one))
        if without:
            reasons = "; ".join(f"{reason} in {count}" for reason, count in without.most_common())
            print_line(console, f"{factor}: {several(len(mine), 'sweep')}, {reasons}")


def _most_frequent(values: Iterable[str]) -> str:
    """Return the most frequent values, each with its count."""
    counts = Counter(values)
    text = ", ".join(f"{value} ({count})" for value, count in counts.most_common(_MOST_VALUES))
    left = len(counts) - _MOST_VALUES
    return f"{text} and {several(left, 'other value')}" if left > 0 else text


def _has_point(one: Turnaround) -> bool:
    return one.value is not None and one.reason is None


def _without_value(one: Turnaround) -> str:
    """Return why a sweep has no turnaround point, without the values of this sweep."""
    return "a larger value never pays" if one.value is not None else "even the largest value measured pays"


def _show_predictions(console: Console, predictions: Sequence[TurnaroundPrediction]) -> None:
    """Print predictions for operators without a sweep, and their accuracy in cross-validation."""
    rows = []
    for one in (one for one in predictions if one.sweeps):
        expected = one.refused or "no better than the most frequent value"
        if one.better:
            expected = _most_frequent(one.predicted.values()) or "none: all were swept"
        shares = ["-" if share is None else f"{share:.0%}" for share in (one.accuracy, one.baseline)]
        p = "-" if one.p_value is None else f"{one.p_value:.2g}"
        rows.append([one.factor, str(one.operators), *shares, p, expected])
    headings = [
        *texts("factor"),
        *numbers("operators swept", "right", "most frequent value", rank=1),
        *numbers("p", rank=2),
        *texts("expected (operators)"),
    ]
    if rows:
        show_table(console, "turnaround points predicted for operators that were not swept", headings, rows)
    if unswept := [one.factor for one in predictions if not one.sweeps]:
        print_line(console, f"no operator was measured at two values of: {', '.join(unswept)}")


_FORMS: dict[str, Callable[[FactorAnalysis], None]] = {"table": _print_tables, "csv": _print_csv, "json": _print_json}
