"""Do two collections into empty datasets agree? Operators above 50 us, at every thread count.

    python benchmarks/repeatability.py [MODEL ...]     (default: resnet-18 mobilenet squeezenet_v1.1)

Prints the share of the operators whose two medians differ by less than 3 %.

Goal: 95 % of the operators are within 3 %.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import ROOT, collect, provenance, store

MODELS = ("resnet-18", "mobilenet", "squeezenet_v1.1")
_SMALLEST_US = 50.0
_CLOSE = 0.03


def medians(model: str, folder: Path) -> dict[tuple[str, str], float]:
    """Median of each operator by workload key and thread count, from a collection into an empty dataset."""
    db = f"sqlite:///{folder}/run.db"
    code, _ = collect(["--modelname", model, "--schedules", "none", "--db", db], folder)
    assert code == 0, f"the collection of {model} ended with {code}"
    table = folder / "run.csv"
    subprocess.run(
        [
            sys.executable,
            "-c",
            "from op_profiler.cli import main; main()",
            "export",
            "--format",
            "csv",
            "--output",
            str(table),
            "--db",
            db,
            "--quiet",
        ],
        env={"PYTHONPATH": str(ROOT / "python")},
        check=True,
    )
    with table.open() as file:
        return {(r["operator_key"], r["threads"]): float(r["median_us"]) for r in csv.DictReader(file)}


def share(differences: list[float]) -> float:
    """Percentage of them that is small."""
    return 100 * float(np.mean(np.array(differences) < _CLOSE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    arguments = parser.parse_args()
    print(provenance())
    everything: list[float] = []
    rows = []
    for model in arguments.models or MODELS:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            first, second = medians(model, Path(one)), medians(model, Path(two))
        pairs = [(first[k], second[k]) for k in first.keys() & second.keys()]
        differences = [abs(b / a - 1) for a, b in pairs if max(a, b) > _SMALLEST_US]
        everything += differences
        close, middle, most = share(differences), 100 * np.median(differences), 100 * np.max(differences)
        print(
            f"{model:20} {len(differences):4} operators above 50 us: {close:.0f}% within 3 %, "
            f"median difference {middle:.1f}%, largest {most:.1f}%",
            flush=True,
        )
        rows.append(
            {
                "model": model,
                "operators_above_50_us": len(differences),
                "within_3_percent": round(close),
                "median_difference_percent": round(float(middle), 1),
                "largest_percent": round(float(most), 1),
            }
        )
    close = round(share(everything), 1)
    headline = f"{close} % of {len(everything)} operators are within 3 %"
    print(f"all: {headline}")
    total = {"operators_above_50_us": len(everything), "within_3_percent": close}
    store(__file__, headline, {"models": rows, "all": [total]}, whole=not arguments.models)


if __name__ == "__main__":
    main()
