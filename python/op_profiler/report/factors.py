"""Results of an analysis of factors as tables, CSV or JSON."""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler import json_text
from op_profiler.errors import UnknownNameError
from op_profiler.report.tables import numbers, print_line, screen, show_table, texts

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.analysis.analyze import FactorAnalysis
    from op_profiler.analysis.correlations import Correlation
    from op_profiler.analysis.turnaround import Turnaround
    from op_profiler.analysis.unswept import TurnaroundPrediction


def check_format(format: str) -> None:
    """Raises UnknownNameError for a format that there is not."""
    if format not in _FORMS:
        raise UnknownNameError("format", format, tuple(_FORMS))


def show(found: FactorAnalysis, format: str, *, quiet: bool) -> None:
    """Print an analysis.

    Args:
        format: table, csv or json.
        quiet: a line an anchor in place of tables.
    """
    if quiet and format == "table":
        _print_strongest(found.correlations)
    else:
        _FORMS[format](found)


def _print_strongest(found: Sequence[Correlation]) -> None:
    """One line an anchor: the factor that its latency goes with most closely."""
    strongest: dict[str, Correlation] = {}
    for c in (c for c in found if c.spearman is not None):
        strongest[c.anchor] = max(strongest.get(c.anchor, c), c, key=lambda one: abs(one.spearman or 0.0))
    for anchor, c in strongest.items():
        print(f"{anchor}: most with {c.factor}, {c.compared}: Spearman {_pair(c.spearman, c.spearman_p)}")
    if not strongest:
        print("not enough measurements to tell which factor latency goes with; --format json has the reasons")


def _print_json(found: FactorAnalysis) -> None:
    print(json_text.dumps(found, indent=1))


def _print_csv(found: FactorAnalysis) -> None:
    """One table of all three, told apart by its first column; nested values are JSON, an empty cell is no value."""
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
    _show_correlations(console, found.correlations)
    for prediction in found.predictions:
        _show_turnarounds(console, [t for t in found.turnarounds if t.factor == prediction.factor], prediction)


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
        *numbers("Pearson, log-log", "Spearman"),
        *numbers("Kendall", rank=4),
        *numbers("mutual inf., nats", "eta", rank=1),
    ]
    title = "latency and factors (p in brackets; see --help for what is compared)"
    show_table(console, title, headings, rows)
    places = {(c.anchor, tuple(c.under.items())): c.under for c in found if c.under and c.not_enough is None}
    for (anchor, _), under in places.items():
        told = ", ".join(f"{name} {'not set' if value is None else value}" for name, value in under.items())
        print_line(console, f"between operators: {anchor}: under {told}")
    reasons: dict[tuple[str, str], list[str]] = {}
    for c in (c for c in found if c.not_enough is not None):
        reasons.setdefault((c.anchor, str(c.not_enough)), []).append(c.factor)
    for (anchor, reason), names in reasons.items():
        print_line(console, f"not enough: {anchor}: {', '.join(names)}: {reason}")


def _pair(value: float | None, p: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:+.2f} ({'?' if p is None else f'{p:.1g}' if p >= 1e-4 else '<1e-4'})"


def _show_turnarounds(console: Console, turned: Sequence[Turnaround], prediction: TurnaroundPrediction) -> None:
    print(f"\nturnaround points in {prediction.factor}: {prediction.sweeps} sweeps of {prediction.operators} operators")
    for anchor in sorted({t.anchor for t in turned}):
        counts = Counter((t.value, t.reason) for t in turned if t.anchor == anchor)
        for (value, reason), count in counts.most_common():
            where = "none" if value is None else f"{value:g}"
            note = f"  ({reason})" if reason else ""
            print_line(console, f"  {anchor}: {count} at {where}{note}")
    if prediction.refused is not None:
        print(f"  prediction of others: {prediction.refused}")
        return
    print(
        f"  prediction of others, cross-validated: {prediction.accuracy:.0%} right, the most frequent value "
        f"{prediction.baseline:.0%} (p = {prediction.p_value:.2g}): {'better' if prediction.better else 'NOT better'}"
    )
    for key, expected in prediction.predicted.items() if prediction.better else ():
        print(f"  operator {key}: {expected} expected")


_FORMS: dict[str, Callable[[FactorAnalysis], None]] = {"table": _print_tables, "csv": _print_csv, "json": _print_json}
