"""``op-profiler schedule``."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from op_profiler import json_text
from op_profiler.addresses import without_password
from op_profiler.cli import options
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.dataset import DEFAULT_DB

if TYPE_CHECKING:
    from collections.abc import Callable

    from op_profiler.building.request import BuildRequest
    from op_profiler.measure.measurement import Cache
    from op_profiler.operators.operator import Operator
    from op_profiler.predict.schedules.ranking import Score
    from op_profiler.predict.schedules.suggestions import Answer, ScheduleQuery

EXAMPLES = """Examples:

op-profiler schedule resnet-18                                     (every heavy op of the model)

op-profiler schedule mobilenet --verify 8                          (measure the eight that look best)

op-profiler schedule 4f0c2a9be1d37c55 --k 5 --json                 (one operator of the dataset, by its key)

op-profiler schedule resnet-18 --threads 1 --cache cold            (for other conditions than all cores, hot)

op-profiler schedule --evaluate                                    (how good the ranking is on held-out operators)
"""


def schedule(
    subject: Annotated[
        str | None,
        typer.Argument(help="A name, source:name, the path of a model file, or the 16 hex digits of an operator."),
    ] = None,
    modelsource: options.ModelSource = "local",
    batchsize: options.BatchSize = 1,
    sequence_length: options.SequenceLength = None,
    target: options.Target = "llvm",
    compiler: options.Compiler = DEFAULT_COMPILER,
    threads: Annotated[int | None, typer.Option(help="Threads to run with. Default: all usable cores.")] = None,
    cache: Annotated[
        str, typer.Option(help="Caches that it meets: model (the records' decision), hot or cold (its weights).")
    ] = "hot",
    device: Annotated[
        str | None,
        typer.Option(help="Whose trials tell what is known: a device's key or a part of its processor's name."),
    ] = None,
    k: Annotated[int, typer.Option("--k", help="How many schedules to propose for an op that was never tuned.")] = 8,
    verify: Annotated[int, typer.Option(help="Measure so many of them.")] = 0,
    schedules: options.Schedules = "auto",
    trials_from: Annotated[str, typer.Option(help="shipped (with the project) or none, beside --db.")] = "shipped",
    db: Annotated[
        str | None,
        typer.Option(
            help=f"SQLAlchemy address of the dataset. Default: {DEFAULT_DB} if it is there.", rich_help_panel="Output"
        ),
    ] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Pairwise accuracy and top-k of the ranking on held-out operators.")
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """The best known schedule of an operator; of one never tuned, those predicted to be the best. Searches nothing."""
    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers.abilities import require
    from op_profiler.errors import UsageError
    from op_profiler.frontends import source_and_name
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.report.status import Status
    from op_profiler.shipped import shipped_trials
    from op_profiler.targets.target import kind_of, use_build_for

    if subject is None and not evaluate:
        raise UsageError("name a model or an operator, or give --evaluate")
    if k < 1 or verify < 0:
        raise UsageError("--k has to be 1 or more, --verify 0 or more")
    if trials_from not in ("shipped", "none"):
        raise UsageError(f"--trials-from {trials_from!r}: give shipped or none")
    require(compiler, "schedule", "schedule")
    if db is None and Path(DEFAULT_DB.removeprefix("sqlite:///")).is_file():
        db = DEFAULT_DB
    datasets = db, shipped_trials() if trials_from == "shipped" else None
    count = threads if threads is not None else max(kind_of(target).default_thread_counts(None))
    if verify and cache == "model":
        raise UsageError("--verify measures operators alone; give --cache hot or --cache cold")
    source, name = source_and_name(subject or "", modelsource)
    model = ModelRequest(source=source, name=name, batch_size=batchsize, sequence_length=sequence_length)
    request = BuildRequest(
        model=model,
        target=target,
        compiler=compiler,
        threads=(count,),
        schedules=schedules,
        cache=cast("Cache", cache),
    )
    request.check(dry_run=not verify)
    use_build_for(target, compiler=compiler)
    with Status(quiet=quiet) as status:
        status.step("reading trials")
        query, named = _query(request, device, *datasets, quiet=quiet)
        if evaluate:
            status.step("training on parts of the operators, ranking the others")
            score = query.score()
        if subject is not None:
            status.step(f"fusing {subject}")
            answers = _answers(query, request, _anchors(request, db or DEFAULT_DB), k, verify, status.step)
    if as_json:
        _print_json(answers if subject is not None else None, score if evaluate else None)
        return
    if evaluate:
        _print_score(score, quiet=quiet)
    if subject is not None:
        _print(answers, f"for {request.conditions} on {named}{_taught(query, answers)}", quiet=quiet)


def _answers(
    query: ScheduleQuery,
    request: BuildRequest,
    anchors: list[Operator],
    k: int,
    verify: int,
    tell: Callable[[str], None],
) -> list[Answer]:
    if not verify:
        tell("ranking schedules")
        return [query.answer(anchor, k) for anchor in anchors]
    from op_profiler.measure.turns import locks_of, measuring
    from op_profiler.targets.target import resolve_target
    from op_profiler.tuning.trials.runner import TrialRunner

    answers = []
    target = str(resolve_target(request.target))
    names = locks_of([request.target])
    runner = TrialRunner(target, request.threads[0], cache=request.cache, name=request.target)
    with measuring(names, tell), runner:
        for number, anchor in enumerate(anchors, 1):
            tell(f"measuring {verify} schedules of operator {number} of {len(anchors)}")
            answers.append(query.answer(anchor, k, runner, verify))
    return answers


def _query(
    request: BuildRequest, device: str | None, db: str | None, shipped: Path | None, *, quiet: bool
) -> tuple[ScheduleQuery, str]:
    """What answers, and the name of the device that it answers for."""
    from op_profiler.predict.schedules.suggestions import ScheduleQuery, load_trials
    from op_profiler.targets.target import resolve_target

    rows = load_trials(db, shipped, _silent if quiet else _warn)
    rows = [row for row in rows if row["device_kind"] == request.kind.name]
    devices, named = _devices(rows, request, device)
    file = request.record_file() if device is None else None  # records are of this machine's processor
    return ScheduleQuery(rows, resolve_target(request.target), file, request.conditions, devices), named


def _devices(rows: list[dict[str, Any]], request: BuildRequest, device: str | None) -> tuple[dict[str, str], str]:
    """Devices by key whose trials count, all alike, and what to call them."""
    from op_profiler.errors import UsageError
    from op_profiler.targets.llvm.identity import host_fingerprint, processor_name

    if device is None and request.on_host:
        alike = host_fingerprint()
        return {r["device_key"]: "" for r in rows if r["host_fingerprint"] == alike}, processor_name()
    wanted = (device or "").lower()
    found = {r["device_key"]: r["processor"] for r in rows if wanted in (r["device_key"], "") or _names(wanted, r)}
    if len(found) > 1 or (device is not None and not found):
        fitting = [row for row in rows if not found or row["device_key"] in found]
        there = ", ".join(sorted({f"{r['device_key']} ({r['processor']})" for r in fitting}))
        raise UsageError(f"--device {device or 'is needed'}: {len(found)} devices fit; there are trials of {there}")
    return found, next(iter(found.values()), request.target)


def _names(wanted: str, row: dict[str, Any]) -> bool:
    return wanted in str(row["processor"]).lower()


def _warn(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def _silent(text: str) -> None:
    """In place of `_warn`."""


def _anchors(request: BuildRequest, db: str) -> list[Operator]:
    """The anchor of an operator's key, or those of a model that can be tuned."""
    from op_profiler.collection.studies.tune import tunables_of
    from op_profiler.dataset import Dataset
    from op_profiler.errors import UsageError
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.lowered_cache import load_cached
    from op_profiler.predict.schedules.anchors import anchor_of_key
    from op_profiler.targets.target import resolve_target

    name = request.model.name
    if re.fullmatch(r"[0-9a-f]{16}", name):
        with Dataset.open(db, create=False, read_only=True) as dataset:
            anchor = anchor_of_key(dataset, name)
        if anchor is None:
            place = without_password(db)
            raise UsageError(
                f"{place} has no operator {name}; op-profiler export --output operators.csv lists the keys"
            )
        return [anchor]
    frontend = FRONTENDS.get(request.model.source)
    frontend.check(request.model)
    items, _ = tunables_of(load_cached(frontend, request.model), resolve_target(request.target), None)
    return [item.anchor for item in items]


def _taught(query: ScheduleQuery, answers: list[Answer]) -> str:
    """Whose trials predictions come from: these may be none of the machine that they are for."""
    if not any(one.source == "predicted" for answer in answers for one in answer.suggestions):
        return ""
    return f"; predicted from trials of {', '.join(query.processors)}"


def _print_json(answers: list[Answer] | None, score: Score | None) -> None:
    """One value: a list of the operators, or an object where there is an evaluation."""
    operators = [
        {
            "operator": answer.anchor.key,
            "anchor": answer.anchor.anchor,
            "output": answer.anchor.outputs[0].shape,
            "schedules": [dataclasses.asdict(s) for s in answer.suggestions],
        }
        for answer in answers or ()
    ]
    if score is None:
        print(json_text.dumps(operators))
        return
    told = {} if answers is None else {"operators": operators}
    print(json_text.dumps({"evaluation": dataclasses.asdict(score), **told}))


def _print_score(score: Score, *, quiet: bool) -> None:
    if not quiet:
        print(f"held out: {score.operators} operators with {score.trials} trials")
    print(f"pairs in the right order: {score.pairwise:.1%}")
    for k, loss in score.top.items() if not quiet else ():
        print(f"best of the first {k}: {loss:.2f} times the best of all (geometric mean; 20 at most, or if all fail)")


def _print(answers: list[Answer], conditions: str, *, quiet: bool) -> None:
    if quiet:
        first = Counter(answer.suggestions[0].source if answer.suggestions else "no template" for answer in answers)
        print(f"{conditions}: {', '.join(f'{count} {source}' for source, count in first.items()) or 'no operator'}")
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(conditions, highlight=False)
    for answer in answers:
        anchor = answer.anchor
        shape = "x".join(map(str, anchor.outputs[0].shape))
        title = f"{anchor.anchor} {shape}, operator {anchor.key}"
        if not answer.suggestions:
            console.print(f"{title}: no template of this project computes it", highlight=False)
            continue
        table = Table(title=title, title_justify="left")
        for column in ("source", "found for", "us", "verified us", "template", "knobs"):
            table.add_column(column, justify="right" if "us" in column else "left")
        for s in answer.suggestions:
            knobs = " ".join(f"{name}={value}" for name, value in s.schedule.knobs.items())
            verified = s.error or (f"{s.verified_us:.1f}" if s.verified_us is not None else "-")
            latency = f"{s.latency_us:.1f}" if s.latency_us is not None else "-"
            found_for = str(s.conditions) if s.conditions is not None else "unknown conditions"
            table.add_row(s.source, found_for, latency, verified, s.schedule.template, knobs)
        console.print(table, markup=False)
