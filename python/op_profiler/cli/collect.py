"""``op-profiler collect`` and ``op_performance_collector.py``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from op_profiler import json_text

if TYPE_CHECKING:
    from op_profiler.collection.summary import ModelReport
    from op_profiler.targets.machine import Place

EXAMPLES = """Examples:

op_performance_collector.py --modelsource local --modelname resnet-18

op_performance_collector.py --modelsource transformers --modelname bert --sequence-length 64 --threads 1,2

op_performance_collector.py --modelsource file --modelname model.onnx --batchsize 8 --summary-json summary.json

op_performance_collector.py --modelsource remoteonnx --modelname https://example.org/net.onnx --refetch

op_performance_collector.py --modelsource local --modelname resnet-18 --iftune true --trials 64 --ifcompare true

op_performance_collector.py --modelsource local --modelname resnet-18 --threads 1 --sweep core_set=0,1

op_performance_collector.py --modelsource local            (all default models, one after the other; resumable)

op_performance_collector.py --modelsource local --modelname resnet-18 --remeasure noisy

op_performance_collector.py --modelsource local --modelname resnet-18 --target cuda --precision float32,float16

op_performance_collector.py --modelsource local --modelname mobilenet --target pynq --host 192.168.2.99 --port 9190

Exit codes: 0 all measured; 1 finished, but an operator or a model failed (recorded in the dataset); 2 wrong usage;
3 a package is missing; 4 the model cannot be read or lowered; 5 the machine, the disk or the dataset stands in the way.
"""


def collect(  # noqa: PLR0913 - the options are the interface
    context: typer.Context,
    modelsource: Annotated[
        str, typer.Option(help="local, transformers, remoteonnx, simple, tflite or file.", rich_help_panel="Model")
    ] = "local",
    modelname: Annotated[
        str | None,
        typer.Option(
            help="A name of that source, a path, an address, or 'list'. Left out: all default models of the source.",
            rich_help_panel="Model",
        ),
    ] = None,
    batchsize: Annotated[int, typer.Option(help="Leading dimension of the inputs.", rich_help_panel="Model")] = 1,
    inputname: Annotated[
        str, typer.Option(help="Names of the inputs, by commas, where a model needs them.", rich_help_panel="Model")
    ] = "",
    inputshape: Annotated[
        str,
        typer.Option(help="Shapes of the inputs: 1,3,224,224; a semicolon between inputs.", rich_help_panel="Model"),
    ] = "",
    sequence_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens per sequence of language models.", rich_help_panel="Model")
    ] = None,
    refetch: Annotated[
        bool,
        typer.Option(
            "--refetch",
            help="Ask the address of a model whether it has changed. Otherwise it is fetched once, and used from the "
            "cache folder by every command from then on, also without a network.",
            rich_help_panel="Model",
        ),
    ] = False,
    target: Annotated[
        str,
        typer.Option(
            help="llvm (this processor), cuda, pynq, arm_cpu, or a TVM target string that starts with one of these.",
            rich_help_panel="Measuring",
        ),
    ] = "llvm",
    precision: Annotated[
        str,
        typer.Option(
            help="float32, float16 or int8; several by commas are shown beside each other, with their accuracy.",
            rich_help_panel="Measuring",
        ),
    ] = "float32",
    inputdata: Annotated[
        Path | None,
        typer.Option(
            help="File of arrays (.npz) by the inputs' names, to run and to calibrate int8 with. Default: random.",
            rich_help_panel="Model",
        ),
    ] = None,
    executor: Annotated[
        str, typer.Option(help="default (graph), or vm for dynamic shapes.", rich_help_panel="Measuring")
    ] = "default",
    threads: Annotated[
        str | None,
        typer.Option(
            help="Thread counts to measure at: 1,2,4. Default: powers of two up to the usable cores, and that number; "
            "1,2 on pynq, 1 on other boards.",
            rich_help_panel="Measuring",
        ),
    ] = None,
    coverage: Annotated[
        float,
        typer.Option(
            help="Share of the model's time whose operators must settle at every thread count (the heavy ones).",
            rich_help_panel="Measuring",
        ),
    ] = 0.95,
    cache: Annotated[
        str,
        typer.Option(
            help="Caches as an operator meets them: model (as its neighbours leave them), hot or cold.",
            rich_help_panel="Measuring",
        ),
    ] = "model",
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE,VALUE,...: measure with each value of a resource of this machine; several give every "
            "combination. governor=performance,powersave; core_set=0,1,0-1 (0-1 and 0+1 are sets of two cores, which "
            "n threads take the first n of). 'op-profiler devices --local' lists the resources.",
            rich_help_panel="Measuring",
        ),
    ] = None,
    remeasure: Annotated[
        str,
        typer.Option(
            help="Measure again what the dataset has: failed (what does not compile, crashes or is wrong), noisy "
            "(under foreign load, or not settled) or all. What failed because of the machine is tried again anyway.",
            rich_help_panel="Measuring",
        ),
    ] = "",
    iftune: Annotated[
        str, typer.Option(help="true or false: search for better schedules first.", rich_help_panel="Tuning")
    ] = "false",
    ifcompare: Annotated[
        str,
        typer.Option(
            help="true or false: run the model with default and with recorded schedules in turns.",
            rich_help_panel="Tuning",
        ),
    ] = "false",
    ifpartial: Annotated[
        str,
        typer.Option(
            help="true or false: also the best after 100, 300, 500 and 1000 trials.", rich_help_panel="Tuning"
        ),
    ] = "false",
    tuner: Annotated[
        str,
        typer.Option(
            help="xgb_knob, xgb, xgb-rank, xgb_itervar, xgb_curve, ga, random, gridsearch or droplet.",
            rich_help_panel="Tuning",
        ),
    ] = "xgb_knob",
    trials: Annotated[int, typer.Option(help="10 to 3000 candidates an operator.", rich_help_panel="Tuning")] = 64,
    schedules: Annotated[
        str,
        typer.Option(
            help="Schedule records to compile with: auto (this processor's), none, or the folder that holds them.",
            rich_help_panel="Tuning",
        ),
    ] = "auto",
    vendor: Annotated[
        str,
        typer.Option(help="true or false: time torch's kernels for the heavy operators too.", rich_help_panel="Tuning"),
    ] = "false",
    host: Annotated[
        str | None,
        typer.Option(help="Of an RPC tracker, or of an RPC server itself.", rich_help_panel="Device"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(help="Its port.", rich_help_panel="Device"),
    ] = None,
    device_key: Annotated[
        str | None,
        typer.Option(help="Which of the tracker's machines. Default: the target's name.", rich_help_panel="Device"),
    ] = None,
    module: Annotated[
        Path | None,
        typer.Option(
            help="A compiled function (.so, .o, .tar) to time on the board in place of a model; --inputshape gives its "
            "tensors, the output last.",
            rich_help_panel="Device",
        ),
    ] = None,
    entry: Annotated[
        str | None, typer.Option(help="Name of the function in --module.", rich_help_panel="Device")
    ] = None,
    db: Annotated[
        str, typer.Option(help="SQLAlchemy address of the dataset.", rich_help_panel="Output")
    ] = "sqlite:///results/op_profiler.db",
    summary_json: Annotated[
        Path | None, typer.Option(help="File for the summary as JSON.", rich_help_panel="Output")
    ] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="Also print the operator and hardware tables.", rich_help_panel="Output")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Extract, count and cost; measure nothing.", rich_help_panel="Output")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="No progress and no tables; errors only.", rich_help_panel="Output")
    ] = False,
) -> None:
    """Measure every operator of a model, as the compiler emits it, and the whole model beside them."""
    from op_profiler.cli import options
    from op_profiler.collection.request import CollectRequest, Studies, TuneRequest
    from op_profiler.collection.supervisor import Collection
    from op_profiler.collection.sweep import parse_sweeps, swept
    from op_profiler.errors import UsageError
    from op_profiler.files import check_writable, write_whole
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.report.collection import Screen
    from op_profiler.targets.target import kind_of

    tune = TuneRequest(tuner=tuner, trials=trials)
    tune.check()
    studies = Studies(
        tune=tune if options.parse_bool("--iftune", iftune) else None,
        compare=options.parse_bool("--ifcompare", ifcompare),
        vendor=options.parse_bool("--vendor", vendor),
        partial=options.parse_bool("--ifpartial", ifpartial),
    )
    of_a_search = [f"--{name}" for name in ("trials", "tuner") if options.is_given(context, name)]
    if of_a_search and not studies.tune:
        raise UsageError(f"{' and '.join(of_a_search)}: there is a search only with --iftune true")
    wanted = bool(studies.tune or studies.compare or studies.vendor)
    if schedules == "none" and (studies.tune or studies.compare):
        raise UsageError("--schedules none leaves nothing to tune for or to compare with; leave it out")
    if studies.partial and not studies.tune:
        raise UsageError("--ifpartial true reports on a search; add --iftune true")
    if wanted and (dry_run or executor == "vm"):
        other = "--dry-run measures nothing" if dry_run else "the virtual machine is measured as it is"
        raise UsageError(f"{other}; leave out --iftune, --ifcompare and --vendor")
    combinations = parse_sweeps(sweep or [])
    if sweep and (wanted or dry_run):
        raise UsageError("--sweep only measures; leave out --iftune, --ifcompare, --vendor and --dry-run")
    check_writable({"--summary-json": summary_json})
    place = options.parse_place(host, port, device_key, kind_of(target).name)
    if studies.vendor:
        kind_of(target).check_vendor(place)
    if (module is not None or entry is not None) and modelname is not None:
        raise UsageError("--module and --entry time a function in place of a model; leave out --modelname")
    if module is not None or entry is not None:
        _measure_module(module, entry, target, place, inputshape, db, summary_json, quiet=quiet)
        return
    frontend = FRONTENDS.get(modelsource)
    if modelname == "list":
        print("\n".join(frontend.names()))
        return
    names = frontend.default_names() if modelname is None else [modelname]
    if not names:
        raise UsageError(f"source {modelsource!r} has no default models; give --modelname (a path or a name)")
    if refetch:
        _refetch(modelsource, modelname or "")
    lengths = options.lengths_of([(frontend, name) for name in names], sequence_length)
    usual = kind_of(target).default_thread_counts(place)
    counts = options.parse_counts("--threads", threads) if threads is not None else usual
    requests = [
        request
        for name, length in zip(names, lengths)
        for one in dict.fromkeys(options.parse_names("--precision", precision))
        for request in swept(
            CollectRequest(
                model=ModelRequest(
                    source=modelsource,
                    name=name,
                    batch_size=batchsize,
                    input_names=options.parse_names("--inputname", inputname) if inputname else (),
                    input_shapes=options.parse_shapes("--inputshape", inputshape) if inputshape else (),
                    sequence_length=length,
                ),
                target=target,
                place=place,
                input_data=str(inputdata) if inputdata is not None else None,
                precision=one,
                executor=executor,
                threads=counts,
                coverage=coverage,
                cache=cache,  # type: ignore[arg-type]  # checked by CollectRequest.check
                schedules=schedules,
                remeasure=remeasure,
                db=db,
                dry_run=dry_run,
            ),
            combinations,
        )
    ]
    screen = Screen(quiet=quiet)
    with Collection(db) as collection:
        summaries = collection.run(frontend, requests, screen, studies if wanted else None)
        screen.show(summaries, collection.dataset if tables else None, partial=studies.partial)
    if summary_json is not None:
        entries = [entry for summary in summaries for entry in summary.to_json()]
        write_whole(summary_json, json_text.dumps(entries, indent=1) + "\n")
    code = max((s.exit_code for s in summaries), default=0) if len(requests) == 1 else _exit_of_many(summaries)
    if code:
        raise typer.Exit(code)


def _refetch(source: str, name: str) -> None:
    """Fetch the model behind an address again if it has changed there."""
    from op_profiler.errors import UsageError
    from op_profiler.frontends import downloads

    if source != "remoteonnx" or not downloads.is_address(name):
        raise UsageError("--refetch is for a model behind an address: --modelsource remoteonnx --modelname https://...")
    downloads.download(name, again=True)


def _measure_module(
    path: Path | None,
    entry: str | None,
    target: str,
    place: Place | None,
    shapes: str,
    db: str,
    summary_json: Path | None,
    *,
    quiet: bool,
) -> None:
    """Time a ready-made function of the user's."""
    from op_profiler.cli import options
    from op_profiler.collection.user_module import measure_module
    from op_profiler.errors import UsageError
    from op_profiler.files import write_whole

    if path is None or entry is None or place is None or not shapes:
        raise UsageError(
            "--module takes --entry NAME, --inputshape (of every tensor, the outputs last), --host and --port"
        )
    found = measure_module(path, entry, target, place, options.parse_tensors("--inputshape", shapes), db)
    if summary_json is not None:
        write_whole(summary_json, json_text.dumps([found], indent=1) + "\n")
    if not quiet:
        time = f"{found['median_us']:.1f} us" if found["error"] is None else f"failed: {found['error']}"
        print(f"{found['operator']} on {found['processor']} at {found['address']}: {time}")
    if found["error"] is not None:
        raise typer.Exit(1)


def _exit_of_many(summaries: list[ModelReport]) -> int:
    return 1 if any(s.exit_code for s in summaries) else 0
