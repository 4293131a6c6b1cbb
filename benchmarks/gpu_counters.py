"""What limits the operators that take most of a network's time on a GPU: memory or the SMs?

    python benchmarks/gpu_counters.py [--model resnet-50] [--db FILE]
    python benchmarks/gpu_counters.py --read FILE         (without a GPU: of a dataset from another machine)

`op-profiler collect --counters` measures the model, and NVIDIA's Nsight Compute (`ncu`) then reads the counters of
another run. This needs the driver's permission.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import sys
import tempfile
from pathlib import Path

from common import collect, store

from gpu import measured_where

_HEAVIEST = """
    SELECT model_key, o.name AS operator, occurrences AS calls, round(median_us * occurrences, 1) AS all_us,
        round(dram_percent, 1) AS dram_percent, round(sm_percent, 1) AS sm_percent,
        round(occupancy_percent, 1) AS occupancy_percent, round(tensor_cores_percent, 1) AS tensor_cores_percent
    FROM measurements JOIN models ON models.key = model_key JOIN model_operators USING (model_key, operator_key)
        JOIN operators o ON o.key = operator_key
    WHERE models.name = ? AND batch_size = 1 AND precision = 'float32' AND dram_percent IS NOT NULL
    ORDER BY median_us * occurrences DESC LIMIT 10
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet-50")
    parser.add_argument("--db", type=Path, help="dataset that is gone on from")
    parser.add_argument("--read", type=Path, metavar="FILE", help="measure nothing: the figures of this dataset")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = (arguments.read or arguments.db or Path(folder, "gpu.db")).resolve()
        if not arguments.read:
            told = ["--modelsource", "local", "--modelname", arguments.model, "--target", "cuda", "--schedules", "none"]
            code, _ = collect([*told, "--counters", "--db", f"sqlite:///{db}"], Path(folder))
            if code:
                sys.exit(f"{arguments.model} was not collected: exit code {code}")
        with contextlib.closing(sqlite3.connect(db)) as connection:
            connection.row_factory = sqlite3.Row
            rows = [dict(row) for row in connection.execute(_HEAVIEST, (arguments.model,))]
            if not rows:
                told = connection.execute("SELECT DISTINCT counters_missing FROM measurements").fetchall()
                sys.exit(f"nothing was counted: {'; '.join(str(one) for (one,) in told)}")
        keys = {row.pop("model_key") for row in rows}
        about = measured_where(db, here=not arguments.read, model_key=keys.pop())
    print(json.dumps(rows, indent=1))
    low = sum(row["dram_percent"] < 50 and row["sm_percent"] < 50 for row in rows)
    headline = (
        f"{arguments.model}: {low} of the {len(rows)} heaviest operators use neither half of the memory nor of the SMs"
    )
    print(headline)
    store(__file__, headline, {"operators": rows}, whole=arguments.model == "resnet-50", provenance=about)


if __name__ == "__main__":
    main()
