"""``op-profiler schedule``."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Annotated, cast

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.collection.studies.suggest import ScheduleRequest
from op_profiler.errors import UsageError
from op_profiler.frontends import source_and_name
from op_profiler.options import Only
from op_profiler.report.status import Status
from op_profiler.report.tables import numbers, screen, show_table, texts

if TYPE_CHECKING:
    from op_profiler.measure.measurement import Cache
    from op_profiler.prediction.schedules.ranking import RankingScore
    from op_profiler.prediction.schedules.suggestions import Answer, ScheduleQuery

_HEADINGS = [
    *texts("source"),
    *numbers("us"),
    *numbers("verified, us"),
    *texts("knobs"),
    *texts("template", rank=1),
    *texts("found for", rank=2),
]

EXAMPLES = """Examples:

op-profiler schedule resnet-18                                     (every heavy op of the model)

op-profiler schedule mobilenet --verify 8                          (measure the 8 schedules that are predicted best)

op-profiler schedule 4f0c2a9be1d37c55 --k 5 --json                 (one operator, by its key)

op-profiler schedule resnet-18 --threads 1 --cache cold            (default: all cores, hot caches)

op-profiler schedule --evaluate                                    (accuracy of the predictions on held-out operators)
"""


def schedule(
    request: Annotated[
        ScheduleRequest,
        Only("modelsource", "batch_size", "sequence_length", "target", "compiler", "schedules"),
        Only("device", "k", "verify", "trials_from", "db"),
    ],
    subject: Annotated[
        str | None,
        typer.Argument(help="Name, source:name or path of a model file; or the key of an operator (16 hex digits)."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Thread count that the schedule is for. Default: the number of cores.")
    ] = None,
    cache: Annotated[
        str,
        typer.Option(
            help="Cache state that the schedule is for: model (the caches inside a model), hot, or cold (the weights "
            "are flushed before each call)."
        ),
    ] = "hot",
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate", help="Report the pairwise and top-k accuracy of the predicted ranking on held-out operators."
        ),
    ] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Print the best known schedule of an operator, or the best predicted ones if it was never tuned."""
    if subject is None and not evaluate:
        raise UsageError("name a model or an operator, or give --evaluate")
    build = request.build
    source, name = source_and_name(subject or "", build.model.source)
    build = dataclasses.replace(
        build,
        model=dataclasses.replace(build.model, source=source, name=name),
        threads=(max(build.threads) if threads is None else threads,),
        cache=cast("Cache", cache),
    )
    request = dataclasses.replace(request, build=build)
    request.check()
    with Status(quiet=quiet) as status:
        status.step("reading trials")
        query, named = request.known(status.note)
        if evaluate:
            status.step("training on parts of the operators, ranking the others")
            score = query.score()
        if subject is not None:
            answers = request.answers(query, status.step)
    if as_json:
        asked = {"operators": answers} if subject is not None else {}
        print(json_text.dumps({"evaluation": score, **asked} if evaluate else answers))
        return
    if evaluate:
        _print_score(score, quiet=quiet)
    if subject is not None:
        _print(answers, f"for {build.conditions} on {named}{_trial_sources(query, answers)}", quiet=quiet)


def _trial_sources(query: ScheduleQuery, answers: list[Answer]) -> str:
    """Return a text with the processors whose trials the predictions come from; empty if nothing is predicted."""
    if not any(one.source == "predicted" for answer in answers for one in answer.suggestions):
        return ""
    return f"; predicted from trials of {', '.join(query.processors)}"


def _print_score(score: RankingScore, *, quiet: bool) -> None:
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
    console = screen()
    console.print(conditions, highlight=False)
    for answer in answers:
        anchor = answer.anchor
        shape = "x".join(map(str, anchor.outputs[0].shape))
        title = f"{anchor.anchor} {shape}, operator {anchor.key}"
        if not answer.suggestions:
            console.print(f"{title}: no template of this project computes it", highlight=False)
            continue
        rows = []
        for s in answer.suggestions:
            knobs = " ".join(f"{name}={value}" for name, value in s.schedule.knobs.items())
            verified = s.error or (f"{s.verified_us:.1f}" if s.verified_us is not None else "-")
            latency = f"{s.latency_us:.1f}" if s.latency_us is not None else "-"
            found_for = str(s.conditions) if s.conditions is not None else "unknown conditions"
            rows.append([s.source, latency, verified, knobs, s.schedule.template, found_for])
        show_table(console, title, _HEADINGS, rows)
