"""``op-profiler compare``."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options, values
from op_profiler.comparison.peers.request import PeersRequest
from op_profiler.comparison.request import CompareRequest
from op_profiler.cores import binding_order
from op_profiler.errors import UsageError
from op_profiler.files import check_writable, write_whole
from op_profiler.option_values import parse_limit
from op_profiler.options import OUTPUT, Only
from op_profiler.report.peers import show, verdicts
from op_profiler.report.status import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES = """Examples:

op-profiler collect resnet-18 --label before     (change something, then collect with --label after)

op-profiler compare before after

op-profiler compare before after --rerun --fail-above 5%

op-profiler compare before after --fail-above 2ms

op-profiler compare last_week.db sqlite:///results/op_profiler.db --model resnet-18

op-profiler compare base change --rerun --db sqlite:///runs.db --markdown summary.md --report comparison.html

op-profiler compare relay relax --model resnet-18     (the runs of both compilers in --db)

op-profiler compare before after --json

op-profiler compare resnet18 --against onnxruntime,torch,ncnn,openvino --threads 1     (a model in other runtimes)

Exit codes: 0 compared; 1 an operator or a model became slower by more than --fail-above, beyond the noise; 2 wrong
usage, or runs that cannot be compared; 3 a runtime of --against is not installed; 4 a model cannot be built;
5 a problem of the machine, the disk or a dataset.
"""
_OF_RUNS = ("after", "model", "rerun", "db", "fail_above", "markdown", "report")
_OF_PEERS = ("batch_size", "input_names", "input_shapes", "sequence_length", "compiler", "schedules", "check_outputs")
_OPTIONS = {
    "after": "AFTER",
    "fail_above": "--fail-above",
    "batch_size": "--batchsize",
    "input_names": "--inputname",
    "input_shapes": "--inputshape",
    "sequence_length": "--sequence-length",
    "check_outputs": "--check-outputs",
}


def compare(
    context: typer.Context,
    request: CompareRequest,
    peers: Annotated[PeersRequest, Only("against", "threads", *_OF_PEERS)],
    fail_above: Annotated[
        str | None,
        typer.Option(
            help="Exit with code 1 if an operator or a whole model became slower by more than this limit (5%, or "
            "2ms per call) and the change exceeds the noise.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            help="Also write the comparison to this file as Markdown, for a pull request.", rich_help_panel=OUTPUT
        ),
    ] = None,
    report: options.Report = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare two runs: what became faster or slower, whether the change is real, and what only one run contains.

    With --against: compare a model with the same model in other runtimes, and find the layers that lose most time.
    """
    if peers.against:
        _refuse(context, _OF_RUNS, "is of two runs; leave it out with --against")
        _compare_with_peers(request, peers, as_json=as_json, quiet=quiet)
        return
    _refuse(context, ("threads", *_OF_PEERS), "is for --against; add it, or leave this out")
    from op_profiler.comparison.compare import compare_runs
    from op_profiler.report.comparison import as_markdown, show_comparison, verdict

    limit = None if fail_above is None else parse_limit("--fail-above", fail_above)
    if values.is_given(context, "seconds") and not request.rerun:
        raise UsageError("--seconds is for measuring again; add --rerun")
    request.check()
    check_writable({"--markdown": markdown, "--report": report})
    with Status(quiet=quiet or not (request.rerun or sys.stderr.isatty())) as status:
        found = compare_runs(request, status.step, status.note)
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


def _refuse(context: typer.Context, names: Sequence[str], why: str) -> None:
    """Raise UsageError if one of these options was given; `why` follows the option in the message."""
    for name in names:
        if values.is_given(context, name):
            raise UsageError(f"{_OPTIONS.get(name, f'--{name}')} {why}")


def _compare_with_peers(request: CompareRequest, peers: PeersRequest, *, as_json: bool, quiet: bool) -> None:
    from op_profiler.comparison.peers.measuring import compare_with_peers
    from op_profiler.measure.background import report_background_load

    peers = dataclasses.replace(peers.of(request.before), seconds=request.seconds)
    peers.check()
    with Status(quiet=quiet) as status:
        report_background_load(binding_order()[: max(peers.build.threads)], status.note)
        found = compare_with_peers(peers, status.step)
    if as_json:
        print(json_text.dumps(found, indent=1))
    elif quiet:
        print("\n".join(verdicts(found)))
    else:
        show(found)
