"""Runs that are killed: what was measured stays, and the next run goes on from there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .collector import killed, rows, run, stored, summary

MEASURED = "SELECT key, samples_us FROM measurements"
OF_CALLS_US = 0.05
"""What a call takes is subtracted of all samples, and differs so much, at most, from one process to the next."""


def goes_on(before: list[tuple[Any, ...]], now: list[tuple[Any, ...]]) -> bool:
    """Whether samples are the first ones of those that are there now, all of a key moved alike. Rows are of key and
    samples."""
    first, all_ = ({key: np.array(json.loads(us)) for key, us in rows} for rows in (before, now))
    moved_us = [all_[key][: len(us)] - us for key, us in first.items()]
    return all(np.ptp(one) < 0.004 and abs(one).max() < OF_CALLS_US for one in moved_us)


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Killed while it measures: the samples that were stored stay, and the next run adds to them."""
    arguments = ["--modelname", "mlp", "--threads", "1", "--summary-json", "summary.json"]
    killed(tmp_path, *arguments, endless_rounds=True, when=lambda: stored(tmp_path, f"{MEASURED} WHERE NOT complete"))
    kept = rows(tmp_path, f"{MEASURED} ORDER BY key")
    operators = rows(tmp_path, "SELECT key FROM operators")
    assert len(kept) == len(operators)

    done = run(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    after = rows(tmp_path, f"{MEASURED} ORDER BY key")
    assert [key for key, _ in after] == [key for key, _ in kept] and goes_on(kept, after)
    assert not rows(tmp_path, "SELECT key FROM measurements WHERE NOT complete")
    third = run(tmp_path, *arguments)
    assert third.returncode == 0
    assert summary(tmp_path)[0]["reused"] == len(operators)


@pytest.mark.parametrize("cache", [pytest.param("hot", marks=pytest.mark.slow), "cold"])  # the rounds are the same
def test_a_killed_run_with_hot_or_cold_caches_keeps_its_rounds(tmp_path: Path, cache: str) -> None:
    """There light operators are timed at the largest thread count only, so at the others they have fewer samples."""
    arguments = ["--modelname=mlp", "--threads=1,2", f"--cache={cache}", "--coverage=0.5"]
    whole = "SELECT settings_key, samples_us FROM model_timings"

    def uneven() -> bool:
        found = stored(tmp_path, f"{MEASURED} WHERE NOT complete")
        return len({len(json.loads(samples)) for _, samples in found}) > 1

    killed(tmp_path, *arguments, endless_rounds=True, when=uneven)
    kept = [rows(tmp_path, f"{query} WHERE NOT complete") for query in (whole, MEASURED)]
    done = run(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    after = [rows(tmp_path, f"{query} WHERE complete") for query in (whole, MEASURED)]
    assert all(before and goes_on(before, now) for before, now in zip(kept, after))
