"""Does a second collection agree with the first one? Operators above 50 us, at every thread count.

    python benchmarks/repeatability.py [MODEL ...]     (default: resnet-18 mobilenet squeezenet_v1.1; five minutes)

Every model is collected three times into an empty dataset, the models in turn, so that minutes pass between two runs of
one model. All pairs of runs are compared by the measured medians, and by the times at the machine's reference state
(`steady_us`). The results are the share of operators that differ by less than 3 %, and the share of second values
inside the first run's between-run interval.

Goal: 95 % of the operators are within 3 % at the reference state, 95 % of the second values inside the interval.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import at_least, collect, every, provenance, store

if TYPE_CHECKING:
    from common import Records, Tables

MODELS = ("resnet-18", "mobilenet", "squeezenet_v1.1")
_RUNS = 3
_SMALLEST_US = 50.0
_CLOSE = 0.03
_TIMES = {
    "median": ("median_us", "again_low_us", "again_high_us"),
    "steady": ("steady_us", "steady_low_us", "steady_high_us"),
}

Run = dict[tuple[str, int], dict[str, Any]]


def operators_of(model: str) -> Run:
    """Operators by workload key and thread count, from a collection into an empty dataset."""
    from op_profiler.dataset import Dataset, flat_rows

    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/run.db"
        code, _ = collect(["--modelname", model, "--schedules", "none", "--db", url], Path(folder))
        assert code == 0, f"the collection of {model} ended with {code}"
        with Dataset.open(url) as dataset:
            return {(row["operator_key"], row["threads"]): row for row in flat_rows(dataset)}


def compare(runs: list[Run], threads: int, of: str) -> dict[str, Any]:
    """Over all ordered pairs of runs, the operators that both timed."""
    time, low, high = _TIMES[of]
    pairs = [
        (first[key], second[key])
        for first, second in itertools.permutations(runs, 2)
        for key in first.keys() & second.keys()
        if key[1] == threads and max(first[key]["median_us"], second[key]["median_us"]) > _SMALLEST_US
    ]
    told = [(a, b) for a, b in pairs if a[low] is not None and b[time] is not None]
    differences = np.array([abs(b[time] / a[time] - 1) for a, b in told])
    inside = [a[low] <= b[time] <= a[high] for a, b in told]
    widths = [(a[high] - a[low]) / 2 / a[time] for a, _ in told]
    return {
        "pairs": len(pairs),
        "without_interval": len(pairs) - len(told),
        "within_3_percent": round(100 * float(np.mean(differences < _CLOSE)), 1),
        "median_difference_percent": round(100 * float(np.median(differences)), 1),
        "largest_percent": round(100 * float(np.max(differences)), 1),
        "second_inside_percent": round(100 * float(np.mean(inside)), 1),
        "half_width_percent": round(100 * float(np.median(widths)), 1),
    }


def claim(tables: Tables) -> str:
    """Return the sentence of the README, with its number from the stored tables."""
    inside = min(row["second_inside_percent"] for row in _totals(tables["models"]))
    return (
        f"At each thread count, at least {inside} % of the operators' times in a second run lie in the interval that "
        "the first run reported."
    )


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    The goal is about all models together, at each thread count.
    """
    rows = _totals(tables.get("models", ()))
    close = [at_least(row["within_3_percent"], 95) for row in rows]
    return every([*close, *(at_least(row["second_inside_percent"], 95) for row in rows)])


def _totals(rows: Records) -> list[Mapping[str, Any]]:
    """Return the rows of all models together at the reference state, one a thread count."""
    return [row for row in rows if row["model"] == "all" and row["of"] == "steady"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    models = arguments.models or MODELS
    print(provenance())
    runs: dict[str, list[Run]] = {model: [] for model in models}
    for _ in range(_RUNS):
        for model in models:
            runs[model].append(operators_of(model))
    columns = f"{'pairs':>6} {'within 3 %':>11} {'median':>7} {'largest':>8} {'inside':>7} {'+-':>6}"
    print(f"{'':16} {'threads':>7} {'of':>7} {columns}")
    found = []
    everything = list(itertools.chain.from_iterable(runs.values()))
    for threads in sorted({key[1] for run in everything for key in run}):
        for model, group in (*runs.items(), ("all", None)):
            for of in _TIMES:
                one = compare(group, threads, of) if group else _together(list(runs.values()), threads, of)
                found.append({"model": model, "threads": threads, "of": of} | one)
                print(
                    f"{model:16} {threads:>7} {of:>7} {one['pairs']:>6} {one['within_3_percent']:>10}% "
                    f"{one['median_difference_percent']:>6}% {one['largest_percent']:>7}% "
                    f"{one['second_inside_percent']:>6}% {one['half_width_percent']:>5}%",
                    flush=True,
                )
    totals = _totals(found)
    headline = "; ".join(
        f"at {t['threads']} thread{'s' if t['threads'] > 1 else ''}, {t['within_3_percent']} % of the operators above "
        f"{_SMALLEST_US:.0f} us differ by less than 3 % between two runs (times at the reference state), and "
        f"{t['second_inside_percent']} % of the times of the second run lie in the interval of the first run"
        for t in totals
    )
    print(headline)
    store(__file__, headline, {"models": found}, whole=not arguments.models)


def _together(groups: list[list[Run]], threads: int, of: str) -> dict[str, Any]:
    """All models: keys of two models never meet, so runs can be put together."""
    numbered = [
        {(f"{index} {key}", count): row for index, runs in enumerate(groups) for (key, count), row in runs[at].items()}
        for at in range(_RUNS)
    ]
    return compare(numbered, threads, of)


if __name__ == "__main__":
    main()
