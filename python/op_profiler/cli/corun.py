"""``op-profiler corun``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from op_profiler import json_text

if TYPE_CHECKING:
    from op_profiler.parallel.comparison import CorunResult
    from op_profiler.parallel.several_targets import TargetsResult

_STREAMS = 4

EXAMPLES = """Examples:

op-profiler corun squeezenet_v1.1

op-profiler corun inception_v3 --policy ios --trace trace.json      (open it with ui.perfetto.dev)

op-profiler corun resnet-18 mobilenet --save-plan plan.json

op-profiler corun resnet-18 mobilenet --plan plan.json --json result.json

op-profiler corun squeezenet_v1.1 --target cuda --streams 4

op-profiler corun resnet-18 mobilenet --target llvm,cuda      (each model chooses where it runs)

op-profiler corun mobilenet squeezenet_v1.1 --target llvm,pynq --host 192.168.2.99 --port 9091

op-profiler corun transformers:bert --sequence-length 64 --merge --policy threads

Policies: sequential (all cores for every operator), threads (each operator with its best thread count), greedy, ios,
nash, exhaustive, collaborate (stages and schedules tuned together, with measurements: takes minutes), and auto, which
measures the plans of the others, those that are predicted best, and never returns one that measured slower than
sequential; collaborate and exhaustive are not among them.

Exit codes: 0 done; 1 the outputs are not those of sequential; 2 wrong usage, or a plan that does not fit; 4 a model
cannot be lowered; 5 this machine cannot run the plan, a file cannot be written, or a kernel failed (named).
"""


def corun(  # noqa: PLR0913 - the options are the interface
    models: Annotated[list[str], typer.Argument(help="One or several: a name, source:name, or the path of a file.")],
    policy: Annotated[str, typer.Option(help="How to plan.", rich_help_panel="Plan")] = "auto",
    plan: Annotated[
        Path | None, typer.Option(help="Run a plan that was made before.", rich_help_panel="Plan", dir_okay=False)
    ] = None,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge", help="Merge operators that read the same input into one kernel.", rich_help_panel="Plan"
        ),
    ] = False,
    costs: Annotated[
        str, typer.Option(help="What plans are made from: measured here, or predicted.", rich_help_panel="Plan")
    ] = "measured",
    threads: Annotated[
        int | None, typer.Option(help="Cores that a plan may use; default: all.", rich_help_panel="Plan")
    ] = None,
    streams: Annotated[
        int | None, typer.Option(help="Streams that a plan for cuda may use; default: 4.", rich_help_panel="Plan")
    ] = None,
    rounds: Annotated[
        int, typer.Option(help="How often plan and sequential are timed, in turn.", rich_help_panel="Plan")
    ] = 40,
    target: Annotated[
        str,
        typer.Option(
            help="llvm, cuda, a TVM target, or several of them, one board's among them, for several models.",
            rich_help_panel="Model",
        ),
    ] = "llvm",
    modelsource: Annotated[str, typer.Option(help="Source of plain names.", rich_help_panel="Model")] = "local",
    batchsize: Annotated[int, typer.Option(help="Leading dimension of the inputs.", rich_help_panel="Model")] = 1,
    sequence_length: Annotated[int | None, typer.Option(min=1, help="As for collect.", rich_help_panel="Model")] = None,
    schedules: Annotated[
        str, typer.Option(help="Schedule records: auto, none, or a folder.", rich_help_panel="Model")
    ] = "auto",
    host: Annotated[
        str | None, typer.Option(help="Of the board's RPC tracker or RPC server.", rich_help_panel="Model")
    ] = None,
    port: Annotated[int | None, typer.Option(help="Its port.", rich_help_panel="Model")] = None,
    device_key: Annotated[
        str | None,
        typer.Option(help="Which of the tracker's machines. Default: the target's name.", rich_help_panel="Model"),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option(
            help="Dataset: co-run measurements go there, and predicted costs come from there.",
            rich_help_panel="Output",
        ),
    ] = None,
    save_plan: Annotated[Path | None, typer.Option(help="Write the plan.", rich_help_panel="Output")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write a timeline for Perfetto.", rich_help_panel="Output")] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Write the result as JSON; - for standard output.", rich_help_panel="Output"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the summary.", rich_help_panel="Output")] = False,
) -> None:
    """Run operators side by side: plan it, measure it beside one after the other, and check the outputs."""
    from op_profiler.cli import options
    from op_profiler.collection.request import CollectRequest
    from op_profiler.errors import UsageError
    from op_profiler.files import check_writable, write_whole
    from op_profiler.frontends import FRONTENDS, source_and_name
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.parallel.corun import CorunRequest
    from op_profiler.parallel.corun import corun as run
    from op_profiler.parallel.runtime.interrupt import ended_by_interrupt
    from op_profiler.parallel.several_targets import TargetsRequest, corun_on_targets
    from op_profiler.report import corun as report
    from op_profiler.report import targets as report_targets
    from op_profiler.report.status import Status
    from op_profiler.report.trace import chrome_trace
    from op_profiler.targets.target import kind_of

    check_writable({"--save-plan": save_plan, "--trace": trace, "--json": json_file})
    targets = options.parse_targets(target)
    cores = _cores(targets, threads, streams)
    requests = []
    named = [source_and_name(model, modelsource) for model in models]
    lengths = options.lengths_of([(FRONTENDS.get(source), name) for source, name in named], sequence_length)
    for (source, name), length in zip(named, lengths):
        asked = ModelRequest(source=source, name=name, batch_size=batchsize, sequence_length=length)
        FRONTENDS.get(source).check(asked)
        counts = kind_of(targets[0]).default_thread_counts(None)
        requests.append(CollectRequest(model=asked, target=targets[0], threads=counts, schedules=schedules))
    boards = [kind.name for kind in map(kind_of, targets) if kind.is_board]
    place = options.parse_place(host, port, device_key, "".join(boards[:1]))
    if len(targets) > 1:
        others = {"--plan": plan, "--merge": merge, "--costs": costs != "measured", "--db": db}
        _refuse(others | {"--save-plan": save_plan, "--trace": trace})
        on_targets = TargetsRequest(
            models=tuple(requests), targets=targets, policy=policy, cores=cores, rounds=rounds, place=place
        )
        with Status(quiet=quiet) as status, ended_by_interrupt():
            placed = corun_on_targets(on_targets, status.step)
        _show(placed, report_targets, json_file, quiet=quiet)
        _end(placed)
        return
    if place is not None or boards:
        raise UsageError("a board is one of several targets that models choose from: --target llvm,pynq")
    request = CorunRequest(
        models=tuple(requests),
        policy=policy,
        plan=plan,
        cores=cores,
        merge=merge,
        costs=costs,
        db=db,
        rounds=rounds,
    )
    with Status(quiet=quiet) as status, ended_by_interrupt():
        result = run(request, status.step)
    _show(result, report, json_file, quiet=quiet)
    if save_plan is not None:
        write_whole(save_plan, json_text.dumps(result.plan.to_json(result.models.graph), indent=1) + "\n")
    if trace is not None:
        events = chrome_trace(result.models.graph, result.plan, result.run.timeline_us, lane=result.models.lane)
        write_whole(trace, json_text.dumps(events) + "\n")
    _end(result)


def _cores(targets: tuple[str, ...], threads: int | None, streams: int | None) -> int:
    """How many cores, for cuda how many streams, a plan may use."""
    from op_profiler.cores import usable_cores
    from op_profiler.errors import UsageError
    from op_profiler.targets.target import kind_of

    on_streams = len(targets) == 1 and kind_of(targets[0]).on_gpu
    if threads is not None and on_streams:
        raise UsageError("--threads has no meaning for cuda; give --streams")
    if streams is not None and not on_streams:
        raise UsageError("--streams is for --target cuda alone; give --threads")
    if on_streams:
        return _STREAMS if streams is None else streams
    return usable_cores() if threads is None else threads


def _refuse(options: dict[str, Any]) -> None:
    from op_profiler.errors import UsageError

    given = [name for name, value in options.items() if value]
    if given:
        raise UsageError(f"several targets go with --policy nash or auto alone; leave out {', '.join(given)}")


def _show(result: CorunResult | TargetsResult, report: Any, json_file: Path | None, *, quiet: bool) -> None:
    """Print the result, and write it."""
    from op_profiler.files import write_whole

    text = json_text.dumps(result.to_json(), indent=1)
    if str(json_file) == "-":
        print(text)
    elif quiet:
        print(report.summary(result))
    else:
        from rich.console import Console

        report.show(Console(width=None if sys.stdout.isatty() else 150), result)
    if json_file is not None and str(json_file) != "-":
        write_whole(json_file, text + "\n")


def _end(result: CorunResult | TargetsResult) -> None:
    """With exit code 1 where the outputs are wrong."""
    if not result.outputs_agree:
        raise typer.Exit(1)
