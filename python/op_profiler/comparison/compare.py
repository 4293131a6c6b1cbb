"""From two words on a command line to a comparison of the runs that they mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from op_profiler.comparison.changes import judge
from op_profiler.comparison.result import Comparison, RunComparison
from op_profiler.comparison.runs import pairs_of, runs_of
from op_profiler.comparison.stored import compare_stored


def compare_runs(
    before: str,
    after: str,
    *,
    db: str,
    model: str | None = None,
    rerun: bool = False,
    seconds: float = 60.0,
    announce: Callable[[str], None],
) -> Comparison:
    """Compare runs, as they were stored or measured again in turns.

    Args:
        before, after: each the file or address of a dataset, or the label or key of a run in `db`.
        model: a name, source:name or key; None: all models that both have.
        rerun: measure both again, in turns, on this machine.
        seconds: to measure each model, at most; for `rerun`.
        announce: told what takes long.

    Raises:
        OpProfilerError: there are no such runs, or they cannot be compared.
    """
    pairs, notes = pairs_of(runs_of(before, db, model), runs_of(after, db, model))
    if rerun:
        from op_profiler.comparison.rerun import compare_in_turns

        drafts = [compare_in_turns(one, other, seconds, announce) for one, other in pairs]
    else:
        drafts = [compare_stored(one, other) for one, other in pairs]
    runs, level = judged(drafts)
    return Comparison(runs=runs, method="in turns" if rerun else "stored", level=level, notes=tuple(notes))


def judged(drafts: Sequence[RunComparison]) -> tuple[tuple[RunComparison, ...], float]:
    """The same with all changes judged together, and the level of their intervals."""
    changes, level = judge([row.estimate for draft in drafts for row in draft.rows])
    found = iter(changes)
    runs = [
        dataclasses.replace(draft, rows=tuple(dataclasses.replace(row, change=next(found)) for row in draft.rows))
        for draft in drafts
    ]
    return tuple(runs), level
