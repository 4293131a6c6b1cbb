"""What the benchmarks of outputs share: verdicts of many cases, kept between runs, and their totals."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import ROOT, at_most, every, provenance

sys.path.insert(0, str(ROOT / "tests" / "frontends"))
from operator_sets.case import Case, Outcome, Verdict, judge
from operator_sets.running import judge_all, serve

if TYPE_CHECKING:
    from common import Tables

__all__ = ["Case", "Outcome", "Verdict", "found_of", "judge", "none_wrong", "serve", "totals", "wrong_rows"]

_WRONG = (Outcome.DIFFERS, Outcome.CRASHES)


def found_of(
    what: str, names: Sequence[str], kept: Path | None, jobs: int, script: str, **limits: Any
) -> dict[str, Verdict]:
    """The verdicts of cases by their names.

    Args:
        what: of the script's sets, which the option ``--serve`` of the script names.
        kept: lines of JSON, of this run and of earlier ones of the same commit.
        limits: as in `judge_all`.
    """
    now = provenance()
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    entries = [entry for entry in map(json.loads, lines) if _undated(entry["provenance"]) == _undated(now)]
    known = {e["name"]: Verdict(Outcome(e["outcome"]), e["detail"]) for e in entries if e["framework"] == what}
    known = {name: verdict for name, verdict in known.items() if name in names}
    missing = [name for name in names if name not in known]
    for count, (name, verdict) in enumerate(
        judge_all(missing, [sys.executable, script, "--serve", what], jobs, **limits), 1
    ):
        known[name] = verdict
        if kept is not None:
            entry = {"framework": what, "name": name, "outcome": verdict.outcome, "detail": verdict.detail}
            with kept.open("a") as file:
                file.write(json.dumps({**entry, "provenance": now}) + "\n")
        if count % 50 == 0:
            print(f"{what}: {count} of {len(missing)} cases", file=sys.stderr, flush=True)
    return {name: known[name] for name in names}


def _undated(provenance: str) -> str:
    return provenance.partition(", ")[2]


def totals(verdicts: Iterable[Verdict]) -> dict[str, int]:
    """How many of the verdicts that count have each outcome."""
    told = list(verdicts)
    outcomes = Counter(verdict.outcome for verdict in told)
    judged = [one for one in Outcome if one not in (Outcome.INVALID, Outcome.ABSENT)]
    return {
        "cases": sum(outcomes[one] for one in judged),
        **{one.value: outcomes[one] for one in judged},
        "no_reference": outcomes[Outcome.INVALID],
        "texts_of_tvm": sum(verdict.has_text_of_tvm for verdict in told),
    }


def wrong_rows(what: str, found: dict[str, Verdict]) -> list[dict[str, str]]:
    """A row for each case that differs, crashes, or is refused with a text of TVM's; they are printed too."""
    rows = [
        {"framework": what, "case": name, "outcome": verdict.outcome.value, "detail": verdict.detail}
        for name, verdict in found.items()
        if verdict.outcome in _WRONG or verdict.has_text_of_tvm
    ]
    for row in rows:
        print(f"{what} {row['case']}: {row['outcome']}: {row['detail']}")
    return rows


def none_wrong(tables: Tables, sets: Sequence[str]) -> bool | None:
    """Return whether no case of a set differs, crashes or is refused with a text of TVM; None if a set has no row."""
    shares = {row["framework"]: row for row in tables.get("shares", ())}
    bad = ("differs", "crashes", "texts_of_tvm")
    return every(at_most(shares[name][what], 0) if name in shares else None for name in sets for what in bad)
