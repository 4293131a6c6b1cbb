"""Do two collections into empty datasets agree? Operators above 50 us, at every thread count.

    python benchmarks/repeatability.py [MODEL ...]     (default: resnet-18 mobilenet squeezenet_v1.1)

Prints the share of the operators whose two medians differ by less than 3 %, and the load that was seen meanwhile.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from common import ROOT, collect, provenance

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet-18", "mobilenet", "squeezenet_v1.1"])
    print(provenance())
    everything: list[float] = []
    for model in parser.parse_args().models:
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            first, second = medians(model, Path(one)), medians(model, Path(two))
        pairs = [(first[k], second[k]) for k in first.keys() & second.keys()]
        differences = [abs(b / a - 1) for a, b in pairs if max(a, b) > _SMALLEST_US]
        everything += differences
        print(
            f"{model:20} {len(differences):4} operators above 50 us: {np.mean(np.array(differences) < _CLOSE):.0%} "
            f"within 3 %, median difference {np.median(differences):.1%}, largest {np.max(differences):.1%}",
            flush=True,
        )
    print(f"all: {np.mean(np.array(everything) < _CLOSE):.1%} of {len(everything)} within 3 %")


if __name__ == "__main__":
    main()
