"""``op-profiler sample``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.dataset import DEFAULT_DB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from op_profiler.collection.request import CollectRequest
    from op_profiler.collection.sampling.batch import Batch
    from op_profiler.collection.sampling.draw import Draw
    from op_profiler.collection.sampling.run import SampleReport
    from op_profiler.frontends.frontend import ModelRequest

EXAMPLES = """Examples:

op-profiler sample --config collector/configs/conv.in --target llvm --budget 10m

op-profiler sample --count 3000                       (operators of all kinds, log-uniform sizes; resumable)

op-profiler sample --kinds dense,softmax --count 200 --threads 1

op-profiler sample --kinds conv2d_nhwc,attention,int8 --count 200      (kinds that are drawn where named)

op-profiler sample --kinds all --budget 8h --rounds 9                  (every kind and precision: for a predictor)

op-profiler sample --models local:resnet-18,transformers:bert --resolutions 160,224 --sequence-lengths 32,128

op-profiler sample --adaptive --budget 30m            (where the predictor knows least)

op-profiler sample --cached --count 500               (weights that stay in the cache)

op-profiler sample --count 3000 --cluster tcp://127.0.0.1:8786 --db postgresql://me@host/times

The same command goes on where it was interrupted: what the dataset holds is not measured again.

Exit codes: as those of collect; 1 if an operator or a batch failed (recorded in the dataset).
"""


def sample(  # noqa: PLR0913 - the options are the interface
    config: Annotated[
        Path | None, typer.Option(help="Grid of convolutions in TinyNAS's format.", rich_help_panel="What")
    ] = None,
    skip_rule: Annotated[
        str,
        typer.Option(help="Rules of the grid to leave out, by commas, or 'list'.", rich_help_panel="What"),
    ] = "no_stem",
    kinds: Annotated[
        str | None,
        typer.Option(
            help="Kinds of operators to draw, by commas, 'all', or 'list'. Default: the usual ones.",
            rich_help_panel="What",
        ),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(help="Take the operators of models: source:name, by commas.", rich_help_panel="What"),
    ] = None,
    batches: Annotated[str, typer.Option(help="Batch sizes of --models.", rich_help_panel="What")] = "1",
    resolutions: Annotated[
        str,
        typer.Option(help="Image sizes of --models: 160,224; default: the model's.", rich_help_panel="What"),
    ] = "",
    sequence_lengths: Annotated[
        str, typer.Option(help="Tokens for --models; default: the model's.", rich_help_panel="What")
    ] = "",
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Draw where the predictor is least sure.", rich_help_panel="What")
    ] = False,
    cached: Annotated[
        bool,
        typer.Option(
            "--cached",
            help="Few random operators a batch, whose weights stay in the cache, as a recurrent cell's do.",
            rich_help_panel="What",
        ),
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(
            help="Operators to measure in all, and those that fill the last batch.", rich_help_panel="How much"
        ),
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Time to spend: 90s, 10m, 2h.", rich_help_panel="How much")] = None,
    rounds: Annotated[int, typer.Option(help="Most times that each operator is run.", rich_help_panel="How much")] = 21,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn.", rich_help_panel="How much")] = 0,
    target: options.Target = "llvm",
    compiler: options.Compiler = DEFAULT_COMPILER,
    threads: options.Threads = None,
    remeasure: options.Remeasure = "",
    schedules: options.Schedules = "none",
    host: options.Host = None,
    port: options.Port = None,
    device_key: options.DeviceKey = None,
    cluster: options.Cluster = None,
    each: options.Each = False,
    needs: options.Needs = None,
    db: options.Db = DEFAULT_DB,
    report: options.Report = None,
    as_json: options.Json = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be measured; measure nothing.", rich_help_panel="Output")
    ] = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure operators that no model brought along: a grid, random draws, or those of other models' shapes."""
    from op_profiler.building.request import BuildRequest
    from op_profiler.cli import values
    from op_profiler.collection.request import CollectRequest, Measuring
    from op_profiler.collection.sampling import grid, run, spaces
    from op_profiler.collection.sampling.draw import Draw
    from op_profiler.collection.supervisor import Collection
    from op_profiler.compilers.abilities import require
    from op_profiler.errors import UsageError
    from op_profiler.files import check_writable
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.frontends.sample import CACHED
    from op_profiler.report.collection import Screen
    from op_profiler.targets.target import kind_of

    if kinds == "list" or skip_rule == "list":
        rules = {name: asked for name, (asked, _) in grid.RULES.items()}
        if as_json:
            print(json_text.dumps(spaces.space_names() if kinds == "list" else rules))
        else:
            print("\n".join(spaces.space_names() if kinds == "list" else (f"{n}: {t}" for n, t in rules.items())))
        return
    chosen = [config is not None, models is not None, adaptive]
    if sum(chosen) > 1 or (kinds is not None and any(chosen[:2])):
        raise UsageError("give one of --config, --models, --adaptive; --kinds goes with --adaptive or alone")
    if cached and any(chosen):
        raise UsageError("--cached draws random operators; leave out --config, --models and --adaptive")
    if models is None and (resolutions or sequence_lengths or batches != "1"):
        raise UsageError("--batches, --resolutions and --sequence-lengths go with --models")
    if count is None and budget is None and config is None and models is None:
        raise UsageError("say how much to measure: --count 500 or --budget 10m")
    check_writable({"--report": report})
    run.check_amount(count, rounds)
    require(compiler, "sample", "sample")
    place = values.parse_place(host, port, device_key, kind_of(target).name)
    build = BuildRequest(
        model=ModelRequest(source="sample", name=""),
        target=target,
        compiler=compiler,
        place=place,
        threads=values.thread_counts(threads, target, place) if threads or not cluster else (),
        schedules=schedules,
    )
    request = CollectRequest(build=build, measuring=Measuring(rounds=rounds, remeasure=remeasure, energy="none"), db=db)
    if cluster:
        request.check_for_cluster()
    else:
        request.check()
    seconds = values.parse_duration("--budget", budget) if budget is not None else None
    asked = values.parse_needs(needs, each=each, cluster=cluster)
    if adaptive and cluster:
        raise UsageError("--adaptive draws by what is measured meanwhile, on one machine; leave out --cluster")
    draw = Draw(label=f"draw{seed}{CACHED if cached else ''}", seed=seed, cached=cached)
    if config is not None:
        skipped = values.parse_names("--skip-rule", skip_rule) if skip_rule else ()
        draw = Draw(label=config.stem, seed=seed, grid=grid.read_grid(config), rules=_rules(skipped))
        what: dict[str, Any] = {"convolutions": len(draw.points()), "rules_left_out": skipped} if dry_run else {}
    elif models is not None:
        variants = _variants(values.parse_names("--models", models), batches, resolutions, sequence_lengths)
        names = ("source", "name", "batch_size", "input_shapes", "sequence_length")
        what = {"models": [{name: getattr(one, name) for name in names} for one in variants]}
        draw = Draw(label="models", models=tuple(variants))
    else:
        draw = dataclasses.replace(draw, kinds=values.parse_names("--kinds", kinds) if kinds is not None else ())
        what = {"kinds": spaces.checked_names(draw.kinds), "adaptive": adaptive, "cached": cached}
    if dry_run:
        what |= {"count": count, "budget_seconds": seconds}
        print(json_text.dumps(what) if as_json else _told(what))
        return
    screen = Screen(quiet=quiet)
    with Collection(db) as collection:
        if cluster:
            from op_profiler.fleet import runs
            from op_profiler.fleet.cluster import Cluster

            with Cluster(cluster) as machines:
                done = runs.sample(
                    machines, draw, request, screen, count=count, budget_seconds=seconds, each=each, needs=asked
                )
        else:
            found = _adaptive(request, draw, screen.note) if adaptive else draw.batches()
            done = run.measure_batches(found, request, collection, screen, count=count, budget_seconds=seconds)
        if report is not None:
            from op_profiler.report.page.report import write_reports_of

            write_reports_of(report, collection.dataset, done.models, screen.note)
    _show(done, as_json=as_json, quiet=quiet)
    if done.failed or done.errors:
        raise typer.Exit(1)


def _told(what: dict[str, Any]) -> str:
    """What would be measured, in words."""
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


def _adaptive(request: CollectRequest, draw: Draw, note: Callable[[str], None]) -> Iterator[Batch]:
    from op_profiler.collection.sampling.adaptive import adaptive_batches

    return adaptive_batches(request, draw.kinds, draw.seed, note)


def _rules(skipped: tuple[str, ...]) -> tuple[str, ...]:
    from op_profiler.collection.sampling import grid
    from op_profiler.errors import UnknownNameError

    for name in skipped:
        if name not in grid.RULES:
            raise UnknownNameError("rule", name, grid.RULES, "--skip-rule list shows what each asks for.")
    return tuple(name for name in grid.RULES if name not in skipped)


def _variants(names: tuple[str, ...], batches: str, resolutions: str, lengths: str) -> list[ModelRequest]:
    """Every model at every batch size, and at every sequence length that is asked for; one without at image sizes."""
    from op_profiler.cli import values
    from op_profiler.errors import UsageError
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest

    sizes = values.parse_counts("--resolutions", resolutions) if resolutions else ()
    images: list[tuple[tuple[int, ...], ...]] = [((1, 3, size, size),) for size in sizes] or [()]
    tokens: list[int | None] = [*(values.parse_counts("--sequence-lengths", lengths) if lengths else (None,))]
    found = []
    for text in names:
        source, colon, name = text.partition(":")
        if not colon or not name:
            raise UsageError(f"--models takes source:name, such as local:resnet-18; not {text!r}")
        base, frontend = ModelRequest(source=source, name=name), FRONTENDS.get(source)
        of_text = frontend.takes_sequence_length(name)
        for batch in values.parse_counts("--batches", batches):
            for shape in [()] if of_text else images:
                shapes = tuple((batch, *one[1:]) for one in shape)
                found += [
                    dataclasses.replace(base, batch_size=batch, input_shapes=shapes, sequence_length=n)
                    for n in (tokens if of_text else [None])
                ]
        frontend.check(found[-1])
    if lengths and not any(one.sequence_length for one in found):
        raise UsageError(f"--sequence-lengths {lengths}: none of the models has a sequence; leave it out")
    if resolutions and not any(one.input_shapes for one in found):
        raise UsageError(f"--resolutions {resolutions}: none of the models takes images; leave it out")
    return found


def _show(report: SampleReport, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        print(json_text.dumps(dataclasses.asdict(report), indent=1))
    elif not quiet:
        print(
            f"{report.operators} operators in {report.batches} batches: {report.measured} measurements, "
            f"{report.reused} that were there, {report.failed} failed; {report.seconds:.0f} s; ended by {report.ended}"
        )
