"""``op-profiler evaluate``."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from op_profiler.predict.library.evaluate import Score

EXAMPLES = """Examples:

op-profiler evaluate --library conv_data.out

op-profiler evaluate --library conv_data.out --split h,largest --predictor original,xgboost --json
"""


def evaluate(
    library: Annotated[Path, typer.Option(help="A convolution library in the format of TinyNAS's op_profiler.")],
    split: Annotated[
        str, typer.Option(help="random, h, oc, ratio, batch, largest, by commas, or all: what is held out.")
    ] = "all",
    predictor: Annotated[
        str, typer.Option(help="original, xgboost, random_forest, decision_tree, mean, by commas, or all.")
    ] = "all",
    seed: Annotated[int, typer.Option(help="Of the random split and of the regressors.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
) -> None:
    """How far off predictors are on convolutions of a library that were held out, split by split."""
    from op_profiler.cli import options
    from op_profiler.dataset.formats.tinynas import read_library
    from op_profiler.predict.library import PREDICTORS, make_predictor
    from op_profiler.predict.library.evaluate import evaluate as evaluate_one
    from op_profiler.predict.library.splits import SPLITS, held_out

    splits = SPLITS if split == "all" else options.parse_names(split)
    predictors = PREDICTORS if predictor == "all" else options.parse_names(predictor)
    for name in predictors:
        make_predictor(name)  # refuses what does not exist before minutes of fitting
    table = read_library(library)
    for name in splits:
        held_out(table, name, seed)
    scores = []
    for one in splits:
        for name in predictors:
            if not quiet:
                print(f"{one}: {name}", end="\r", file=sys.stderr, flush=True)
            scores.append(evaluate_one(table, one, name, seed))
    if as_json:
        print(json.dumps([dataclasses.asdict(score) for score in scores], indent=1))
        return
    print(f"{len(table)} rows; not used: {table.failed} failed, {table.unreadable} that are no rows")
    _show(scores)


def _show(scores: list[Score]) -> None:
    from rich.console import Console
    from rich.table import Table

    from op_profiler.predict.library.splits import DESCRIPTIONS

    table = Table(title="error on held-out rows, relative to the measured latency", title_justify="left")
    for column in ("held out", "predictor"):
        table.add_column(column)
    for column in ("rows", "MAPE", "median", "p90", "within 10 %", "bias", "in 90 % interval", "s"):
        table.add_column(column, justify="right")
    for score in scores:
        coverage = "-" if score.coverage_90 is None else f"{score.coverage_90:.1%}"
        errors = [f"{value:.1%}" for value in (score.mape, score.median, score.p90, score.within_10)]
        counted = str(score.tested) + (f" ({score.unanswered} without)" if score.unanswered else "")
        cells = [DESCRIPTIONS[score.split], score.predictor, counted, *errors, f"{score.bias:+.1%}", coverage]
        table.add_row(*cells, f"{score.seconds:.1f}")
    Console(width=None if sys.stdout.isatty() else 150).print(table)
