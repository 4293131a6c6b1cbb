"""``op-profiler check``."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options, values
from op_profiler.collection.check_request import CheckRequest
from op_profiler.errors import EXIT_FAILURES_RECORDED, UsageError
from op_profiler.frontends import source_and_name
from op_profiler.options import Only
from op_profiler.report import checked as texts

EXAMPLES = """Examples:

op-profiler check resnet-18                                (predict, measure for up to a minute, compare)

op-profiler check mlp --threads 2 --json

op-profiler evaluate --live                                (results of all checks on this machine)

Exit codes: 0 the measured time of the network lies in the interval, or the measurement was disturbed; 1 the measured
time lies outside; 2 wrong usage; 4 the model cannot be lowered; 5 the model cannot be measured, or the predictor or
the file of checks cannot be used.
"""


def check(
    request: Annotated[
        CheckRequest,
        Only(
            "modelsource", "importer", "batch_size", "input_names", "input_shapes", "sequence_length", "check_outputs"
        ),
        Only("compiler", "precision", "schedules", "threads", "device", "db", "include_noisy", "predictor", "seconds"),
    ],
    model: Annotated[str, typer.Argument(help="Name, source:name or path of a model file.")] = "",
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Predict a model, measure it on this machine, and report which 90 % intervals contain the measured times.

    The results are stored in the user's data folder. If too few intervals contain the measured time on this machine,
    later predictions have wider intervals.
    """
    if values.list_devices(request.predicted.device, request.predicted.db):
        return
    if not model:
        raise UsageError("there is no model in the command; name one, such as resnet-18")
    from op_profiler.collection.checking import check as run
    from op_profiler.report.collection import Screen

    asked = request.predicted
    source, name = source_and_name(model, asked.model.source)
    named = dataclasses.replace(asked.model, source=source, name=name)
    request = dataclasses.replace(request, predicted=dataclasses.replace(asked, model=named))
    request.check()
    screen = Screen(quiet=True)
    done = run(request, screen, Screen(quiet=quiet or as_json).note)
    if as_json:
        print(json_text.dumps(done.to_json(), indent=1))
    else:
        if not quiet:
            print(done.origin)
            texts.show_checked(done)
        print(texts.summary(done))
    if not done.held:
        raise typer.Exit(EXIT_FAILURES_RECORDED)
