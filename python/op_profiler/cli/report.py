"""``op-profiler report``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options, values
from op_profiler.dataset import DEFAULT_DB
from op_profiler.files import check_writable
from op_profiler.report.status import Status

EXAMPLES = """Examples:

op-profiler report resnet-18                                  (writes report.html; open it in any browser)

op-profiler report resnet-18 mobilenet --output both.html     (two models on one page)

op-profiler report resnet-18 --json                           (a summary of the page, for an assistant)

op-profiler report 11c2f265f199 --db sqlite:///other.db       (the first digits of a model's key)

Exit codes: 0 written; 2 wrong usage, or no such model in the dataset; 5 the dataset or the file cannot be used.
"""


def report(
    context: typer.Context,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL|KEY...",
            help="Collected models: name, source:name, or the first six or more digits of the key. If several models "
            "have the same name, the latest one with times is shown, on every device that measured it.",
        ),
    ],
    db: options.Db = DEFAULT_DB,
    output: Annotated[
        Path, typer.Option(help="File to write: one HTML file, which opens offline.", rich_help_panel="Output")
    ] = Path("report.html"),
    predictor: Annotated[
        str,
        typer.Option(
            help="Predictor whose estimates are shown next to the times: {predictors}, or a file.",
            rich_help_panel="Predictor",
        ),
    ] = "default",
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write all results of models as one HTML page: operators, graph, roofline, timeline, searches, predictions.

    With --json, the command prints a summary of the page for assistants and scripts, and writes no file unless --output
    is given.
    """
    from op_profiler.dataset import Dataset
    from op_profiler.prediction.latency.open_predictor import check_choice
    from op_profiler.report.page.digest import digest
    from op_profiler.report.page.report import model_report, write_report

    check_choice(predictor)
    wanted = output if values.is_given(context, "output") or not as_json else None
    check_writable({"--output": wanted})
    with Status(quiet=quiet) as status, Dataset.open(db, create=False, read_only=True) as dataset:
        status.step("reading the dataset")
        found = model_report(dataset, names, predictor)
    if wanted is not None:
        write_report(wanted, found)
    for model in found.models:
        if not model.runs:
            print(f"note: the dataset has no times of {model.title}, so the page has none", file=sys.stderr)
    if as_json:
        print(json_text.dumps(digest(found), indent=1))
    elif not quiet:
        print(f"{output}: {', '.join(model.title for model in found.models)}")
