"""``op-profiler explain``."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from op_profiler import json_text
from op_profiler.analysis.explain.request import ExplainRequest
from op_profiler.cli import options
from op_profiler.cores import binding_order
from op_profiler.errors import DatasetError, UsageError
from op_profiler.files import check_writable
from op_profiler.option_values import parse_counts
from op_profiler.options import MEASURING, Only
from op_profiler.report.explanation import show
from op_profiler.report.status import Status

EXAMPLES = """Examples:

op-profiler explain resnet-18                                      (the operators that take most of the model's time)

op-profiler explain transformers:bert --sequence-length 64 --threads 1 --top 3

op-profiler explain 4f0c2a9be1d37c55 --db sqlite:///mine.db        (one operator, in a model that calls it)

op-profiler explain model.onnx --schedules none --json

op-profiler explain resnet-18 --trace trace.json                   (a timeline of its run in the dataset, for Perfetto)

op-profiler explain resnet18 --against torch,torch.compile         (the whole model also in torch)

Exit codes: 0 done; 2 wrong usage; 3 a runtime of --against is not installed; 4 the model cannot be lowered; 5
a problem of the machine or the dataset.
"""


def explain(
    subject: Annotated[
        str,
        typer.Argument(help="Name, source:name or path of a model file; or the key of an operator (16 hex digits)."),
    ],
    request: Annotated[
        ExplainRequest,
        Only("modelsource", "batch_size", "input_names", "input_shapes", "sequence_length", "check_outputs", "target"),
        Only("schedules", "against", "top", "trials_from", "db"),
    ],
    threads: Annotated[
        str | None,
        typer.Option(
            help="Thread counts to compare with one thread; the explanation is for the largest. Default: as for "
            "collect.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    trace: options.Trace = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Explain why the operators of a model are slow: the causes, how certain each cause is, and what to try.

    The command measures the model on this machine and analyzes the machine code of its kernels, with llvm-mca if it is
    installed. If the dataset contains the model, the explanation is stored there, and op-profiler report shows it.
    --trace writes the run in the dataset as a timeline, with the losses of each operator below the operator.
    """
    from op_profiler.comparison.peers.explain_child import explain_in_child
    from op_profiler.dataset import Dataset
    from op_profiler.dataset.formats.exporting import write_trace
    from op_profiler.measure.background import report_background_load

    if threads is not None:
        build = dataclasses.replace(request.build, threads=parse_counts("--threads", threads))
        request = dataclasses.replace(request, build=build)
    check_writable({"--trace": trace})
    request = request.of(subject)
    request.check()
    if trace is not None and request.db is None:
        raise UsageError("--trace needs a run of the model in a dataset: run op-profiler collect first, or give --db")
    with Status(quiet=quiet) as status:
        if request.build.on_host:
            report_background_load(binding_order()[: max(request.build.threads)], status.note)
        found = explain_in_child(request, status.step)
    if as_json:
        print(json_text.dumps(found))
    else:
        show(found, tables=not quiet)
    if trace is not None:
        if not found.model_keys:
            raise DatasetError(f"--trace {trace} is not written: {found.notes[-1]}")
        with Dataset.open(str(request.db), create=False, read_only=True) as dataset:
            write_trace(trace, dataset, found.model_keys, lambda note: print(note, file=sys.stderr))
