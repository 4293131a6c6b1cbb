"""``op-profiler compare``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options, values
from op_profiler.comparison.request import CompareRequest
from op_profiler.errors import UsageError
from op_profiler.option_values import parse_limit
from op_profiler.options import OUTPUT

EXAMPLES = """Examples:

op-profiler collect resnet-18 --label before     (then change something, and --label after)

op-profiler compare before after

op-profiler compare before after --rerun --fail-above 5%

op-profiler compare before after --fail-above 2ms

op-profiler compare last_week.db sqlite:///results/op_profiler.db --model resnet-18

op-profiler compare base change --rerun --db sqlite:///runs.db --markdown summary.md --report comparison.html

op-profiler compare relay relax --model resnet-18     (the runs of each compiler in --db)

op-profiler compare before after --json

Exit codes: 0 compared; 1 something really became slower by more than --fail-above; 2 wrong usage, or runs that cannot
be compared; 4 a model cannot be built again; 5 the machine, the disk or a dataset stands in the way.
"""


def compare(
    context: typer.Context,
    request: CompareRequest,
    fail_above: Annotated[
        str | None,
        typer.Option(
            help="End with 1 where an operator, or a whole model, really became slower by more than this: 5%, or 2ms "
            "of one call.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write it as Markdown, for a pull request.", rich_help_panel=OUTPUT)
    ] = None,
    report: options.Report = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare two runs: what became faster or slower, whether that is real, and what only one of them has."""
    from op_profiler.comparison.compare import compare_runs
    from op_profiler.files import check_writable, write_whole
    from op_profiler.report.comparison import as_markdown, show_comparison, verdict
    from op_profiler.report.status import Status

    limit = None if fail_above is None else parse_limit("--fail-above", fail_above)
    if values.is_given(context, "seconds") and not request.rerun:
        raise UsageError("--seconds is for measuring again; add --rerun")
    request.check()
    check_writable({"--markdown": markdown, "--report": report})
    with Status(quiet=quiet or not (request.rerun or sys.stderr.isatty())) as status:
        found = compare_runs(request, status.step)
    if markdown is not None:
        write_whole(markdown, as_markdown(found))
    if report is not None:
        from op_profiler.report.page.comparisons import comparison_part
        from op_profiler.report.page.report import report_of, write_report

        write_report(report, report_of(comparison=comparison_part(found)))
    if as_json:
        print(json_text.dumps(found, indent=1))
    elif quiet:
        print(verdict(found))
    else:
        show_comparison(found)
    if limit is not None and found.above(*limit):
        raise typer.Exit(1)
