"""``op-profiler analyze``."""

from __future__ import annotations

import csv
import dataclasses
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.dataset import DEFAULT_DB
from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.option_values import parse_names

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.analysis.correlations import Correlation
    from op_profiler.analysis.turnaround import Turnaround
    from op_profiler.analysis.unswept import TurnaroundPrediction

EXAMPLES = """Examples:

op-profiler analyze                                                (every factor, of all that is known)

op-profiler analyze --factor threads,tile,input_size --anchor nn.conv2d

op-profiler analyze --file results/schedule_trials.parquet --plots pictures --format json
"""
_FORMATS = ("table", "csv", "json")


def analyze(
    db: Annotated[
        str | None,
        typer.Option(help=f"SQLAlchemy address of a dataset. Default: {DEFAULT_DB} and the results that ship."),
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A Parquet file of op-profiler export, instead of --db.")] = None,
    factor: Annotated[
        str,
        typer.Option(
            help="What may decide the latency, by commas: input_size, batch, input_channels, output_channels, kernel, "
            "stride, flops, bytes, arithmetic_intensity, template, tile, split, fuse, reorder, compute_at, vectorize, "
            "unroll, parallel, threads, cache, precision, past (tokens in a decoder's cache), one axis such as tile.oc "
            "or split.ic; or all."
        ),
    ] = "all",
    anchor: Annotated[
        str | None, typer.Option(help="Only operators around this op, e.g. nn.conv2d. Default: each op by itself.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="Share of the latency that more of a factor has to save to pay, 0 to 1.")
    ] = 0.05,
    plots: Annotated[Path | None, typer.Option(help="Folder for pictures, PNG and SVG.")] = None,
    format: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
    report: options.Report = None,
    quiet: options.Quiet = False,
) -> None:
    """How latency goes with each factor, and from where on more of it stops paying (the turnaround point).

    Factors of a schedule and settings are compared within an operator, sizes between operators.
    """
    from op_profiler.analysis.correlations import correlations
    from op_profiler.analysis.table import factor_table, load_rows
    from op_profiler.analysis.turnaround import can_turn, turnarounds
    from op_profiler.analysis.unswept import predict_unswept
    from op_profiler.files import check_folder, check_writable
    from op_profiler.shipped import shipped_trials

    if format not in _FORMATS:
        raise UnknownNameError("format", format, _FORMATS)
    if db is not None and file is not None:
        raise UsageError("give --db or --file, not both")
    if not 0 <= threshold < 1:
        raise UsageError(f"--threshold {threshold:g} is out of range; give 0 or more and less than 1, e.g. 0.05")
    if plots is not None:
        check_folder("--plots", plots)
    check_writable({"--report": report})
    names = [] if factor == "all" else list(parse_names("--factor", factor))
    default = db is None and file is None
    _tell("reading", quiet)
    table = factor_table(
        load_rows(
            DEFAULT_DB if default else db,
            shipped_trials() if default else file,
            optional_db=default,
            warn=lambda text: _tell(f"note: {text}", quiet),
        )
    )
    chosen = table.choose(names or list(table.factors))
    table = table if anchor is None else table.of_anchor(anchor)
    _tell(f"{len(table.frame)} measurements; {table.left_out} not used", quiet)
    if table.drawn:
        _tell(f"note: {table.drawn}", quiet=False)  # whoever reads the figures has to know
    found = correlations(table, [one.name for one in chosen])
    turned: list[Turnaround] = []
    predicted: list[TurnaroundPrediction] = []
    for name in (one.name for one in chosen if can_turn(one)):
        turned += (swept := turnarounds(table, name, threshold=threshold))
        predicted.append(predict_unswept(table, name, swept))
    if quiet and format == "table":
        _print_strongest(found)
    else:
        _FORMS[format](found, turned, predicted, table.not_drawn)
    if report is not None:
        from op_profiler.report.page.analyses import analysis_part
        from op_profiler.report.page.report import report_of, write_report

        write_report(report, report_of(analysis=analysis_part(found, turned, table.drawn)))
    if plots is not None:
        from op_profiler.report.analysis import write_plots

        files = write_plots(table, chosen, found, turned, plots)
        _tell(f"{len(files)} pictures in {plots}", quiet)


def _tell(text: str, quiet: bool) -> None:
    if not quiet:
        print(text, file=sys.stderr)


def _print_strongest(found: Sequence[Correlation]) -> None:
    """One line an anchor: the factor that its latency goes with most closely."""
    strongest: dict[str, Correlation] = {}
    for c in (c for c in found if c.spearman is not None):
        strongest[c.anchor] = max(strongest.get(c.anchor, c), c, key=lambda one: abs(one.spearman or 0.0))
    for anchor, c in strongest.items():
        print(f"{anchor}: most with {c.factor}, {c.compared}: Spearman {_pair(c.spearman, c.spearman_p)}")
    if not strongest:
        print("not enough measurements to tell which factor latency goes with; --format json has the reasons")


def _print_json(
    found: Sequence[Correlation],
    turned: Sequence[Turnaround],
    predicted: Sequence[TurnaroundPrediction],
    not_drawn: int,
) -> None:
    parts: dict[str, Sequence[Any]] = {"correlations": found, "turnarounds": turned, "predictions": predicted}
    plain = {name: [dataclasses.asdict(entry) for entry in entries] for name, entries in parts.items()}
    print(json_text.dumps(plain | {"measurements_not_drawn": not_drawn}, indent=1))


def _print_csv(
    found: Sequence[Correlation],
    turned: Sequence[Turnaround],
    predicted: Sequence[TurnaroundPrediction],
    _not_drawn: int,
) -> None:
    """One table of all three, told apart by its first column; nested values are JSON, an empty cell is no value."""
    parts: dict[str, Sequence[Any]] = {"correlation": found, "turnaround": turned, "prediction": predicted}
    rows = [{"result": name, **dataclasses.asdict(entry)} for name, entries in parts.items() for entry in entries]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        nested = (list, tuple, dict)
        writer.writerow({k: json_text.dumps(v) if isinstance(v, nested) else v for k, v in row.items()})


def _print_tables(
    found: Sequence[Correlation],
    turned: Sequence[Turnaround],
    predicted: Sequence[TurnaroundPrediction],
    _not_drawn: int,
) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 170)
    _show_correlations(console, found)
    for prediction in predicted:
        _show_turnarounds(console, [t for t in turned if t.factor == prediction.factor], prediction)


def _show_correlations(console: Console, found: Sequence[Correlation]) -> None:
    from rich.table import Table

    table = Table(title="latency and factors (p in brackets; see --help for what is compared)", title_justify="left")
    for column in ("anchor", "factor", "compared"):
        table.add_column(column)
    for column in ("samples", "operators", "Pearson, log-log", "Spearman", "Kendall", "mutual inf., nats", "eta"):
        table.add_column(column, justify="right")
    for c in (c for c in found if c.not_enough is None):
        pairs = [(c.pearson, c.pearson_p), (c.spearman, c.spearman_p), (c.kendall, c.kendall_p)]
        information = "-" if c.mutual_information is None else f"{c.mutual_information:.2f}"
        cells = [c.anchor, c.factor, c.compared, str(c.samples), str(c.operators), *(_pair(*pair) for pair in pairs)]
        table.add_row(*cells, information, _pair(c.eta, c.eta_p).removeprefix("+"))
    console.print(table, markup=False)
    places = {(c.anchor, tuple(c.under.items())): c.under for c in found if c.under and c.not_enough is None}
    for (anchor, _), under in places.items():
        told = ", ".join(f"{name} {'not set' if value is None else value}" for name, value in under.items())
        console.print(f"between operators: {anchor}: under {told}", markup=False, highlight=False)
    reasons: dict[tuple[str, str], list[str]] = {}
    for c in (c for c in found if c.not_enough is not None):
        reasons.setdefault((c.anchor, str(c.not_enough)), []).append(c.factor)
    for (anchor, reason), names in reasons.items():
        console.print(f"not enough: {anchor}: {', '.join(names)}: {reason}", markup=False, highlight=False)


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
            console.print(f"  {anchor}: {count} at {where}{note}", markup=False, highlight=False)
    if prediction.refused is not None:
        print(f"  prediction of others: {prediction.refused}")
        return
    print(
        f"  prediction of others, cross-validated: {prediction.accuracy:.0%} right, the most frequent value "
        f"{prediction.baseline:.0%} (p = {prediction.p_value:.2g}): {'better' if prediction.better else 'NOT better'}"
    )
    for key, expected in prediction.predicted.items() if prediction.better else ():
        print(f"  operator {key}: {expected} expected")


_FORMS: dict[str, Any] = {"table": _print_tables, "csv": _print_csv, "json": _print_json}
