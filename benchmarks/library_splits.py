"""How far off is each predictor on held-out rows of a convolution library? MAPE per split.

    python benchmarks/library_splits.py ../shared/data/tinynas_v100_fp32.txt [--keep FILE] [--predictor default]
                                                                 (nine minutes; the default alone seven)

The column `library` is the name of the file, and `sha256` the digest of its content. Stored rows of other libraries are
kept.

Goal: on `tinynas_v100_fp32.txt` the MAPE of the default is 2.5, 5, 4, 2.8, 2.8 and 3.5 % on the six splits, and all
of them take ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import RESULTS, about_all, at_most, digest, every, measured_on, provenance, store, with_earlier

if TYPE_CHECKING:
    from common import Tables

_GOAL_LIBRARY = "tinynas_v100_fp32.txt"
_GOAL_PERCENT = (2.5, 5.0, 4.0, 2.8, 2.8, 3.5)
"""By split, in the order of `op_profiler.prediction.library.splits.SPLITS`, which the rows have too."""


def percent(share: float | None) -> float | None:
    """A share in percent with one decimal."""
    return None if share is None else round(100 * share, 1)


def stored(library: Path, counts: dict[str, int], mape: list[dict[str, Any]], folder: Path = RESULTS) -> None:
    """Store what was found of a library next to what is stored of others.

    Args:
        counts: rows of it that are used, and that are not.
        mape: a row for each split.
    """
    head = {"library": library.name}
    about = [head | {"sha256": digest(library)} | counts]
    tables = {
        "library": with_earlier(__file__, "library", about, ["library"], folder=folder),
        "mape": with_earlier(__file__, "mape", [head | row for row in mape], ["library", "held_out"], folder=folder),
    }
    spans = []
    for name in (row["library"] for row in tables["library"]):
        ours = [row["default_percent"] for row in tables["mape"] if row["library"] == name]
        spans.append(f"{name}: {min(ours)} to {max(ours)} % on {len(ours)} splits")
    provenance = about_all(__file__, measured_on(), folder=folder)
    headline = f"the default's MAPE: {'; '.join(spans)}"
    store(__file__, headline, tables, whole=True, folder=folder, provenance=provenance)


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    The tables lack the number of cores, which the provenance has: the time counts as it was measured.
    """
    rows = [row for row in tables.get("mape", ()) if row["library"] == _GOAL_LIBRARY]
    if len(rows) != len(_GOAL_PERCENT):
        return None
    seconds = sum(row["default_s"] for row in rows)
    off = (at_most(row["default_percent"], limit) for row, limit in zip(rows, _GOAL_PERCENT, strict=True))
    return every([*off, at_most(seconds, 600)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("--keep", type=Path, metavar="FILE", help="scores of earlier runs, which go on from there")
    parser.add_argument("--predictor", nargs="+", metavar="NAME", help="of these alone; nothing is stored then")
    arguments = parser.parse_args()
    print(provenance())

    from op_profiler.dataset.formats.tinynas import read_library
    from op_profiler.prediction.library import PREDICTORS
    from op_profiler.prediction.library.library_predictor import without_suspicious
    from op_profiler.prediction.library.scoring import Score, evaluate
    from op_profiler.prediction.library.splits import DESCRIPTIONS, SPLITS

    read = read_library(arguments.library)
    table, findings = without_suspicious(read)
    print(
        f"{len(table)} rows; left out: {read.failed} failed, {len(findings)} suspicious. MAPE; of the default also how"
    )
    print("many of the held-out rows lie inside its 90 % interval")
    names = arguments.predictor or list(PREDICTORS)
    keep: Path | None = arguments.keep
    of = digest(arguments.library)
    lines = keep.read_text().splitlines() if keep is not None and keep.exists() else []
    kept = [Score(**entry["score"]) for entry in map(json.loads, lines) if entry["library"] == of]
    scores = {(score.split, score.predictor): score for score in kept}
    for name in names:
        for split in SPLITS:
            if (split, name) in scores:
                continue
            scores[split, name] = score = evaluate(table, split, name)
            print(f"{name}, {split}: {score.mape:.2%} after {score.seconds:.0f} s", file=sys.stderr, flush=True)
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps({"library": of, "score": dataclasses.asdict(score)}) + "\n")
    print(f"{'held out':42}" + "".join(f"{name:>14}" for name in names) + f"{'inside':>8}")
    for split in SPLITS:
        inside = scores[split, names[0]].coverage_90
        columns = "".join(f"{scores[split, name].mape:14.2%}" for name in names)
        print(f"{DESCRIPTIONS[split]:42}{columns}{'-' if inside is None else f'{inside:.1%}':>8}")
    print(f"{names[0]}: all splits after {sum(scores[split, names[0]].seconds for split in SPLITS):.0f} s")
    if arguments.predictor:
        return
    rows = [
        {
            "held_out": DESCRIPTIONS[split],
            **{f"{name}_percent": round(100 * scores[split, name].mape, 2) for name in PREDICTORS},
            "inside_interval_percent": percent(scores[split, "default"].coverage_90),
            "default_s": round(scores[split, "default"].seconds),
        }
        for split in SPLITS
    ]
    stored(arguments.library, {"rows": len(table), "failed": read.failed, "suspicious": len(findings)}, rows)


if __name__ == "__main__":
    main()
