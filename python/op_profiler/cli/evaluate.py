"""``op-profiler evaluate``."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options, values
from op_profiler.errors import EXIT_ENVIRONMENT
from op_profiler.prediction.evaluation import EvaluateRequest
from op_profiler.report.checked import show_coverage
from op_profiler.report.status import Status
from op_profiler.report.tables import numbers, screen, show_table, texts

if TYPE_CHECKING:
    from op_profiler.prediction.library.scoring import Score

EXAMPLES = """Examples:

op-profiler evaluate                                       (included data of this or the most similar processor)

op-profiler evaluate --device emeraldrapids --split model    (included data of another processor)

op-profiler evaluate --db sqlite:///results/op_profiler.db --split model --predictor default,xgboost --json

op-profiler evaluate --live                                (predictions checked by op-profiler check on this machine)

op-profiler evaluate --library conv_data.out --split h,largest --predictor default,original

op-profiler evaluate --set tophub,ncnn                       (public data sets; download them first)

Exit codes: 0 done; 2 wrong usage; 5 the measurements cannot be read, or none of the sets was found.
"""


def evaluate(
    request: EvaluateRequest,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Print the share of intervals that contained the measured time, over all runs of op-profiler check on "
            "this machine.",
        ),
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Report errors of predictors on held-out data, and the share of intervals that contain the measured time."""
    if values.list_devices(request.device, request.db):
        return
    if live:
        _live(as_json=as_json)
        return

    if request.sets:
        _evaluate_sets(request, as_json=as_json, quiet=quiet)
        return
    found = request.evaluation(lambda text: print(text, file=sys.stderr))
    with Status(quiet=quiet, steps=found.steps) as status:
        scores = list(found.scores(status.step))
    if as_json:
        print(json_text.dumps(scores, indent=1))
        return
    if quiet:
        for score in scores:
            print(f"{score.split}: {score.predictor}: MAPE {_percent(score.mape)}, bias {_percent(score.bias, '+')}")
        return
    print(found.about)
    _show(scores, found.descriptions)


def _live(*, as_json: bool) -> None:
    from op_profiler.prediction.latency import checks
    from op_profiler.targets.target import kind_of

    found = checks.coverage(checks.stored(kind_of("llvm").machine_identity()))
    print(json_text.dumps(found, indent=1)) if as_json else show_coverage(found)


def _evaluate_sets(request: EvaluateRequest, *, as_json: bool, quiet: bool) -> None:
    from op_profiler.report.public_sets import show_results

    with Status(quiet=quiet, steps=None) as status:
        results = list(request.public_sets(status.step))
    if as_json:
        print(json_text.dumps(results, indent=1))
    else:
        show_results(results, quiet)
    if not any(result.scores for result in results):
        raise typer.Exit(EXIT_ENVIRONMENT)


def _show(scores: Sequence[Score], descriptions: Mapping[str, str]) -> None:
    rows = []
    for score in scores:
        within = score.within_10 if score.unanswered < score.tested else None
        errors = [_percent(value) for value in (score.mape, score.median, score.p90, within)]
        counted = str(score.tested) + (f" ({score.unanswered} without)" if score.unanswered else "")
        cells = [descriptions[score.split], score.predictor, counted, *errors, _percent(score.bias, "+")]
        rows.append([*cells, _percent(score.coverage_90), f"{score.seconds:.1f}"])
    headings = [
        *texts("held out", "predictor"),
        *numbers("rows", rank=2),
        *numbers("MAPE"),
        *numbers("median", "p90", rank=2),
        *numbers("within 10 %"),
        *numbers("bias", rank=3),
        *numbers("in 90 % interval"),
        *numbers("s", rank=4),
    ]
    show_table(screen(), "error on held-out rows, relative to the measured latency", headings, rows)


def _percent(share: float | None, sign: str = "") -> str:
    """Return a share as a percentage; a dash for None and NaN."""
    return "-" if share is None or math.isnan(share) else f"{share:{sign}.1%}"
