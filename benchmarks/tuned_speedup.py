"""How much faster is the tuned build than the default, and than the vendor's kernels, for the heavy operators?

The script runs the collector with --iftune, --ifcompare and --vendor. Default and tuned builds of the model run in
turns in one process. The ops in isolation and the vendor's kernels (torch) also run in turns, with hot caches.

    python benchmarks/tuned_speedup.py [--trials 64] [--db sqlite:///trials.db] [--models resnet-18 mobilenet bert]

With --db, trials that the dataset already contains are not repeated.

Goal: resnet-18 as a whole is 1.4 times as fast, and no operator is slower in the model than its default.
"""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import at_least, collect, every, provenance, store

if TYPE_CHECKING:
    from common import Tables

MODELS = ("resnet-18", "mobilenet", "bert")
SOURCES = {"bert": "transformers"}


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def mean_of(ratios: list[float]) -> float | None:
    """Their geometric mean with two decimals."""
    return round(geometric_mean(ratios), 2) if ratios else None


def study(model: str, trials: int, db: str, folder: Path) -> dict[str, Any] | None:
    """Summary of one model at all cores; None where the collector failed."""
    from op_profiler.cores import usable_cores

    arguments = ["--modelsource", SOURCES.get(model, "local"), "--modelname", model, "--threads", str(usable_cores())]
    arguments += ["--iftune", "true", "--trials", str(trials), "--ifcompare", "true", "--vendor", "true", "--db", db]
    _, entries = collect(arguments, folder)
    return entries[0] if entries and entries[0].get("comparison") else None


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    The tables lack the times of single operators in the model, so the second part is always unknown.
    """
    of_resnet = [row["whole_model"] for row in tables.get("models", ()) if row["model"] == "resnet-18"]
    slower_operators = None  # the rows have geometric means over the operators of a model
    return every([every(at_least(speedup, 1.4) for speedup in of_resnet), slower_operators])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--db", default="")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    arguments = parser.parse_args()
    print(provenance())
    print(f"{arguments.trials} trials an operator")
    heads = ("whole model", "heavy ops in it", "ops in isolation", "vendor/tuned", "at least level")
    print(f"{'model':18}" + "".join(f"{head:>{width}}" for head, width in zip(heads, (26, 17, 11, 14, 16))))
    everything: dict[str, list[float]] = {"inside": [], "alone": [], "vendor": []}
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["OP_PROFILER_SCHEDULES"] = str(folder / "schedules")
        db = arguments.db or f"sqlite:///{folder / 'trials.db'}"
        for model in arguments.models:
            entry = study(model, arguments.trials, db, folder)
            if entry is None:
                print(f"{model:18} failed")
                continue
            whole = entry["comparison"][0]
            tuned_keys = {key for t in entry["tuning"] for key in t["operators"]}
            pairs = {o["default_key"]: o["default_us"] / o["tuned_us"] for o in whole["operators"]}
            inside = [ratio for key, ratio in pairs.items() if key in tuned_keys]
            alone = [v["default_us"] / v["tuned_us"] for v in entry["vendor"] if v["default_us"] and v["tuned_us"]]
            vendor = [v["vendor_us"] / v["tuned_us"] for v in entry["vendor"] if v["vendor_us"] and v["tuned_us"]]
            for kind, values in (("inside", inside), ("alone", alone), ("vendor", vendor)):
                everything[kind] += values
            interval = f"{whole['speedup']:.3f} ({whole['speedup_low']:.3f} to {whole['speedup_high']:.3f})"
            level = f"{sum(v >= 1 for v in vendor)} of {len(vendor)}"
            print(
                f"{model:18}{interval:>26}{geometric_mean(inside):17.2f}{geometric_mean(alone):11.2f}"
                f"{geometric_mean(vendor):14.2f}{level:>16}",
                flush=True,
            )
            rows.append(
                {
                    "model": model,
                    "whole_model": round(whole["speedup"], 3),
                    "low": round(whole["speedup_low"], 3),
                    "high": round(whole["speedup_high"], 3),
                    "heavy_ops_in_it": mean_of(inside),
                    "ops_alone": mean_of(alone),
                    "vendor_over_tuned": mean_of(vendor),
                    "at_least_level": level,
                }
            )
    inside, alone, vendor = everything.values()
    total = {
        "trials": arguments.trials,
        "default_over_tuned_in_models": mean_of(inside),
        "in_models": len(inside),
        "default_over_tuned_alone": mean_of(alone),
        "alone": len(alone),
        "vendor_over_tuned": mean_of(vendor),
        "at_least_level": f"{sum(v >= 1 for v in vendor)} of {len(vendor)}",
    }
    headline = (
        "default over tuned {default_over_tuned_in_models} in the models; vendor over tuned {vendor_over_tuned}, "
        "at least level for {at_least_level}"
    ).format_map(total)
    print(f"all heavy operators with a template (geometric means): {headline}; alone {mean_of(alone)}")
    whole_run = tuple(arguments.models) == MODELS and len(rows) == len(MODELS)
    store(__file__, headline, {"models": rows, "all_heavy_operators": [total]}, whole=whole_run)


if __name__ == "__main__":
    main()
