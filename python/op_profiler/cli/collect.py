"""``op-profiler collect`` and ``op_performance_collector.py``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.compilers.importers import AUTO
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE
from op_profiler.dataset import DEFAULT_DB

if TYPE_CHECKING:
    from op_profiler.collection.summary import ModelReport
    from op_profiler.measure.measurement import Cache, Precision

EXAMPLES = """Examples:

op_performance_collector.py --modelsource local --modelname resnet-18

op_performance_collector.py --modelsource transformers --modelname bert --sequence-length 64 --threads 1,2

op_performance_collector.py --modelsource file --modelname model.onnx --batchsize 8 --summary-json summary.json

op_performance_collector.py --modelsource remoteonnx --modelname https://example.org/net.onnx --refetch

op_performance_collector.py --modelsource local --modelname resnet-18 --iftune true --trials 64 --ifcompare true

op_performance_collector.py --modelsource local --modelname resnet-18 --threads 1 --sweep core_set=0,1

op_performance_collector.py --modelsource local            (all default models, one after the other; resumable)

op_performance_collector.py --modelsource local --modelname resnet-18 --remeasure noisy

op_performance_collector.py --modelsource transformers --modelname bert --by-layer 3

op_performance_collector.py --compiler relax --modelname llama --prefill 128 --decode 1 --past 512,2048

op_performance_collector.py --modelsource local --modelname resnet-18 --label before   (then: op-profiler compare)

op_performance_collector.py --modelsource local --modelname resnet-18 --target cuda --precision float32,float16

op_performance_collector.py --modelsource local --modelname mobilenet --target pynq --host 192.168.2.99 --port 9190

op_performance_collector.py --modelsource local --cluster tcp://127.0.0.1:8786 --db postgresql://me@host/times

Exit codes: 0 all measured; 1 finished, but an operator or a model failed (recorded in the dataset); 2 wrong usage;
3 a package is missing; 4 the model cannot be read or lowered; 5 the machine, the disk or the dataset stands in the way.
"""


def collect(  # noqa: PLR0913 - the options are the interface
    context: typer.Context,
    modelsource: options.ModelSource = "local",
    modelname: Annotated[
        str | None,
        typer.Option(
            help="A name, source:name, a path, an address, or 'list'. Left out: all default models of the source.",
            rich_help_panel="Model",
        ),
    ] = None,
    batchsize: options.BatchSize = 1,
    inputname: options.InputName = "",
    inputshape: options.InputShape = "",
    sequence_length: options.SequenceLength = None,
    prefill: Annotated[
        str | None,
        typer.Option(
            help="Measure a decoder taking so many tokens at once (128,512) into an empty KV cache. --compiler relax; "
            "names are those of transformers: llama, mistral, qwen2, or a folder with a config.json.",
            rich_help_panel="Model",
        ),
    ] = None,
    decode: Annotated[
        str | None,
        typer.Option(
            help="Measure a decoder taking so many tokens (1) behind those that its KV cache holds (--past).",
            rich_help_panel="Model",
        ),
    ] = None,
    past: Annotated[
        str | None,
        typer.Option(help="Tokens in the KV cache for --decode: 512,2048.", rich_help_panel="Model"),
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
    target: options.Target = "llvm",
    compiler: options.Compiler = DEFAULT_COMPILER,
    pipeline: options.Pipeline = DEFAULT_PIPELINE,
    importer: options.Importer = AUTO,
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
    threads: options.Threads = None,
    coverage: Annotated[
        float,
        typer.Option(
            help="Share of the model's time whose operators must settle at every thread count (the heavy ones).",
            rich_help_panel="Measuring",
        ),
    ] = 0.95,
    cache: options.CacheState = "model",
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE,VALUE,...: measure with each value of a resource of this machine; several give every "
            "combination. governor=performance,powersave; core_set=0,1,0-1 (0-1 and 0+1 are sets of two cores, which "
            "n threads take the first n of). 'op-profiler devices --local' lists the resources.",
            rich_help_panel="Measuring",
        ),
    ] = None,
    remeasure: options.Remeasure = "",
    energy: Annotated[
        str,
        typer.Option(
            help="Energy, where the machine has a counter: of the model and its heavy operators (operators), of the "
            "model, or none. Each takes half a second. What the dataset has already gets none; see --remeasure.",
            rich_help_panel="Measuring",
        ),
    ] = "operators",
    counters: Annotated[
        bool,
        typer.Option(
            "--counters",
            help="After the rounds also count cycles, instructions, cache and branch misses, page faults and context "
            "switches of each kernel, where the machine has such counters; on a GPU, by Nsight Compute (ncu), what a "
            "kernel reaches of the peaks of memory, SMs and tensor cores. What the dataset has already is counted, "
            "and not timed again.",
            rich_help_panel="Measuring",
        ),
    ] = False,
    label: Annotated[
        str,
        typer.Option(
            help="Name of this run: the dataset keeps it beside other runs of the same model, to compare them.",
            rich_help_panel="Output",
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
        str | None,
        typer.Option(
            help="Strategy of the search: {tuners}. Default: xgb_knob; trees on GPUs and with --compiler relax.",
            rich_help_panel="Tuning",
        ),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(
            help="Schedules that are searched: templates of this project, or with --compiler relax automatic, "
            "MetaSchedule's own. Default: templates.",
            rich_help_panel="Tuning",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(help="10 to 3000 candidates an operator.", rich_help_panel="Tuning")] = 64,
    schedules: options.Schedules = "auto",
    vendor: Annotated[
        str,
        typer.Option(help="true or false: time torch's kernels for the heavy operators too.", rich_help_panel="Tuning"),
    ] = "false",
    host: options.Host = None,
    port: options.Port = None,
    device_key: options.DeviceKey = None,
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
    cluster: options.Cluster = None,
    each: options.Each = False,
    needs: options.Needs = None,
    db: options.Db = DEFAULT_DB,
    summary_json: Annotated[
        Path | None, typer.Option(help="File for the summary as JSON.", rich_help_panel="Output")
    ] = None,
    report: options.Report = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="Also print the operator and hardware tables.", rich_help_panel="Output")
    ] = False,
    by_layer: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Also print the time by the model's layers, such as torch's modules: by the first so many parts of "
            "their names (1: encoder, 2: encoder.layer, ...), 0 for whole names.",
            rich_help_panel="Output",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Extract, count and cost; measure nothing.", rich_help_panel="Output")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure every operator of a model, as the compiler emits it, and the whole model beside them."""
    from op_profiler.building.request import BuildRequest
    from op_profiler.cli import values
    from op_profiler.cli.module import refuse_beside_module, time_module
    from op_profiler.collection.request import CollectRequest, Measuring, Studies, TuneRequest
    from op_profiler.collection.supervisor import Collection
    from op_profiler.collection.sweep import parse_sweeps, swept
    from op_profiler.compilers.abilities import require
    from op_profiler.errors import UsageError
    from op_profiler.files import check_writable, write_whole
    from op_profiler.frontends import FRONTENDS, source_and_name
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.report.collection import Screen
    from op_profiler.targets.target import kind_of

    tuned, partial = values.parse_bool("--iftune", iftune), values.parse_bool("--ifpartial", ifpartial)
    tune = TuneRequest(tuner=tuner, space=space, trials=trials, partial=partial)
    tune.check()
    of_a_search = [f"--{name}" for name in ("trials", "tuner", "space") if values.is_given(context, name)]
    if of_a_search and not tuned:
        raise UsageError(f"{' and '.join(of_a_search)}: there is a search only with --iftune true")
    if partial and not tuned:
        raise UsageError("--ifpartial true reports on a search; add --iftune true")
    studies = Studies(
        tune=tune if tuned else None,
        compare=values.parse_bool("--ifcompare", ifcompare),
        vendor=values.parse_bool("--vendor", vendor),
    )
    combinations = parse_sweeps(sweep or [])
    if by_layer is not None:
        require(compiler, "layers", "--by-layer")
    check_writable({"--summary-json": summary_json, "--report": report})
    place = values.parse_place(host, port, device_key, kind_of(target).name)
    if module is not None or entry is not None:
        refuse_beside_module(context)
        time_module(module, entry, target, compiler, place, inputshape, db, summary_json, quiet=quiet)
        return
    steps = values.parse_steps(prefill, decode, past)
    if not values.is_given(context, "modelsource"):
        modelsource = "transformers" if steps else modelsource
        if modelname:
            modelsource, modelname = source_and_name(modelname, modelsource)
    frontend = FRONTENDS.get(modelsource)
    if modelname == "list":
        for name in frontend.names():
            print(name)
        return
    names = frontend.default_names() if modelname is None else [modelname]
    if not names:
        raise UsageError(f"source {modelsource!r} has no default models; give --modelname (a path or a name)")
    if refetch:
        _refetch(modelsource, modelname or "")
    model = ModelRequest(
        source=modelsource,
        name="",
        batch_size=batchsize,
        input_names=values.parse_names("--inputname", inputname) if inputname else (),
        input_shapes=values.parse_shapes("--inputshape", inputshape) if inputshape else (),
        importer=importer,
    )
    build = BuildRequest(
        model=model,
        target=target,
        compiler=compiler,
        pipeline=pipeline,
        place=place,
        executor=executor,
        input_data=str(inputdata) if inputdata is not None else None,
        schedules=schedules,
        threads=values.thread_counts(threads, target, place) if threads or not cluster else (),
        cache=cast("Cache", cache),
    )
    request = CollectRequest(
        build=build,
        measuring=Measuring(coverage=coverage, remeasure=remeasure, counters=counters, energy=energy),
        studies=studies,
        db=db,
        dry_run=dry_run,
        label=label,
    )
    if steps:
        if sequence_length is not None:
            raise UsageError("--prefill and --decode say how many tokens; leave out --sequence-length")
        named = [dataclasses.replace(model, name=name) for name in names]
        models = [dataclasses.replace(one, sequence_length=n, past=past) for one in named for n, past in steps]
    else:
        lengths = values.lengths_of([(frontend, name) for name in names], sequence_length)
        models = [dataclasses.replace(model, name=name, sequence_length=length) for name, length in zip(names, lengths)]
    precisions = dict.fromkeys(values.parse_names("--precision", precision))
    requests = [
        one
        for model in models
        for precision in precisions
        for one in swept(request.of(model=model, precision=cast("Precision", precision)), combinations)
    ]
    if each and place is not None:
        raise UsageError("--each is of devices that machines announce; leave it out beside --host")
    screen = Screen(quiet=quiet)
    asked = values.parse_needs(needs, each=each, cluster=cluster)
    with Collection(db) as collection:
        if cluster:
            from op_profiler.fleet import runs
            from op_profiler.fleet.cluster import Cluster

            for one in requests:
                one.check_for_cluster()
            with Cluster(cluster) as machines:
                summaries = runs.collect(machines, requests, screen, each=each, needs=asked)
        else:
            summaries = collection.run(frontend, requests, screen)
        screen.show(summaries, collection.dataset if tables else None, layer_depth=by_layer)
        if report is not None:
            from op_profiler.report.page.report import write_reports_of

            write_reports_of(report, collection.dataset, [summary.model_key for summary in summaries], screen.note)
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


def _exit_of_many(summaries: list[ModelReport]) -> int:
    return 1 if any(s.exit_code for s in summaries) else 0
