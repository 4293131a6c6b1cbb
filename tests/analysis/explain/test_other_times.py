"""What is known of other schedules, read from the trials that ship and from a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from op_profiler.analysis.explain.other_times import Best, KnownSchedules
from op_profiler.dataset import Dataset, import_table, read_parquet
from op_profiler.prediction.schedules.tuning_gain import TuningGain
from op_profiler.shipped import shipped_trials


@pytest.mark.parametrize("place", ["shipped", "dataset"])
def test_of_all_trials_the_best_are_held(place: str, tmp_path: Path) -> None:
    file = shipped_trials()
    assert file is not None
    rows, db = read_parquet(file), None
    if place == "dataset":
        db = f"sqlite:///{tmp_path}/trials.db"
        with Dataset.open(db) as dataset:
            import_table(dataset, file, format="parquet")
    known = KnownSchedules.read(db, shipped=db is None, threads=2)
    hot = [row for row in rows if (row["threads"], row["cache"]) == (2, "hot") and row["median_us"] is not None]
    assert len(known.best) == len({row["operator_key"] for row in hot}) > 20
    for (host, operator), best in known.best.items():
        mine = [row for row in hot if (row["host_fingerprint"], row["operator_key"]) == (host, operator)]
        searched = [row for row in mine if row["origin"] != "vendor"]
        vendor = [
            (row["median_us"], row["ci_low_us"], row["ci_high_us"])
            for row in mine
            if row["origin"] == "vendor" and row["ci_high_us"] - row["ci_low_us"] <= 0.2 * row["median_us"]
        ]
        least = min(searched, key=lambda row: row["median_us"], default={"median_us": None, "template": ""})
        assert (best.searched_us, best.template) == (least["median_us"], least["template"])
        assert best.vendor == min(vendor, default=None)
    gain = TuningGain.of(row for row in rows if row["origin"] != "vendor")
    assert gain is not None and known.gain is not None
    assert sorted(one.gain for one in known.gain.known) == pytest.approx(sorted(one.gain for one in gain.known))


@pytest.mark.parametrize(
    "troubled",
    [{"foreign_load": True}, {"disturbed_by": "unsteady"}, {"ci_low_us": 379.0, "ci_high_us": 23_973.0}],
)
def test_no_time_is_compared_with_a_disturbed_one(troubled: dict[str, Any]) -> None:
    row = {"origin": "vendor", "template": "torch", "median_us": 400.0, "foreign_load": False, "disturbed_by": None}
    best = Best()
    best.note({**row, "ci_low_us": 390.0, "ci_high_us": 410.0, **troubled})
    assert best.vendor is None and best.vendor_is_disturbed
    best.note({**row, "ci_low_us": 390.0, "ci_high_us": 410.0})
    assert best.vendor == (400.0, 390.0, 410.0)


def test_nothing_is_known_where_there_is_nothing() -> None:
    known = KnownSchedules.read(None, shipped=False, threads=2)
    assert known.best == {} and known.gain is None
