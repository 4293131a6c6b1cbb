"""How far off are predictions on data that others published, next to the errors that they published?

    python benchmarks/scoreboard.py --from FOLDER [--keep FILE] [--set tophub ncnn]

Each set is in a folder of its name below FOLDER. For absent sets, the script prints the command that fetches them. With
`--keep`, splits that are in the file are not evaluated again. Stored rows of sets that a run does not contain are kept.

Goal: the limits of the column `goal_percent`, which is the MAPE, or for HELP the share of networks with errors above
10 %; and 87 to 93 % of the measured times lie inside the 90 % interval on each split.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import about_all, at_most, every, measured_on, provenance, store, with_earlier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from common import Tables

    from op_profiler.prediction.sets.scores import SetScore

_TINYNAS = ("random", "h", "oc", "ratio", "batch", "largest")
_GOALS = {
    ("neusight", "linear, H100"): 10.0,
    ("neusight", "batched product, H100"): 10.0,
    ("neusight", "softmax, H100"): 12.0,
    ("neusight", "element-wise, H100"): 12.0,
    ("pipeweave", "fp8 GEMM, H200"): 5.0,
    ("tophub", "pynq"): 8.0,
    ("help", "nasbench201, all"): 25.0,
    ("help", "fbnet, all"): 25.0,
    ("help", "ofa, all"): 25.0,
    **{("tinynas", f"FP16, {split}"): goal for split, goal in zip(_TINYNAS, (4, 6.5, 6, 6, 4, 4), strict=True)},
    **{("tinynas", f"INT8, {split}"): goal for split, goal in zip(_TINYNAS, (2.3, 6, 3.8, 3.8, 2.6, 3.3), strict=True)},
}
"""Percent, by set and split."""


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    NeuSight has no softmax and no element-wise rows of an H100: those goals stay unknown.
    """
    rows = tables.get("splits", ())
    named = {(row["set"], row["split"]): row for row in rows}
    limits = [at_most(named[key]["judged_percent"], limit) if key in named else None for key, limit in _GOALS.items()]
    inside = [row["inside_interval_percent"] for row in rows]
    return every([*limits, *(None if share is None else 87 <= share <= 93 for share in inside)])


def row_of(score: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the table from the members of a `SetScore`."""
    key = (score["set"], score["split"])
    published = score["published"]
    outside = 1 - score["within_10"]
    return {
        "set": score["set"],
        "split": score["split"],
        "rows": score["tested"],
        "ours_percent": _percent(score["mape"]),
        "median_percent": _percent(score["median"]),
        "published": "" if published is None else f"{published['percent']:g} {published['measure']}",
        "published_of": "" if published is None else published["of"],
        "trees_percent": _percent(score["trees"]),
        "one_factor_percent": _percent(score["factor"]),
        "within_10_percent": _percent(score["within_10"]),
        "inside_interval_percent": _percent(score["coverage_90"]),
        "spearman": None if score["spearman"] is None else round(score["spearman"], 3),
        "judged_percent": round(100 * (outside if score["set"] == "help" else score["mape"]), 2),
        "goal_percent": _GOALS.get(key),
    }


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=Path, metavar="FOLDER", help="default: sets in the cache folder")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="scores of earlier runs, which go on from there")
    parser.add_argument("--set", nargs="+", metavar="NAME", help="of these alone")
    arguments = parser.parse_args()
    print(provenance())

    from op_profiler.json_text import finite
    from op_profiler.prediction.sets import SETS
    from op_profiler.prediction.sets.scores import evaluate_sets

    keep: Path | None = arguments.keep
    lines = keep.read_text().splitlines() if keep is not None and keep.exists() else []
    scores = {(entry["set"], entry["split"]): entry for entry in map(json.loads, lines)}
    skipped = []

    def scored(score: SetScore) -> None:
        entry: Any = finite(dataclasses.asdict(score))
        scores[score.set, score.split] = entry
        if keep is not None:
            with keep.open("a") as file:
                file.write(json.dumps(entry) + "\n")

    names = arguments.set or list(SETS)
    for result in evaluate_sets(
        names,
        arguments.folder,
        0,
        lambda text: print(text, file=sys.stderr, flush=True),
        lambda name, split: (name, split) not in scores,
        scored,
    ):
        if result.fetch is not None:
            print(f"{result.set} is absent; fetch it with: {result.fetch}")
            continue
        skipped += [{"set": result.set, "rows": count, "why": why} for why, count in result.skipped.items()]
    rows = [row_of(score) for score in scores.values() if score["set"] in names]
    tables = {
        "splits": with_earlier(__file__, "splits", rows, ["set", "split"]),
        "skipped": with_earlier(__file__, "skipped", skipped, ["set", "why"]),
    }
    judged = [row for row in tables["splits"] if row["goal_percent"] is not None]
    good = sum(row["judged_percent"] <= row["goal_percent"] for row in judged)
    inside = sum(87 <= (row["inside_interval_percent"] or 0) <= 93 for row in tables["splits"])
    headline = (
        f"{good} of {len(judged)} goals on {len({row['set'] for row in tables['splits']})} public sets are reached; "
        f"intervals hold as stated on {inside} of {len(tables['splits'])} splits"
    )
    store(__file__, headline, tables, whole=True, provenance=about_all(__file__, measured_on()))


if __name__ == "__main__":
    main()
