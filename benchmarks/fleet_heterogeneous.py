"""Is every row of different machines behind one scheduler attributed to its device?

    python benchmarks/fleet_heterogeneous.py [NAME ...] [--keep FILE]     (3 minutes; --keep goes on)

Two workers that claim to be other machines, and an emulated board behind a tracker. Models are collected on every
distinct device of this processor's kind, and on the board.

Goal: every row names its device.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from common import ROOT, run_of, store
from fleet_common import cluster_of, on_board, postgresql_server, small_requests

_MODELS = 3


def measure(name: str) -> dict[str, Any]:
    """Rows by device, beside what was asked for."""
    sys.path.insert(0, str(ROOT / "tests" / "boards"))
    from lab import Lab, build_board

    from op_profiler.dataset import Dataset

    with tempfile.TemporaryDirectory() as text, postgresql_server() as server:
        folder = Path(text)
        (folder / "build").mkdir()
        build_board(folder / "build")
        lab = Lab(folder / "build", folder)
        try:
            lab.board()
            with cluster_of(folder, 2, other_machines=True) as cluster:
                requests = small_requests(server.url, _MODELS)
                there = [on_board(request, lab.port) for request in requests]
                reports = [*cluster.run(requests, each=True), *cluster.run(there)]
        finally:
            lab.stop()
        with Dataset.open(server.url, read_only=True) as dataset:
            models = dataset.models()
            of = Counter(str(model.device_key) for model in models)
            wrong = sum(
                row.device_key != model.device_key
                for model in models
                for row in dataset.measurements_of(model.key, threads=1, cache="model").values()
            )
            kinds = sorted(device["kind"] for device in contents_of(dataset))
        return {
            "machines": len(of),
            "kinds": ", ".join(kinds),
            "requests": len(reports),
            "failed": sum(report.error is not None for report in reports),
            "models_on_each": ", ".join(map(str, sorted(of.values()))),
            "rows_of_another_device": wrong,
        }


def contents_of(dataset: Any) -> tuple[dict[str, Any], ...]:
    """The devices of a dataset."""
    from op_profiler.dataset.maintain import contents

    return contents(dataset).devices


def main() -> None:
    run = run_of(__file__, __doc__, measure, ["all"])
    (row,) = [found.result for found in run.found]
    print(row, flush=True)
    headline = f"{row['machines']} machines, {row['rows_of_another_device']} rows of another device than its model's"
    store(__file__, headline, {"machines": [row]}, whole=run.whole)


if __name__ == "__main__":
    main()
