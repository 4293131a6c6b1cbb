"""``op-profiler explain``."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from op_profiler.addresses import without_password
from op_profiler.cli import options
from op_profiler.dataset import DEFAULT_DB

if TYPE_CHECKING:
    from op_profiler.building.request import BuildRequest

EXAMPLES = """Examples:

op-profiler explain resnet-18                                      (the operators that take most of its time)

op-profiler explain transformers:bert --sequence-length 64 --threads 1 --top 3

op-profiler explain 4f0c2a9be1d37c55 --db sqlite:///mine.db        (one operator of the dataset, in its model)

op-profiler explain model.onnx --schedules none --json

Exit codes: 0 done; 2 wrong usage; 4 the model cannot be lowered; 5 the machine or the dataset stands in the way.
"""


def explain(
    subject: Annotated[
        str, typer.Argument(help="A name, source:name, the path of a model file, or the 16 hex digits of an operator.")
    ],
    modelsource: options.ModelSource = "local",
    batchsize: options.BatchSize = 1,
    inputname: options.InputName = "",
    inputshape: options.InputShape = "",
    sequence_length: options.SequenceLength = None,
    target: options.Target = "llvm",
    threads: Annotated[
        str | None,
        typer.Option(
            help="Thread counts to compare, 1 is always among them; explained is the largest. Default: as collect.",
            rich_help_panel="Measuring",
        ),
    ] = None,
    schedules: options.Schedules = "auto",
    top: Annotated[int, typer.Option(help="How many operators at most.", rich_help_panel="Output")] = 10,
    trials_from: Annotated[
        str,
        typer.Option(
            help="shipped (with the project) or none, beside --db: what says what searches bring.",
            rich_help_panel="Measuring",
        ),
    ] = "shipped",
    db: Annotated[
        str | None,
        typer.Option(
            help="SQLAlchemy address of a dataset: where an operator's key is from, whose trials and vendor's times of "
            "this machine are compared with, and which keeps what is found of a model that it has, for op-profiler "
            f"report. Default: {DEFAULT_DB} if it is there.",
            rich_help_panel="Output",
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Why operators take as long as they do: what each loses to what, how sure that is, and what to try.

    It measures them here and reads their machine code, with llvm-mca where it is installed. Where the dataset has the
    model, it keeps what was found, and op-profiler report shows it.
    """
    from op_profiler import json_text
    from op_profiler.analysis.explain.explain import ExplainRequest
    from op_profiler.analysis.explain.explain import explain as run
    from op_profiler.building.request import BuildRequest
    from op_profiler.cli import values
    from op_profiler.errors import UsageError
    from op_profiler.frontends import FRONTENDS, source_and_name
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.report.explanation import show
    from op_profiler.report.status import Status

    if trials_from not in ("shipped", "none"):
        raise UsageError(f"--trials-from {trials_from!r}: give shipped or none")
    if db is None and Path(DEFAULT_DB.removeprefix("sqlite:///")).is_file():
        db = DEFAULT_DB
    operator = subject if re.fullmatch(r"[0-9a-f]{16}", subject) else None
    if operator is not None:
        asked = _build_of(operator, db or DEFAULT_DB)
    else:
        source, name = source_and_name(subject, modelsource)
        asked = BuildRequest(
            model=ModelRequest(
                source=source,
                name=name,
                batch_size=batchsize,
                input_names=values.parse_names("--inputname", inputname) if inputname else (),
                input_shapes=values.parse_shapes("--inputshape", inputshape) if inputshape else (),
                sequence_length=sequence_length,
            )
        )
    FRONTENDS.get(asked.model.source).check(asked.model)
    counts = values.thread_counts(threads, target, None)
    request = ExplainRequest(
        build=dataclasses.replace(asked, target=target, place=None, schedules=schedules, threads=counts),
        operator=operator,
        top=top,
        db=db,
        shipped=trials_from == "shipped",
    )
    request.check()
    with Status(quiet=quiet) as status:
        found = run(request, status.step)
    if as_json:
        import msgspec

        print(json_text.dumps(msgspec.to_builtins(found)))
        return
    show(found, tables=not quiet, terminal=sys.stdout.isatty())


def _build_of(operator: str, db: str) -> BuildRequest:
    """What the first model of the dataset that calls an operator was built of: as its recipe tells, or its row.

    Raises:
        UsageError: there is none, or none that can be explained.
        DatasetError: its recipe cannot be read.
    """
    from op_profiler.building.recipe import Recipe
    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers import DEFAULT_COMPILER
    from op_profiler.dataset import Dataset, flat_rows
    from op_profiler.errors import UsageError
    from op_profiler.frontends.frontend import ModelRequest

    with Dataset.open(db, create=False, read_only=True) as dataset:
        columns = ("model_key", "model_name")
        rows = flat_rows(dataset, where=f"operator_key = '{operator}'", columns=columns)
        key = next((row["model_key"] for row in rows if row["model_name"]), None)
        model = dataset.find_model(key) if key is not None else None
    if model is None:
        raise UsageError(
            f"{without_password(db)} has no model that calls operator {operator}; op-profiler export names keys, or "
            "give the model"
        )
    if model.recipe is not None:
        asked = Recipe.from_json(model.recipe).request
        if asked.precision != "float32" or asked.compiler != DEFAULT_COMPILER:
            raise UsageError(
                f"operator {operator} is of {model.name} in {asked.precision} by {asked.compiler}; op-profiler explain "
                f"reads the machine code of float32 models by {DEFAULT_COMPILER}"
            )
        return asked
    return BuildRequest(model=ModelRequest(source=model.source, name=model.name, batch_size=model.batch_size))
