"""`compare_runs`: finds the runs that the user named, pairs them by model, and compares each pair."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence

from op_profiler.comparison.changes import judge
from op_profiler.comparison.request import CompareRequest
from op_profiler.comparison.result import Comparison, RunComparison
from op_profiler.comparison.runs import KnownRun, TimedRun, load, pairs_of, runs_of
from op_profiler.comparison.stored import compare_stored
from op_profiler.dataset.draw import GroupDraw

MOST_ROWS = 50_000
"""Largest number of rows to compare; each needs about two kilobytes of memory."""


def compare_runs(
    request: CompareRequest, announce: Callable[[str], None], note: Callable[[str], None] = lambda text: None
) -> Comparison:
    """Compare runs by their stored times, or by times that are measured again alternately.

    Args:
        request: the runs to compare.
        announce: called with a text before each step that takes long.
        note: called before the measurement with a text about processes that keep the processor busy.

    Raises:
        OpProfilerError: there are no such runs, or they cannot be compared.
    """
    request.check()
    before, after = (runs_of(one, request.db, request.model) for one in (request.before, request.after or ""))
    pairs, notes = pairs_of(before, after)
    compared: Callable[[TimedRun, TimedRun], RunComparison] = compare_stored
    if request.rerun:
        from op_profiler.comparison.rerun import compare_in_turns

        compared = functools.partial(compare_in_turns, seconds=request.seconds, announce=announce, note=note)
    drafts = _drawn(pairs, compared, announce)
    if len(drafts) < len(pairs):
        notes.append(
            f"{len(drafts)} of {len(pairs)} models are compared: of more than {MOST_ROWS:,} rows whole models are "
            "drawn by chance, the same ones each time; --model compares one of the others"
        )
    runs, level = judged(drafts)
    return Comparison(runs=runs, method="in turns" if request.rerun else "stored", level=level, notes=tuple(notes))


def _drawn(
    pairs: Sequence[tuple[KnownRun, KnownRun]],
    compared: Callable[[TimedRun, TimedRun], RunComparison],
    announce: Callable[[str], None],
) -> list[RunComparison]:
    """Compare one pair of runs after the other, so that only the times of two runs are in memory.

    If the pairs have more than `MOST_ROWS` rows together, the result contains a random subset of the pairs.

    Args:
        compared: compares a pair; its changes are not judged yet.
    """
    draw, drafts = GroupDraw(MOST_ROWS), dict[str, RunComparison]()
    for number, (before, after) in enumerate(pairs, 1):
        if not draw.takes(before.title):
            continue
        if len(pairs) > 1:
            announce(f"comparing {before.title}: {number} of {len(pairs)}")
        draft = compared(load(before), load(after))
        for _ in (*draft.rows[1:], *draft.only_before, *draft.only_after):
            draw.takes(before.title)
        drafts[before.title] = draft
        for gone in draw.dropped():
            del drafts[gone]
    for gone in draw.rest():
        del drafts[gone]
    return list(drafts.values())


def judged(drafts: Sequence[RunComparison]) -> tuple[tuple[RunComparison, ...], float]:
    """Judge the changes of all rows of `drafts` together (`judge`).

    Returns:
        The comparisons with the field `change` of every row, and the confidence level of the intervals.
    """
    changes, level = judge([row.estimate for draft in drafts for row in draft.rows])
    found = iter(changes)
    runs = [
        dataclasses.replace(draft, rows=tuple(dataclasses.replace(row, change=next(found)) for row in draft.rows))
        for draft in drafts
    ]
    return tuple(runs), level
