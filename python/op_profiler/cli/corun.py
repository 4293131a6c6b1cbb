"""``op-profiler corun``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from op_profiler.cli import options
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.compilers.importers import AUTO
from op_profiler.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from op_profiler.fleet.needs import Needs
    from op_profiler.parallel.corun.request import CorunRequest

EXAMPLES = """Examples:

op-profiler corun squeezenet_v1.1

op-profiler corun inception_v3 --policy ios --trace trace.json      (open it with ui.perfetto.dev)

op-profiler corun resnet-18 mobilenet --save-plan plan.json

op-profiler corun resnet-18 mobilenet --plan plan.json --json result.json

op-profiler corun squeezenet_v1.1 --target cuda --streams 4

op-profiler corun resnet-18 mobilenet --target llvm,cuda      (each model chooses where it runs)

op-profiler corun mobilenet squeezenet_v1.1 --target llvm,pynq --host 192.168.2.99 --port 9091

op-profiler corun transformers:bert --sequence-length 64 --merge --policy threads

op-profiler corun resnet-18 mobilenet --policy greedy,ios --cluster tcp://127.0.0.1:8786 --each    (on every machine)

Policies: sequential (all cores for every operator), threads (each operator with its best thread count), greedy, ios,
nash, exhaustive, collaborate (stages and schedules tuned together, with measurements: takes minutes), and auto, which
measures the plans of the others, those that are predicted best, and never returns one that measured slower than
sequential; collaborate and exhaustive are not among them.

Exit codes: 0 done; 1 the outputs are not those of sequential; 2 wrong usage, or a plan that does not fit; 4 a model
cannot be lowered; 5 this machine cannot run the plan, a file cannot be written, or a kernel failed (named).
"""


def corun(  # noqa: PLR0913 - the options are the interface
    models: Annotated[list[str], typer.Argument(help="One or several: a name, source:name, or the path of a file.")],
    policy: Annotated[
        str,
        typer.Option(
            help="How to plan: {policies}, collaborate, auto; with --cluster several by commas.", rich_help_panel="Plan"
        ),
    ] = "auto",
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
    compiler: options.Compiler = DEFAULT_COMPILER,
    importer: options.Importer = AUTO,
    modelsource: options.ModelSource = "local",
    batchsize: options.BatchSize = 1,
    sequence_length: options.SequenceLength = None,
    schedules: options.Schedules = "auto",
    host: options.Host = None,
    port: options.Port = None,
    device_key: options.DeviceKey = None,
    cluster: options.Cluster = None,
    each: options.Each = False,
    needs: options.Needs = None,
    db: Annotated[
        str | None,
        typer.Option(
            help="Dataset: co-run measurements go there, and predicted costs come from there.",
            rich_help_panel="Output",
        ),
    ] = None,
    save_plan: Annotated[Path | None, typer.Option(help="Write the plan.", rich_help_panel="Output")] = None,
    report: options.Report = None,
    trace: Annotated[Path | None, typer.Option(help="Write a timeline for Perfetto.", rich_help_panel="Output")] = None,
    json_file: Annotated[
        Path | None,
        typer.Option("--json", help="Write the result as JSON; - for standard output.", rich_help_panel="Output"),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Run operators side by side: plan it, measure it beside one after the other, and check the outputs."""
    from op_profiler.cli import values
    from op_profiler.files import check_writable
    from op_profiler.parallel.corun.request import CorunRequest
    from op_profiler.parallel.corun.run import corun as run
    from op_profiler.parallel.runtime.interrupt import ended_by_interrupt
    from op_profiler.report.corun import tell
    from op_profiler.report.status import Status

    check_writable({"--save-plan": save_plan, "--trace": trace, "--json": json_file, "--report": report})
    targets = values.parse_targets(target)
    request = CorunRequest(
        models=values.parse_models(models, modelsource, batchsize, sequence_length, importer),
        targets=targets,
        compiler=compiler,
        place=values.parse_place(host, port, device_key, values.usual_key(targets)),
        schedules=schedules,
        policy=policy,
        plan=plan,
        threads=threads,
        streams=streams,
        merge=merge,
        costs=costs,
        db=db,
        rounds=rounds,
    )
    request.check_plan_options({"--save-plan": save_plan, "--trace": trace, "--report": report})
    asked = values.parse_needs(needs, each=each, cluster=cluster)
    if cluster:
        files = {"--plan": plan, "--save-plan": save_plan, "--report": report, "--trace": trace}
        _sweep(cluster, request, files, each=each, needs=asked, json_file=json_file, quiet=quiet)
        return
    with Status(quiet=quiet) as status, ended_by_interrupt():
        result = run(request, status.step)
    tell(result, quiet=quiet, json_file=json_file, plan_file=save_plan, trace_file=trace, report_file=report)
    if not result.outputs_agree:
        raise typer.Exit(1)


def _sweep(
    cluster: str,
    request: CorunRequest,
    files: Mapping[str, Path | None],
    *,
    each: bool,
    needs: Needs,
    json_file: Path | None,
    quiet: bool,
) -> None:
    """Each of the policies on a machine of a cluster, or on every one."""
    from op_profiler.cli import values
    from op_profiler.fleet import runs
    from op_profiler.fleet.cluster import Cluster
    from op_profiler.report.collection import Screen
    from op_profiler.report.corun import tell_sweep

    given = [option for option, path in files.items() if path is not None]
    if given or len(request.targets) > 1:
        what = ", ".join(given) or "--target of several"
        raise UsageError(f"{what} is for one machine; leave it out, or --cluster")
    requests = [dataclasses.replace(request, policy=name) for name in values.parse_names("--policy", request.policy)]
    for one in requests:
        one.check_for_cluster()
    with Cluster(cluster) as machines:
        found = runs.corun(machines, requests, Screen(quiet=quiet), each=each, needs=needs)
    if code := tell_sweep(found, quiet=quiet, json_file=json_file):
        raise typer.Exit(code)
