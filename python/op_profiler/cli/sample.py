"""``op-profiler sample``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from op_profiler import json_text
from op_profiler.cli import options, values
from op_profiler.collection.sampling import grid, spaces
from op_profiler.collection.sampling.mixtures import USUAL
from op_profiler.collection.sampling.request import SampledRequest, SampleRequest, sampling
from op_profiler.compilers import COMPILERS
from op_profiler.errors import UsageError
from op_profiler.files import check_writable
from op_profiler.fleet.cluster_request import ClusterRequest
from op_profiler.measure.disturbance import disturbed_text
from op_profiler.option_values import several
from op_profiler.options import OUTPUT
from op_profiler.report.tables import print_line, screen, show_table, texts

if TYPE_CHECKING:
    from op_profiler.collection.sampling.draw import Draw
    from op_profiler.collection.sampling.run import SampleReport

EXAMPLES = """Examples:

op-profiler sample --config collector/configs/conv.in --target llvm --budget 10m

op-profiler sample --count 3000                       (operators of the usual kinds, sizes drawn log-uniformly)

op-profiler sample --kinds dense,softmax --count 200 --threads 1

op-profiler sample --kinds conv2d_nhwc,attention,int8 --count 200      (kinds that are drawn only on request)

op-profiler sample --kinds all --budget 8h --rounds 9                  (all kinds and precisions, to fit a predictor)

op-profiler sample --models local:resnet-18,transformers:bert --resolutions 160,224 --sequence-lengths 32,128

op-profiler sample --adaptive --budget 30m            (where predictions are least certain)

op-profiler sample --cached --count 500               (operators whose weights stay in the cache)

op-profiler sample --count 3000 --cluster tcp://127.0.0.1:8786 --db postgresql://me@host/times

If the command is interrupted, run it again: it measures only what the dataset does not contain.

Exit codes: those of collect; 1 if an operator or a batch failed (recorded in the dataset).
"""


_LIST = ("list",)


def sample(
    context: typer.Context,
    wanted: SampleRequest,
    request: SampledRequest,
    machines: ClusterRequest,
    report: options.Report = None,
    as_json: options.Json = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be measured; measure nothing.", rich_help_panel=OUTPUT)
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure operators outside of networks: those of a grid, random ones, or those of models at other sizes."""
    from op_profiler.collection.sampling import run
    from op_profiler.collection.supervisor import Collection
    from op_profiler.report.collection import Screen

    if _LIST in (wanted.kinds, wanted.skip_rule):
        _list(kinds=wanted.kinds == _LIST, as_json=as_json)
        return
    wanted.check()
    check_writable({"--report": report})
    COMPILERS.get(request.build.compiler).require("operators_of_module", "sample")
    request = values.for_machines(context, sampling(request, wanted.rounds), machines)
    request.check_for_cluster() if machines.cluster else request.check()
    if wanted.adaptive and machines.cluster:
        raise UsageError("--adaptive draws by what is measured meanwhile, on one machine; leave out --cluster")
    draw = wanted.draw()
    what = _what(wanted, draw)
    if dry_run:
        print(json_text.dumps(what) if as_json else _plan_text(what))
        return
    screen = Screen(quiet=quiet)
    count, seconds = wanted.count, wanted.budget_seconds
    with Collection(request.db) as collection:
        if machines.cluster:
            from op_profiler.fleet import cluster, runs

            with cluster.Cluster(machines.cluster) as connected:
                each, needs = machines.each, machines.needs
                done = runs.sample(
                    connected, draw, request, screen, count=count, budget_seconds=seconds, each=each, needs=needs
                )
        else:
            found = wanted.drawn(request, screen.note)
            done = run.measure_batches(found, request, collection, screen, count=count, budget_seconds=seconds)
        if report is not None:
            from op_profiler.report.page.report import write_reports_of

            write_reports_of(report, collection.dataset, done.models, screen.note)
    _show(done, as_json=as_json, quiet=quiet)
    if done.failed or done.errors:
        raise typer.Exit(1)


def _list(*, kinds: bool, as_json: bool) -> None:
    """Print the kinds of operators, or the rules of the grid, each with a description."""
    found = spaces.described_names() if kinds else {name: asked for name, (asked, _) in grid.RULES.items()}
    if as_json:
        print(json_text.dumps(found))
    elif kinds:
        rows = [[name, "yes" if name in USUAL else "", what] for name, what in found.items()]
        show_table(screen(), "kinds of operators", texts("kind", "usual", "operators"), rows)
    else:
        print("\n".join(f"{name}: {asked}" for name, asked in found.items()))


def _what(wanted: SampleRequest, draw: Draw) -> dict[str, Any]:
    """Return a JSON-serializable description of what would be measured; raise UnknownNameError for unknown kinds."""
    if draw.grid is not None:
        what: dict[str, Any] = {"convolutions": len(draw.points()), "rules_left_out": wanted.skip_rule}
    elif draw.models:
        names = ("source", "name", "batch_size", "input_shapes", "sequence_length")
        what = {"models": [{name: getattr(one, name) for name in names} for one in draw.models]}
    else:
        what = {"kinds": spaces.checked_names(draw.kinds), "adaptive": wanted.adaptive, "cached": wanted.cached}
    return what | {"count": wanted.count, "budget_seconds": wanted.budget_seconds}


def _plan_text(what: dict[str, Any]) -> str:
    """Return a description of what would be measured, as text."""
    if "convolutions" in what:
        lines = [f"{what['convolutions']} convolutions; rules left out: {', '.join(what['rules_left_out']) or 'none'}"]
    elif "models" in what:
        lines = []
        for one in what["models"]:
            shapes = f", inputs {one['input_shapes']}" if one["input_shapes"] else ""
            tokens = f", {one['sequence_length']} tokens" if one["sequence_length"] else ""
            lines.append(f"{one['source']}:{one['name']}, batch {one['batch_size']}{shapes}{tokens}")
    else:
        drawn = "where the predictor is least sure" if what["adaptive"] else "random"
        batches = ", in small batches whose weights stay in the cache" if what["cached"] else ""
        lines = [f"operators, {drawn}, of the kinds {', '.join(what['kinds'])}{batches}"]
    ends = [] if what["count"] is None else [f"{what['count']} operators are measured, in whole batches"]
    ends += [] if what["budget_seconds"] is None else [f"{what['budget_seconds']:g} s are over"]
    return "\n".join([*lines, f"until {' or '.join(ends)}" if ends else "all of them"])


def _show(report: SampleReport, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        print(json_text.dumps(report, indent=1))
    elif not quiet:
        print_line(
            screen(),
            f"{several(report.operators, 'operator')}, batches: {report.batches}; "
            f"{several(report.measured, 'measurement')}, {report.reused} that were there, {report.failed} failed; "
            f"{report.seconds:.0f} s; ended by {report.ended}",
        )
        if disturbed := disturbed_text(report.timings, report.disturbed):
            print_line(screen(), disturbed)
