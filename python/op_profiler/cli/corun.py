"""``op-profiler corun``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from op_profiler.cli import options, values
from op_profiler.cores import available_cores
from op_profiler.errors import UsageError
from op_profiler.files import check_writable
from op_profiler.fleet.cluster_request import ClusterRequest
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.option_values import parse_names
from op_profiler.options import OUTPUT, Only
from op_profiler.parallel.corun.request import CorunRequest
from op_profiler.parallel.runtime.interrupt import ended_by_interrupt
from op_profiler.report.status import Status
from op_profiler.targets.target import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLES = """Examples:

op-profiler corun squeezenet_v1.1

op-profiler corun inception_v3 --policy ios --trace trace.json      (open it with ui.perfetto.dev)

op-profiler corun resnet-18 mobilenet --save-plan plan.json

op-profiler corun resnet-18 mobilenet --plan plan.json --json result.json

op-profiler corun squeezenet_v1.1 --target cuda --streams 4

op-profiler corun resnet-18 mobilenet --target llvm,cuda      (each model runs on one of the targets)

op-profiler corun mobilenet squeezenet_v1.1 --target llvm,pynq --host 192.168.2.99 --port 9091

op-profiler corun transformers:bert --sequence-length 64 --merge --policy threads

op-profiler corun resnet-18 mobilenet --policy greedy,ios --cluster tcp://127.0.0.1:8786 --each    (on every machine)

Policies: sequential (all cores for every operator), threads (each operator with its best thread count), greedy, ios,
nash, exhaustive, collaborate (stages and schedules are tuned together with measurements, which takes minutes), and
auto. The policy auto measures the plans that are predicted best and never returns a plan that measured slower than
sequential. It does not try exhaustive, and tries collaborate only if operators compete for a resource for which tuning
the operators together was faster in measurements.

Exit codes: 0 done; 1 the outputs differ from those of sequential execution; 2 wrong usage, or a plan for other models;
4 a model cannot be lowered; 5 this machine cannot run the plan, a file cannot be written, or a kernel failed.
"""


def corun(  # noqa: PLR0913 - the options are the interface
    models: Annotated[
        list[str], typer.Argument(help="One or several models: name, source:name or path of a model file.")
    ],
    request: CorunRequest,
    model: Annotated[ModelRequest, Only("importer", "modelsource", "batch_size", "sequence_length")],
    machines: ClusterRequest,
    save_plan: Annotated[Path | None, typer.Option(help="Write the plan to this file.", rich_help_panel=OUTPUT)] = None,
    report: options.Report = None,
    trace: options.Trace = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", help="Write the result to this file as JSON; - is standard output.", rich_help_panel=OUTPUT
        ),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Plan which operators run side by side, compare the plan with sequential execution, and check the outputs."""
    from op_profiler.measure.background import report_background_load
    from op_profiler.parallel.corun.run import corun as run
    from op_profiler.report.corun import report_result

    check_writable({"--save-plan": save_plan, "--trace": trace, "--json": json_file, "--report": report})
    request = dataclasses.replace(request, models=values.models_of(models, model))
    request.check_plan_options({"--save-plan": save_plan, "--trace": trace, "--report": report})
    if machines.cluster:
        files = {"--plan": request.plan, "--save-plan": save_plan, "--report": report, "--trace": trace}
        _sweep(machines, request, files, json_file=json_file, quiet=quiet)
        return
    with Status(quiet=quiet) as status, ended_by_interrupt():
        if any(kind_of(target).on_host for target in request.targets):
            report_background_load(available_cores(), status.note)
        result = run(request, status.step)
    report_result(result, quiet=quiet, json_file=json_file, plan_file=save_plan, trace_file=trace, report_file=report)
    if not result.outputs_agree:
        raise typer.Exit(1)


def _sweep(
    machines: ClusterRequest,
    request: CorunRequest,
    files: Mapping[str, Path | None],
    *,
    json_file: Path | None,
    quiet: bool,
) -> None:
    """Run each of the policies on a machine of a cluster, or on every machine, and report the results."""
    from op_profiler.fleet import cluster, runs
    from op_profiler.report.collection import Screen
    from op_profiler.report.corun import report_sweep

    given = [option for option, path in files.items() if path is not None]
    if given or len(request.targets) > 1:
        what = ", ".join(given) or "--target of several"
        raise UsageError(f"{what} is for one machine; leave it out, or --cluster")
    requests = [dataclasses.replace(request, policy=name) for name in parse_names("--policy", request.policy)]
    for one in requests:
        one.check_for_cluster()
    with cluster.Cluster(machines.cluster or "") as connected:
        found = runs.corun(connected, requests, Screen(quiet=quiet), each=machines.each, needs=machines.needs)
    if code := report_sweep(found, quiet=quiet, json_file=json_file):
        raise typer.Exit(code)
