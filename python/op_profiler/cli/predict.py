"""``op-profiler predict``."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from op_profiler.cli import options, values
from op_profiler.errors import UsageError, check_known
from op_profiler.files import check_writable
from op_profiler.frontends.frontend import inputs_of
from op_profiler.option_values import parse_latency_us
from op_profiler.prediction.latency.model_lists import ListedModel, models_of
from op_profiler.prediction.latency.request import PredictRequest
from op_profiler.report.status import Status
from op_profiler.report.tables import print_line, screen

EXAMPLES = """Examples:

op-profiler predict resnet-18                              (the first line of the output names the device)

op-profiler predict transformers:bert --sequence-length 64 --threads 1,2

op-profiler predict resnet-18 --device emeraldrapids       (for another processor, from included data)

op-profiler predict --device list                          (prints the devices; with --db those of the dataset)

op-profiler predict resnet-18 bert --below 5ms --device znver4,emeraldrapids    (several models and devices)

op-profiler predict 'nets/*.onnx'                          (all files that fit a pattern)

op-profiler predict 'search:candidates[*]'                 (all torch modules of the list candidates in search.py)

op-profiler predict @candidates.txt --format csv           (one of the above per line of the file)

op-profiler predict @lines.txt       (a line may be JSON: {"model": "bert", "label": "short", "sequence_length": 64})

op-profiler predict @networks.txt    (a line may describe layers: {"name": "a", "layers": [{"kind": "dense", ...}]})

op-profiler predict resnet-18 --schedules rule             (the kernels of op-profiler collect --schedules rule)

op-profiler predict resnet-18 --target cuda                (for a GPU, from included data)

op-profiler predict transformers:bert --device h200 --kernels vendor    (kernels of NVIDIA's libraries, without a GPU)

op-profiler predict model.onnx --db sqlite:///results/op_profiler.db --format json

op-profiler predict model.tflite --format csv              (.tflite: a row per convolution, a column per predictor)

op-profiler predict resnet-18 --format runtime_lut --input_dims '{"data": [1, 3, 160, 160]}'

op-profiler predict resnet-18 --compiler relax --db sqlite:///results/op_profiler.db    (from measurements of Relax)

op-profiler predict llama --prefill 512 --decode 128 --db steps.db    (seconds to the first token, tokens per second)

Exit codes: 0 all operators have an estimate; 1 some have none, or one of several models failed; 2 wrong usage;
4 the model cannot be lowered; 5 the dataset or the predictor cannot be used.
"""


def predict(  # noqa: PLR0913 - the options are the interface
    request: PredictRequest,
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL...",
            help="Name, source:name, path of a model file, or package.module:function. For several models, give "
            "several of these names, a pattern 'nets/*.onnx', a Python list 'package.module:name[*]', or @FILE, a file "
            "with one name, pattern or JSON object per line. The command then prints a table with a row for each "
            "model, the fastest first.",
        ),
    ] = None,
    input_dims: Annotated[
        str,
        typer.Option(
            "--input_dims",
            "--input-dims",
            help='Names and shapes of the inputs as JSON: {"data": [1, 3, 224, 224]}.',
            rich_help_panel="Model",
        ),
    ] = "",
    save: Annotated[
        Path | None,
        typer.Option(
            help="Also save the predictor to this file; --predictor FILE loads it.",
            rich_help_panel="Predictor",
        ),
    ] = None,
    below: Annotated[
        str,
        typer.Option(
            help="Print only models with a lower predicted latency, such as 5ms or 800us.", rich_help_panel="Output"
        ),
    ] = "",
    report: options.Report = None,
    format: Annotated[
        str,
        typer.Option(
            help="Output format: table, csv, json or runtime_lut (a look-up table).", rich_help_panel="Output"
        ),
    ] = "table",
    quiet: options.Quiet = False,
) -> None:
    """Predict the latency of a model and of each of its operators without measuring."""
    if values.list_devices(request.device, request.db, request.kernels):
        return
    from op_profiler.prediction.latency import answer, predictor_files
    from op_profiler.report import prediction as texts

    if request.kernels == "vendor" and (save is not None or report is not None):
        raise UsageError("--save and --report are for kernels of TVM; leave out --kernels vendor")
    check_known("format", format, texts.FORMATS)
    model = request.model
    if input_dims and (model.input_names or model.input_shapes):
        raise UsageError("give --input_dims, or --inputname and --inputshape, not both")
    if input_dims:
        model = dataclasses.replace(model, **inputs_of((), _dims(input_dims)))
    named, devices = models_of(models or [], model), request.device.split(",") if request.device else [None]
    if request.prefill is not None and (report is not None or format == "runtime_lut" or below):
        raise UsageError("--report, --below and --format runtime_lut are for a model as a whole; leave out --prefill")
    if len(named) * len(devices) > 1 or below or named[0].layers:
        if request.prefill is not None:
            raise UsageError("--prefill is for one model on one device")
        if save is not None or report is not None or format == "runtime_lut":
            raise UsageError("--save, --report and --format runtime_lut are for one model on one device")
        _predict_each(request, named, devices, parse_latency_us("--below", below), format, quiet)
        return
    request = dataclasses.replace(request, model=named[0].request)
    request.check()
    check_writable({"--save": save, "--report": report})
    if request.prefill is not None:
        _predict_generation(request, save, format, quiet)
        return
    with Status(quiet=quiet) as status:
        chosen = answer.choose(request, status.step)
        if save is not None:
            predictor_files.save(chosen.of_tvm, save)
        network, agreement = answer.network_of(chosen, request, status.step)
        each_regressor = format == "csv" and request.model.name.endswith(".tflite") and request.kernels == "tvm"
        parts = answer.of_each_regressor(chosen, network, status.step) if each_regressor else {}
    aside = screen(stderr=format != "table" or quiet)
    if chosen.is_of_other_device or not quiet:  # whoever reads the times has to know that they are another machine's
        print_line(aside, chosen.origin)
    if not quiet or agreement.outputs_agree is False:
        print_line(aside, str(agreement))
    if each_regressor:
        print(texts.regressor_csv(parts))
        return
    found = chosen.predictor
    predictions = [chosen.predict(network, count) for count in chosen.threads]
    if quiet and format == "table":
        print("\n".join(texts.summary(p) for p in predictions))
    elif format == "table":
        console = screen()
        for one in predictions:
            texts.show_prediction(console, one, found)
    else:
        print(texts.render(predictions, format, found.device))
    if not quiet:
        for one in predictions:
            print_line(aside, texts.origin(one, chosen))
    if report is not None:
        from op_profiler.report.page.predicted import predicted_part
        from op_profiler.report.page.report import report_of, write_report

        write_report(report, report_of([predicted_part(predictions, chosen.of_tvm, chosen.wanted, request.target)]))
    if any(one.without_estimate for one in predictions):
        raise typer.Exit(1)


def _predict_generation(request: PredictRequest, save: Path | None, format: str, quiet: bool) -> None:
    """Print the time to the first token and the tokens per second of a language model."""
    from op_profiler.prediction.latency import answer, predictor_files
    from op_profiler.prediction.latency.generation import generation_of, predict_generation
    from op_profiler.report import generation as texts

    with Status(quiet=quiet) as status:
        chosen = answer.choose(request, status.step)
        if save is not None:
            predictor_files.save(chosen.of_tvm, save)
        generation = generation_of(chosen, request, status.step)
    aside = screen(stderr=format != "table" or quiet)
    if chosen.is_of_other_device or not quiet:
        print_line(aside, chosen.origin)
    found = [predict_generation(chosen, generation, count) for count in chosen.threads]
    if format != "table":
        print(texts.render(found, format, chosen.predictor.device))
    for one in found:
        if quiet and format == "table":
            print(texts.summary(one))
        elif format == "table":
            texts.show_generation(screen(), one)
    if not quiet:
        for one in found:
            print_line(aside, texts.origin(one, chosen))
    if any(one.without_estimate for one in found):
        raise typer.Exit(1)


def _predict_each(
    request: PredictRequest,
    models: Sequence[ListedModel],
    devices: Sequence[str | None],
    below_us: float,
    format: str,
    quiet: bool,
) -> None:
    """Print a row for each model, device and thread count."""
    from op_profiler.prediction.latency.candidates import predict_each
    from op_profiler.report import prediction as texts

    with Status(quiet=quiet, steps=len(models)) as status:
        found = list(predict_each(request, models, devices, status.step))
    failed = [one for one in found if one.error is not None]
    kept = [one for one in found if one.total_us is not None and one.total_us < below_us]
    unknown = [one for one in found if one.error is None and one.total_us is None]
    shown = sorted(kept, key=lambda one: one.total_us or 0.0) + unknown + failed
    print(texts.candidates_as(shown, format)) if format != "table" else texts.show_candidates(shown)
    if below_us < math.inf and not quiet:
        print(f"{len(kept)} of {len(found)} below {below_us / 1e3:g} ms", file=sys.stderr)
    if failed or unknown:
        raise typer.Exit(1)


def _dims(text: str) -> dict[str, tuple[int, ...]]:
    """Parse ``--input_dims``, and return the shapes by the names of the inputs; raises UsageError."""
    try:
        found = {name: tuple(shape) for name, shape in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        found = {}
    if not found or any(type(size) is not int or not 0 < size < 1e9 for shape in found.values() for size in shape):
        raise UsageError(f'--input_dims takes JSON such as {{"data": [1, 3, 224, 224]}}, not {text!r}')
    return found
