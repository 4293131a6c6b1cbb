"""``op-profiler collect`` and ``op_performance_collector.py``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options, values
from op_profiler.cli.module import refuse_beside_module, time_module
from op_profiler.collection.request import CollectRequest, TuneRequest
from op_profiler.collection.sweep import parse_sweeps, swept
from op_profiler.errors import UsageError
from op_profiler.files import check_writable, write_whole
from op_profiler.fleet.cluster_request import ClusterRequest
from op_profiler.frontends import FRONTENDS, source_and_name
from op_profiler.frontends.frontend import ModelRequest, inputs_of
from op_profiler.option_values import parse_bool, parse_input_shapes, parse_names
from op_profiler.options import DEVICE, MEASURING, MODEL, OUTPUT, TUNING, options_of

EXAMPLES = """Examples:

op_performance_collector.py --modelsource local --modelname resnet-18      (or: op-profiler collect resnet-18)

op-profiler collect transformers:bert --sequence-length 64 --threads 1,2

op-profiler collect model.onnx --batchsize 8 --summary-json summary.json

op-profiler collect package.module:function --threads 1    (the function returns a torch module and example inputs)

op-profiler collect https://example.org/net.onnx --refetch

op-profiler collect resnet-18 --iftune true --trials 64 --ifcompare true

op-profiler collect resnet-18 --threads 1 --sweep core_set=0,1

op-profiler collect --modelsource local                    (all default models; resumes if interrupted)

op-profiler collect resnet-18 --remeasure noisy

op-profiler collect transformers:bert --by-layer 3

op-profiler collect llama --compiler relax --prefill 128 --decode 1 --past 512,2048

op-profiler collect resnet-18 --label before               (then: op-profiler compare)

op-profiler collect resnet-18 --target cuda --precision float32,float16

op-profiler collect mobilenet --target pynq --host 192.168.2.99 --port 9190

op-profiler collect --modelsource local --cluster tcp://127.0.0.1:8786 --db postgresql://me@host/times

Exit codes: 0 all measured; 1 finished, but an operator or a model failed (recorded in the dataset); 2 wrong usage;
3 a package is missing; 4 the model cannot be read or lowered; 5 a problem of the machine, the disk or the dataset.
"""


def collect(  # noqa: PLR0913 - the options are the interface
    context: typer.Context,
    request: CollectRequest,
    tune: TuneRequest,
    machines: ClusterRequest,
    model: Annotated[
        str | None,
        typer.Argument(
            help="Name, source:name, path, URL or package.module:function of the model; 'list' prints the models of "
            "the source. Default: all default models of the source."
        ),
    ] = None,
    modelname: Annotated[str | None, typer.Option(help="Same as the argument MODEL.", rich_help_panel=MODEL)] = None,
    input_shapes: Annotated[
        str,
        typer.Option("--inputshape", help=options_of(ModelRequest)["input_shapes"].option.help, rich_help_panel=MODEL),
    ] = "",
    prefill: Annotated[
        str | None,
        typer.Option(
            help="Measure the step of a decoder that processes a prompt, with an empty KV cache. Give one or several "
            "numbers of tokens, such as 128 or '128,512'. Needs --compiler relax and a decoder of transformers (llama, "
            "mistral, qwen2) or a folder with a config.json.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    decode: Annotated[
        str | None,
        typer.Option(
            help="Measure the step of a decoder that processes this number of tokens (usually 1), with the number of "
            "tokens of --past in the KV cache.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    past: Annotated[
        str | None,
        typer.Option(help="Tokens in the KV cache before a --decode step, such as 512,2048.", rich_help_panel=MODEL),
    ] = None,
    refetch: Annotated[
        bool,
        typer.Option(
            "--refetch",
            help="Download the model from its URL again if the file has changed. Without --refetch, a model is "
            "downloaded once; later commands read the copy in the cache folder and need no network.",
            rich_help_panel=MODEL,
        ),
    ] = False,
    precision: Annotated[
        str,
        typer.Option(
            help="Precision: float32, float16 or int8. Several, separated by commas, are measured and compared, with "
            "their accuracy.",
            rich_help_panel=MEASURING,
        ),
    ] = "float32",
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE,VALUE,...: measure with each value of a resource of this machine, such as "
            "governor=performance,powersave or core_set=0,1,0-1 (core 0, then core 1, then both; 0+1 means 0-1). n "
            "threads run on the first n cores of the set. Several --sweep options give every combination. 'op-profiler "
            "devices --local' lists the resources.",
            rich_help_panel=MEASURING,
        ),
    ] = None,
    iftune: Annotated[
        str,
        typer.Option(
            help="true or false: search for faster schedules of the heavy operators, and measure the model again "
            "with them.",
            rich_help_panel=TUNING,
        ),
    ] = "false",
    module: Annotated[
        Path | None,
        typer.Option(
            help="Compiled function (.so, .o, .tar) to time on a board instead of a model. Needs --entry, --host, "
            "--port and --inputshape with the shapes of all its tensors, outputs last.",
            rich_help_panel=DEVICE,
        ),
    ] = None,
    entry: Annotated[
        str | None, typer.Option(help="Name of the function in the file of --module.", rich_help_panel=DEVICE)
    ] = None,
    summary_json: Annotated[
        Path | None, typer.Option(help="Also write the summary to this file as JSON.", rich_help_panel=OUTPUT)
    ] = None,
    report: options.Report = None,
    trace: options.Trace = None,
    tables: Annotated[
        bool,
        typer.Option(
            "--tables", help="Also print the dataset's tables of operators and of hardware.", rich_help_panel=OUTPUT
        ),
    ] = False,
    by_layer: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Also print the time of each layer (such as a torch module) of the model. Layers are grouped by this "
            "many parts of their names (1: encoder, 2: encoder.layer, ...); 0 uses whole names.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Measure every operator of a model as the compiler emits it, and the whole model in the same run."""
    from op_profiler.collection.supervisor import Collection
    from op_profiler.report.collection import Screen

    tuned = parse_bool("--iftune", iftune)
    tune.check()
    of_a_search = [f"--{name}" for name in ("trials", "tuner", "space") if values.is_given(context, name)]
    if of_a_search and not tuned:
        raise UsageError(f"{' and '.join(of_a_search)}: there is a search only with --iftune true")
    if tune.partial and not tuned:
        raise UsageError("--ifpartial true reports on a search; add --iftune true")
    if tuned:
        request = dataclasses.replace(request, studies=dataclasses.replace(request.studies, tune=tune))
    combinations = parse_sweeps(sweep or [])
    check_writable({"--summary-json": summary_json, "--report": report, "--trace": trace})
    if module is not None or entry is not None:
        refuse_beside_module(context)
        time_module(module, entry, request, input_shapes, summary_json, quiet=quiet)
        return
    request = values.for_machines(context, request, machines)
    if model is not None and modelname is not None:
        raise UsageError(f"{model!r} and --modelname {modelname!r} name a model each; give one of them")
    name = modelname if model is None else model
    steps = values.parse_steps(prefill, decode, past)
    asked = request.build.model
    if input_shapes:
        shapes = parse_input_shapes("--inputshape", input_shapes)
        asked = dataclasses.replace(asked, **inputs_of(asked.input_names, shapes))
    source = asked.source
    if not values.is_given(context, "modelsource"):
        source = "transformers" if steps else source
        if name:
            source, name = source_and_name(name, source)
    asked = dataclasses.replace(asked, source=source)
    frontend = FRONTENDS.get(source)
    if name == "list":
        for known in frontend.names():
            print(known)
        return
    names = frontend.default_names() if name is None else [name]
    if not names:
        raise UsageError(f"source {source!r} has no default models; give the name or the path of one (--modelname)")
    if refetch:
        _refetch(source, name or "")
    if steps:
        if asked.sequence_length is not None:
            raise UsageError("--prefill and --decode set the number of tokens; leave out --sequence-length")
        named = [dataclasses.replace(asked, name=one) for one in names]
        models = [dataclasses.replace(one, sequence_length=n, past=past) for one in named for n, past in steps]
    else:
        lengths = values.lengths_of([(frontend, one) for one in names], asked.sequence_length)
        models = [dataclasses.replace(asked, name=one, sequence_length=n) for one, n in zip(names, lengths)]
    requests = [
        one
        for one_model in models
        for one_precision in dict.fromkeys(parse_names("--precision", precision))
        for one in swept(request.of(model=one_model, precision=one_precision), combinations)
    ]
    if machines.each and request.build.place is not None:
        raise UsageError("--each is of devices that machines announce; leave it out beside --host")
    screen = Screen(quiet=quiet)
    with Collection(request.db) as collection:
        if machines.cluster:
            from op_profiler.fleet import cluster, runs

            for one in requests:
                one.check_for_cluster()
            with cluster.Cluster(machines.cluster) as connected:
                summaries = runs.collect(connected, requests, screen, each=machines.each, needs=machines.needs)
        else:
            summaries = collection.run(frontend, requests, screen)
        screen.show(summaries, collection.dataset if tables else None, layer_depth=by_layer)
        if report is not None:
            from op_profiler.report.page.report import write_reports_of

            write_reports_of(report, collection.dataset, [summary.model_key for summary in summaries], screen.note)
        if trace is not None:
            from op_profiler.dataset.formats.exporting import write_trace

            write_trace(trace, collection.dataset, [summary.model_key for summary in summaries], screen.note)
    if summary_json is not None:
        entries = [entry for summary in summaries for entry in summary.to_json()]
        write_whole(summary_json, json_text.dumps(entries, indent=1) + "\n")
    code = max((s.exit_code for s in summaries), default=0)
    if code:
        raise typer.Exit(code if len(requests) == 1 else 1)


def _refetch(source: str, name: str) -> None:
    """Download the model at an address again if it has changed; raise UsageError if `name` is not an address."""
    from op_profiler.frontends import downloads

    if source != "remoteonnx" or not downloads.is_address(name):
        raise UsageError("--refetch is for a model behind an address: --modelsource remoteonnx --modelname https://...")
    downloads.download(name, again=True)
