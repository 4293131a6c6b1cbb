"""``op-profiler evaluate``."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.errors import UsageError
from op_profiler.option_values import parse_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from op_profiler.prediction.library.scoring import Score

    Run = tuple[str, Callable[[], list[Score]]]
    Tasks = tuple[dict[str, str], list[Run], str]

EXAMPLES = """Examples:

op-profiler evaluate                                       (what ships of this processor, or of the nearest)

op-profiler evaluate --device emeraldrapids --split model    (what ships of another processor)

op-profiler evaluate --db sqlite:///results/op_profiler.db --split model --predictor default,xgboost --json

op-profiler evaluate --library conv_data.out --split h,largest --predictor default,original
"""


def evaluate(
    db: Annotated[str | None, typer.Option(help="Dataset to fit and test on; default: what ships.")] = None,
    library: Annotated[
        Path | None, typer.Option(help="In place of a dataset: a convolution library in TinyNAS's format.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="random, h, oc, ratio, batch, largest, model (--db only), by commas, or all.")
    ] = "all",
    predictor: Annotated[
        str,
        typer.Option(help="With --db: {predictors}. With --library: {library_predictors}. By commas, or all."),
    ] = "default",
    device: Annotated[
        str | None, typer.Option(help="Of --db, or of what ships: its key, or part of its name or target.")
    ] = None,
    compiler: Annotated[str, typer.Option(help="Whose rows of --db: {compilers}.")] = DEFAULT_COMPILER,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the random split and of the regressors.")] = 0,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """How far off predictors are on what was held out, split by split, and how often their intervals hold."""
    from op_profiler.report.status import Status

    if db is not None and library is not None:
        raise UsageError("give --db or --library, not both")
    if device is not None and library is not None:
        raise UsageError(
            "--device chooses among the devices of --db; leave it out with --library, which is of one device"
        )
    if compiler != DEFAULT_COMPILER and library is not None:
        raise UsageError("--compiler chooses among the rows of --db; leave it out with --library, which names none")
    splits, predictors = parse_names("--split", split), parse_names("--predictor", predictor)
    tasks = _of_library(library, splits, predictors, seed) if library is not None else None
    descriptions, runs, about = tasks or _of_dataset(db, device, compiler, splits, predictors, seed)
    scores = []
    with Status(quiet=quiet, steps=len(runs)) as status:
        for label, run in runs:
            status.step(label)
            scores += run()
    if as_json:
        print(json_text.dumps([dataclasses.asdict(score) for score in scores], indent=1))
        return
    if quiet:
        for score in scores:
            print(f"{score.split}: {score.predictor}: MAPE {_percent(score.mape)}, bias {_percent(score.bias, '+')}")
        return
    print(about)
    _show(scores, descriptions)


def _of_library(path: Path, splits: tuple[str, ...], predictors: tuple[str, ...], seed: int) -> Tasks:
    from op_profiler.dataset.formats.tinynas import read_library
    from op_profiler.prediction.library import PREDICTORS
    from op_profiler.prediction.library.library_predictor import without_suspicious
    from op_profiler.prediction.library.scoring import evaluate as evaluate_one
    from op_profiler.prediction.library.splits import DESCRIPTIONS, SPLITS, held_out

    splits = SPLITS if splits == ("all",) else splits
    predictors = tuple(PREDICTORS) if predictors == ("all",) else predictors
    for name in predictors:
        PREDICTORS.get(name)()  # refuses what does not exist before minutes of fitting
    read = read_library(path)
    table, findings = without_suspicious(read)
    for name in splits:
        held_out(table, name, seed)

    def task(split: str, name: str) -> Run:
        return f"{split}: {name}", lambda: [evaluate_one(table, split, name, seed)]

    about = (
        f"{len(table)} rows; not used: {read.failed} failed, {read.unreadable} that are no rows, "
        f"{len(findings)} suspicious"
    )
    about += "".join(f"\n  {finding.kind}: {finding.reason}" for finding in findings[:5])
    return DESCRIPTIONS, [task(s, name) for s in splits for name in predictors], about


def _of_dataset(
    db: str | None,
    device: str | None,
    compiler: str,
    splits: tuple[str, ...],
    predictors: tuple[str, ...],
    seed: int,
) -> Tasks:
    from op_profiler.compilers.compiler import use_compiler
    from op_profiler.prediction.latency import PREDICTORS
    from op_profiler.prediction.latency.held_out import DESCRIPTIONS, SPLITS, held_out
    from op_profiler.prediction.latency.held_out import evaluate as evaluate_one
    from op_profiler.prediction.latency.open_predictor import examples_for

    splits = SPLITS if splits == ("all",) else splits
    predictors = tuple(PREDICTORS) if predictors == ("all",) else predictors
    for name in predictors:
        PREDICTORS.check(name)
    use_compiler(compiler)
    examples = examples_for(db=db, device=device, compiler=compiler, note=lambda text: print(text, file=sys.stderr))
    for name in splits:
        if name != "model":
            held_out(examples, name, seed)

    def task(split: str, name: str) -> Run:
        return f"{split}: {name}", lambda: evaluate_one(examples, split, name, seed)

    left = ", ".join(f"{count} {reason}" for reason, count in examples.left_out.items()) or "none"
    processor = examples.devices[int(examples.device[0])].processor
    about = f"{len(examples)} measurements of {len(examples.operators)} operators on {processor}"
    about += f"; not used: {left}"
    return DESCRIPTIONS, [task(s, name) for s in splits for name in predictors], about


def _show(scores: list[Score], descriptions: dict[str, str]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="error on held-out rows, relative to the measured latency", title_justify="left")
    for column in ("held out", "predictor"):
        table.add_column(column)
    for column in ("rows", "MAPE", "median", "p90", "within 10 %", "bias", "in 90 % interval", "s"):
        table.add_column(column, justify="right")
    for score in scores:
        within = score.within_10 if score.unanswered < score.tested else None
        errors = [_percent(value) for value in (score.mape, score.median, score.p90, within)]
        counted = str(score.tested) + (f" ({score.unanswered} without)" if score.unanswered else "")
        cells = [descriptions[score.split], score.predictor, counted, *errors, _percent(score.bias, "+")]
        table.add_row(*cells, _percent(score.coverage_90), f"{score.seconds:.1f}")
    Console(width=None if sys.stdout.isatty() else 150).print(table)


def _percent(share: float | None, sign: str = "") -> str:
    """A dash where no entry has an estimate, so that there is nothing to tell."""
    return "-" if share is None or math.isnan(share) else f"{share:{sign}.1%}"
