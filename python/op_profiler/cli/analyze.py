"""``op-profiler analyze``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from op_profiler.analysis.request import AnalyzeRequest
from op_profiler.cli import options
from op_profiler.files import check_folder, check_writable
from op_profiler.report import factors as texts

EXAMPLES = """Examples:

op-profiler analyze                                                (every factor, in all measurements)

op-profiler analyze --factor threads,tile,input_size --anchor nn.conv2d

op-profiler analyze --db sqlite:///sampled.db --include-noisy         (times that were disturbed, too)

op-profiler analyze --file results/schedule_trials.parquet --plots pictures --format json
"""


def analyze(
    request: AnalyzeRequest,
    plots: Annotated[Path | None, typer.Option(help="Also write plots to this folder, as PNG and SVG.")] = None,
    format: Annotated[str, typer.Option("--format", help="Output format: table, csv or json.")] = "table",
    report: options.Report = None,
    quiet: options.Quiet = False,
) -> None:
    """Report how latency correlates with each factor, and beyond which value of the factor no more time is saved.

    Factors of schedules and settings are compared within an operator; sizes are compared between operators.
    """
    from op_profiler.analysis.analyze import analyze as run
    from op_profiler.analysis.table import reasons_text

    texts.check_format(format)
    request.check()
    if plots is not None:
        check_folder("--plots", plots)
    check_writable({"--report": report})
    _print("reading", quiet)
    table, chosen = request.read(lambda text: _print(f"note: {text}", quiet))
    _print(f"{len(table.frame)} measurements; not used: {reasons_text(table.left_out) or 'none'}", quiet)
    if table.drawn:
        _print(f"note: {table.drawn}", quiet=False)  # whoever reads the figures has to know
    found = run(table, chosen, request.threshold)
    texts.show(found, format, quiet=quiet)
    if report is not None:
        from op_profiler.report.page import analyses
        from op_profiler.report.page import report as pages

        part = analyses.analysis_part(found.correlations, found.turnarounds, table.drawn)
        pages.write_report(report, pages.report_of(analysis=part))
    if plots is not None:
        from op_profiler.report.analysis import write_plots

        files = write_plots(table, chosen, found.correlations, found.turnarounds, plots)
        _print(f"{len(files)} pictures in {plots}", quiet)


def _print(text: str, quiet: bool) -> None:
    if not quiet:
        print(text, file=sys.stderr)
