"""How many measurements do the included datasets of GPUs contain?

python benchmarks/gpu_dataset.py
"""

from __future__ import annotations

from typing import Any

from common import ROOT, provenance, store

_CASE = ["model_name", "batch_size", "precision"]


def counts(path: Any) -> dict[str, Any]:
    """Of one file."""
    import pandas

    rows = pandas.read_parquet(path)
    default = rows[rows["origin"] == "default"]
    networks = default[default["model_source"] != "sample"]
    trials = pandas.read_parquet(path.parent / "schedule_trials.parquet")
    return {
        "dataset": path.parent.name,
        "default_rows": len(default),
        "operators": int(default["operator_key"].nunique()),
        "networks": int(networks["model_name"].nunique()),
        "cases": len(networks[_CASE].drop_duplicates()),
        "sampled_batches": int(default[default["model_source"] == "sample"]["model_name"].nunique()),
        "foreign_load": int(rows["foreign_load"].sum()),
        "trials": int((trials["origin"] == "trial").sum()),
        "failures_of_trials": int(trials["error"].notna().sum()),
        "gpus": int(rows["machine_id"].nunique()),
    }


def main() -> None:
    print(provenance())
    tables = [counts(path) for path in sorted((ROOT / "results" / "cuda").glob("*/operators.parquet"))]
    for row in tables:
        print(row)
    headline = ", ".join(
        f"{row['dataset']}: {row['default_rows']} times of {row['operators']} operators" for row in tables
    )
    store(__file__, headline, {"datasets": tables}, whole=True)


if __name__ == "__main__":
    main()
