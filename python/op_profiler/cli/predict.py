"""``op-profiler predict``."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from op_profiler.cli import options
from op_profiler.compilers import COMPILERS, DEFAULT_COMPILER
from op_profiler.compilers.importers import AUTO, check_importer

if TYPE_CHECKING:
    from collections.abc import Callable

    from op_profiler.building.request import BuildRequest
    from op_profiler.measure.measurement import Precision
    from op_profiler.predict.latency.network import Network
    from op_profiler.predict.latency.predictor import Predictor

    Note = Callable[[str], None]

EXAMPLES = """Examples:

op-profiler predict resnet-18                              (of this machine after op-profiler calibrate, else of its
                                                            processor or the nearest that ships; the first line says so)

op-profiler predict transformers:bert --sequence-length 64 --threads 1,2

op-profiler predict resnet-18 --device emeraldrapids       (of a processor that ships, wherever it is asked)

op-profiler predict resnet-18 --target cuda                (of the GPU that ships; it is lowered by TVM with CUDA)

op-profiler predict model.onnx --db sqlite:///results/op_profiler.db --format json

op-profiler predict model.tflite --format csv              (one row a convolution, one column a regressor)

op-profiler predict resnet-18 --format runtime_lut --input_dims '{"data": [1, 3, 160, 160]}'

op-profiler predict resnet-18 --compiler relax --db sqlite:///results/op_profiler.db      (of what relax took there)

op-profiler predict resnet-18 --db sqlite:///other.db --adapt 50     (a new device, from 50 of its operators)

Exit codes: 0 all operators have an estimate; 1 some have none (named); 2 wrong usage; 4 the model cannot be lowered;
5 the dataset or the predictor cannot be used.
"""


def predict(  # noqa: PLR0913 - the options are the interface
    model: Annotated[str, typer.Argument(help="A name, source:name, or the path of a model file.")],
    modelsource: options.ModelSource = "local",
    batchsize: options.BatchSize = 1,
    inputname: options.InputName = "",
    inputshape: options.InputShape = "",
    input_dims: Annotated[
        str,
        typer.Option(
            "--input_dims",
            "--input-dims",
            help='Names and shapes as JSON: {"data": [1, 3, 224, 224]}.',
            rich_help_panel="Model",
        ),
    ] = "",
    input_dtype: Annotated[
        str,
        typer.Option(
            "--input_dtype", "--input-dtype", help="float32; checked against the model.", rich_help_panel="Model"
        ),
    ] = "",
    sequence_length: options.SequenceLength = None,
    target: Annotated[
        str | None,
        typer.Option(help="What the model is lowered for; default: the predictor's device.", rich_help_panel="Device"),
    ] = None,
    compiler: options.Compiler = DEFAULT_COMPILER,
    importer: options.Importer = AUTO,
    precision: Annotated[str, typer.Option(help="float32, float16 or int8.", rich_help_panel="Device")] = "float32",
    threads: Annotated[
        str | None, typer.Option(help="Thread counts that were measured. Default: 1.", rich_help_panel="Device")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="Start of a device's key, or part of its name or target; default: this processor, or the nearest that "
            "ships.",
            rich_help_panel="Device",
        ),
    ] = None,
    db: Annotated[
        str | None, typer.Option(help="Dataset to learn from; default: what ships.", rich_help_panel="Predictor")
    ] = None,
    predictor: Annotated[
        str,
        typer.Option(
            help="{predictors}, or a file.",
            rich_help_panel="Predictor",
        ),
    ] = "default",
    adapt: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Use only N measured operators of --db, and what ships for the rest.",
            rich_help_panel="Predictor",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            help="Also write the predictor that answered to a file, for --predictor.", rich_help_panel="Predictor"
        ),
    ] = None,
    report: options.Report = None,
    format: Annotated[str, typer.Option(help="table, csv, json or runtime_lut.", rich_help_panel="Output")] = "table",
    quiet: options.Quiet = False,
) -> None:
    """Predict the latency of every operator of a model, and of the model, without measuring anything."""
    from op_profiler.building.request import BuildRequest
    from op_profiler.cli import values
    from op_profiler.compilers.abilities import require
    from op_profiler.compilers.compiler import use_compiler
    from op_profiler.errors import UnknownNameError, UsageError
    from op_profiler.files import check_writable
    from op_profiler.frontends import FRONTENDS, source_and_name
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.predict.latency import PREDICTORS, predictor_files
    from op_profiler.predict.latency.calibration import calibrated, of_another, whose_times
    from op_profiler.predict.latency.network import predict_network
    from op_profiler.predict.latency.open_predictor import check_choice, device_for, open_predictor
    from op_profiler.report import prediction as texts
    from op_profiler.report.status import Status
    from op_profiler.targets.target import kind_of

    if format not in texts.FORMATS:
        raise UnknownNameError("format", format, texts.FORMATS)
    if adapt is not None and db is None:
        raise UsageError("--adapt takes the new device's measurements from --db")
    if adapt is not None and predictor != "default":
        raise UsageError("--adapt starts from the predictor that ships; leave out --predictor")
    if db is not None and predictor not in PREDICTORS:
        check_choice(predictor)
        raise UsageError(f"{predictor} was fitted before, and learns nothing from a dataset; leave out --db")
    if input_dims and (inputname or inputshape):
        raise UsageError("give --input_dims, or --inputname and --inputshape, not both")
    names, shapes = (
        values.parse_names("--inputname", inputname) if inputname else (),
        values.parse_shapes("--inputshape", inputshape) if inputshape else (),
    )
    if input_dims:
        names, shapes = _dims(input_dims)
    source, name = source_and_name(model, modelsource)
    request = ModelRequest(
        source=source,
        name=name,
        batch_size=batchsize,
        input_names=names,
        input_shapes=shapes,
        sequence_length=sequence_length,
        importer=importer,
    )
    require(compiler, "predict", "predict")
    check_importer(importer, COMPILERS.get(compiler))
    use_compiler(compiler)
    counts = values.parse_counts("--threads", "1" if threads is None else threads)
    FRONTENDS.get(source).check(request)
    check_writable({"--save": save, "--report": report})
    with Status(quiet=quiet) as status:
        on_gpu = target is not None and kind_of(target).on_gpu
        named = db or device or (None if predictor in PREDICTORS else predictor)
        found = None
        if named is None and predictor == "default" and compiler == DEFAULT_COMPILER:
            found = calibrated(partial(open_predictor, on_gpu=on_gpu), target, status.step)
        wanted = named or (None if found is None else "a calibration")
        if wanted is None:
            device = device_for(target)
        found = found or _predictor(predictor, db, device, compiler, adapt, status.step, on_gpu=on_gpu)
        origin, another = whose_times(found.device, wanted, target), of_another(found.device, wanted, target)
        built_for, of_gpu = target or found.device.target, kind_of(found.device.target).on_gpu
        if kind_of(built_for).on_gpu != of_gpu:
            raise UsageError(
                f"--target {target} does not fit the times of {found.device.processor} ({found.device.target}); leave "
                "it out, or name a device that fits with --device"
            )
        if of_gpu:
            if threads is not None:
                raise UsageError("--threads has no meaning for kernels of a GPU, which bring their own; leave it out")
            counts = tuple(found.thread_counts)  # 0: its kernels have blocks and threads of their own
            if target == kind_of(found.device.target).name:
                built_for = found.device.target  # no GPU need be here
        found.check_threads(counts)
        if save is not None:
            predictor_files.save(found, save)
        build = BuildRequest(
            model=request,
            target=built_for,
            compiler=compiler,
            precision=cast("Precision", precision),
            schedules="none",
            threads=(0,) if of_gpu else (1,),
        )
        network = _network(build, input_dtype, status.step)
        network = network.told(found, counts, target=build.target, note=status.step)
        each_regressor = format == "csv" and name.endswith(".tflite")
        parts = {}
        for choice, method in PREDICTORS.available() if each_regressor else ():
            if method.only_regresses:
                regressor = _predictor(choice, db, device, compiler, None, status.step)
                told = network.told(regressor, counts[:1], target=build.target, note=status.step)  # it looks nothing up
                parts[choice] = predict_network(regressor, told, threads=counts[0])
    if another or not quiet:  # whoever reads the times has to know that they are another machine's
        print(origin, file=sys.stdout if format == "table" and not quiet else sys.stderr)
    if each_regressor:
        print(texts.regressor_csv(parts))
        return
    predictions = [predict_network(found, network, threads=count) for count in counts]
    if quiet and format == "table":
        print("\n".join(texts.summary(p) for p in predictions))
    elif format == "table":
        from rich.console import Console

        console = Console(width=None if sys.stdout.isatty() else 150)
        for one in predictions:
            texts.show_table(console, one, found)
    else:
        print(texts.render(predictions, format, found.device))
    if report is not None:
        from op_profiler.report.page.predicted import predicted_part
        from op_profiler.report.page.report import report_of, write_report

        write_report(report, report_of([predicted_part(predictions, found, wanted, target)]))
    if any(one.unsupported for one in predictions):
        raise typer.Exit(1)


def _predictor(
    choice: str,
    db: str | None,
    device: str | None,
    compiler: str,
    adapt: int | None,
    note: Note,
    *,
    on_gpu: bool = False,
) -> Predictor:
    from op_profiler.predict.latency.open_predictor import examples_for, open_predictor

    if adapt is None:
        return open_predictor(choice, db=db, device=device, compiler=compiler, on_gpu=on_gpu, note=note)
    from op_profiler.predict.latency.adapt import adapted, chosen_samples
    from op_profiler.predict.latency.steady_times import steady
    from op_profiler.targets.target import kind_of

    target = steady(examples_for(db=db, device=device, compiler=compiler, note=note))
    source = open_predictor(choice, on_gpu=kind_of(target.devices[int(target.device[0])].target).on_gpu, note=note)
    note(f"adapting to {adapt} operators")
    return adapted(source, chosen_samples(target, adapt))


def _dims(text: str) -> tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]:
    """Names and shapes of ``--input_dims``."""
    from op_profiler.errors import UsageError

    try:
        found = json.loads(text)
        shapes = tuple(map(tuple, found.values()))
    except (ValueError, TypeError, AttributeError, RecursionError):
        shapes = ()
    if not shapes or any(type(size) is not int or not 0 < size < 1e9 for shape in shapes for size in shape):
        raise UsageError(f'--input_dims takes JSON such as {{"data": [1, 3, 224, 224]}}, not {text!r}')
    return tuple(found), shapes


def _network(build: BuildRequest, dtype: str, note: Note) -> Network:
    """The model's operators; what takes long is said."""
    from op_profiler.errors import UsageError
    from op_profiler.predict.latency.lowered_models import lowered_model

    build.check(dry_run=True)
    model = lowered_model(build, note)
    if dtype and any(found != dtype for found in model.input_dtypes.values()):
        takes = ", ".join(f"{name}: {found}" for name, found in model.input_dtypes.items())
        raise UsageError(f"--input_dtype {dtype}: {build.model.name} takes {takes}")
    return model.network()
