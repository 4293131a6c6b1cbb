"""Comparisons of runs as tables and Markdown, and the sentences that all forms share."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.comparison.changes import FALSE_SHARE
from op_profiler.option_values import several, threads_text
from op_profiler.report.page.amounts import half_width, us_text
from op_profiler.report.tables import numbers, print_line, screen, show_table, texts

if TYPE_CHECKING:
    from op_profiler.comparison.changes import Change
    from op_profiler.comparison.result import Comparison, RowComparison, RunComparison
    from op_profiler.comparison.runs import KnownRun

HEADS = ("operator", "layer", "output", "threads", "share", "before us", "after us", "change", "interval", "")
_HEADINGS = [
    *texts(*HEADS[:2]),
    *numbers(HEADS[2], rank=4),
    *numbers(HEADS[4], rank=3),
    *numbers(*HEADS[5:8]),
    *numbers(HEADS[8], rank=2),
    *texts(HEADS[9]),
]
_SMALL = 0.01
_MOST_MODELS = 3


def show_comparison(comparison: Comparison) -> None:
    """Print, for each pair of runs and each thread count, a table of the changed operators and of the operators that
    take longest; then lines about the other operators, and the verdict."""
    console = screen()
    for run in comparison.runs:
        shown, rest = _printed_rows(run)
        print_line(console, between(run))
        for threads in dict.fromkeys(row.threads for row in shown):
            ones = [row for row in shown if row.threads == threads]
            styles = [{"slower": "red", "faster": "green"}.get(judgement(row)) for row in ones]
            rows = [[*cells(row)[:3], *cells(row)[4:-1], judgement(row)] for row in ones]
            show_table(console, f"{run.title}, {threads_text(threads)}", _HEADINGS, rows, styles)
        rest += [
            f"{' | '.join(filter(None, cells(row)[:2]))}: {'; '.join(found)}"
            for row in shown
            if (found := _reasons(row))
        ]
        for line in (*rest, *remarks(run)):
            print_line(console, line)
    for line in (*comparison.notes, verdict(comparison), method(comparison)):
        print_line(console, line)


def between(run: RunComparison) -> str:
    """Return the names, dates and revisions of the two runs as one line."""
    return " -> ".join(_side(one, run.of_two_compilers) for one in (run.before, run.after))


def _printed_rows(run: RunComparison) -> tuple[list[RowComparison], list[str]]:
    """Return the rows to print (whole models, changes, operators that take 1 % of the time), heaviest first, and lines
    about the other rows."""
    notable = [row for row in run.rows if _is_worth_a_line(row)]
    of_models = {(row.threads, row.problem) for row in notable if row.name is None}
    not_compared = [row for row in notable if row.change is None and (row.threads, row.problem) in of_models]
    shown = [row for row in notable if row not in not_compared]
    shown.sort(key=lambda row: (row.threads, row.name is not None, -(row.share or 0.0)))
    lines = [f"not compared at {threads_text(threads)}: {why}" for threads, why in _in_order(not_compared)]
    left = len(run.rows) - len(notable)
    return shown, lines + ([f"{left} further rows under 1 % of the time: no change that is real"] if left else [])


def _in_order(rows: Sequence[RowComparison]) -> list[tuple[int, str]]:
    """Return the distinct pairs of thread count and problem, sorted."""
    return sorted({(row.threads, row.problem) for row in rows})


def cells(row: RowComparison) -> tuple[str, ...]:
    """Return the cells of the columns in `HEADS`."""
    known = (row.title, row.layer, "x".join(map(str, row.output)), str(row.threads), _share(row))
    change = row.change
    if change is None:
        return *known, "-", "-", "-", "-", words(row)
    interval = "-" if change.low is None or change.high is None else f"{change.low:+.1%} to {change.high:+.1%}"
    share = half_width(change.low, change.high)
    half_us = None if share is None else share * change.before_us
    times = (us_text(change.before_us, half_us), us_text(change.after_us, half_us))
    return *known, *times, f"{change.change:+.1%}", interval, words(row)


def words(row: RowComparison) -> str:
    """Return the judgement of a row and possible reasons of its change; if a time is missing, the reason for that."""
    return "; ".join([judgement(row), *_reasons(row)])


def judgement(row: RowComparison) -> str:
    """Return whether a row is slower, faster, unchanged or inconclusive; if a time is missing, the reason for that."""
    if row.change is None:
        return row.problem
    if row.change.real is None:
        return "inconclusive"
    if row.change.real:
        return "slower" if row.change.slower else "faster"
    return "no change seen"


def _reasons(row: RowComparison) -> list[str]:
    """Return differences between the two runs of an operator that may be the reason of its change: schedule, kernel,
    and number of calls."""
    reasons: list[str] = []
    if row.change is None:
        return reasons
    if len(row.schedules) == 2:
        reasons.append(f"schedule: {row.schedules[0]} -> {row.schedules[1]}")
    if row.how not in (None, "key"):
        reasons.append(f"another kernel, matched by its {row.how}")
    if row.calls[0] != row.calls[1]:
        reasons.append(f"{row.calls[0]} -> {several(row.calls[1], 'call')}")
    return reasons


def remarks(run: RunComparison) -> list[str]:
    """Return lines about the warnings of a comparison, and about operators that only one of the runs has."""
    return [*(f"note: {warning}" for warning in run.warnings), *only_one_side(run)]


def only_one_side(run: RunComparison) -> list[str]:
    """Return a line for each operator of one run that has no match in the other run."""
    lines = []
    for side, ones in (("before", run.only_before), ("after", run.only_after)):
        for one in ones:
            times = ", ".join(
                f"{us_text(us)} us at {threads_text(threads)}" for threads, us in sorted(one.times_us.items())
            )
            lines.append(f"only {side}: {one.title}, {several(one.calls, 'call')}, {times or 'no time'}")
    return lines


def verdict(comparison: Comparison) -> str:
    """Return the result of the comparison in one sentence."""
    rows = [row for _, row in comparison.rows if row.change is not None]
    real = [row for row in rows if row.change is not None and row.change.real]
    if not comparison.judged:
        return f"no change can be confirmed: the runs contain no between-run intervals{_advice(comparison)}"
    if not real:
        return f"no change is real, of {comparison.judged} compared"
    slower = sum(row.change is not None and row.change.slower for row in real)
    changes = f"{several(len(real), 'change')} {'is' if len(real) == 1 else 'are'} real"
    counts = f"{changes}, of {comparison.judged} compared: {slower} slower, {len(real) - slower} faster"
    return "; ".join([*_whole_models(comparison), counts])


def _whole_models(comparison: Comparison) -> list[str]:
    """Return texts about the whole models whose change is real, the largest change first: how much faster or slower
    they are; then the number of further models."""
    found = [
        (
            abs(change.change),
            f"the model {run.title.split(',')[0]} is {_amount(change)} at {several(row.threads, 'thread')}",
        )
        for run, row in comparison.rows
        if row.name is None and (change := row.change) is not None and change.real
    ]
    texts = [text for _, text in sorted(found, reverse=True)]
    return texts[:_MOST_MODELS] + ([f"{len(texts) - _MOST_MODELS} more"] if len(texts) > _MOST_MODELS else [])


def _amount(change: Change) -> str:
    """Return a change relative to the time before, such as ``40.0% faster (38.0% to 42.0%)``."""
    assert change.low is not None and change.high is not None  # it is real
    ends = sorted((abs(change.low), abs(change.high)))
    return f"{abs(change.change):.1%} {'slower' if change.slower else 'faster'} ({ends[0]:.1%} to {ends[1]:.1%})"


def method(comparison: Comparison) -> str:
    """Return a sentence on how the runs were compared, and how certain the result is."""
    level = f"intervals of {comparison.level:.2%} each: of the changes that are called real, {1 - FALSE_SHARE:.0%} are"
    if comparison.method == "in turns":
        return f"both measured in turns on this machine; {level}"
    return f"by stored times, of different minutes; {level}{_advice(comparison)}"


def _advice(comparison: Comparison) -> str:
    """Return the advice to compare with ``--rerun``, which is more reliable; empty if ``--rerun`` is not possible."""
    no_turns = all(run.of_two_compilers for run in comparison.runs)
    return "" if no_turns else "; --rerun measures both in turns, which is more reliable"


def _is_worth_a_line(row: RowComparison) -> bool:
    changed = row.change is None or bool(row.change.real)
    return row.name is None or changed or (row.share or 0.0) >= _SMALL


def _share(row: RowComparison) -> str:
    return "" if row.share is None else f"{row.share:.1%}"


def _side(run: KnownRun, with_compiler: bool) -> str:
    revisions: Sequence[str] = [
        f"{whose} {revision}"
        for whose, revision in (("git", run.user_revision), ("op_profiler", run.project_revision))
        if revision
    ]
    compiler = [run.compiler] if with_compiler else []
    return f"{run.name} ({', '.join([*compiler, run.measured_at[:16], *revisions])})"


def as_markdown(comparison: Comparison) -> str:
    """Return tables in the Markdown of GitHub and GitLab; unchanged operators are in a folded section."""
    parts = [f"### op_profiler: {verdict(comparison)}"]
    for run in comparison.runs:
        shown, rest = _printed_rows(run)
        changed = [row for row in shown if row.name is None or row.change is None or row.change.real]
        same = [row for row in shown if row not in changed]
        parts.append(f"**{_escaped(run.title)}**: {_escaped(between(run))}")
        parts.append(_table(changed))
        if same or rest:
            inside = [_table(same)] if same else []
            parts.append("\n\n".join(["<details><summary>no change seen</summary>", *inside, *rest, "</details>"]))
        parts += [f"- {_escaped(line)}" for line in remarks(run)]
    parts += [_escaped(line) for line in (*comparison.notes, method(comparison))]
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[RowComparison]) -> str:
    lines = [
        HEADS,
        [":---", ":---", *["---:"] * (len(HEADS) - 3), ":---"],
        *(map(_escaped, cells(row)) for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    """Escape a name, because names come from models of others and must not break a table or a page."""
    return html.escape(text, quote=False).replace("|", "\\|").replace("`", "\\`").replace("\n", " ")
