"""What a search is predicted to bring, from the trials that ship."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from op_profiler.dataset import read_parquet
from op_profiler.prediction.schedules.tuning_gain import TuningGain, searches
from op_profiler.shipped import shipped_trials


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    file = shipped_trials()
    assert file is not None
    return [row for row in read_parquet(file) if row["origin"] in ("trial", "tuned")]


def test_half_of_the_searches_that_are_left_out_bring_what_was_predicted_within_a_fifth(rows: Any) -> None:
    gain = TuningGain.of(rows)
    assert gain is not None and len(gain.known) > 40
    off = np.abs(gain.held_out() - 1)
    assert np.median(off) < 0.2
    nothing = np.abs(np.exp([-one.gain for one in gain.known]) - 1)
    assert np.median(off) < np.median(nothing)  # promising nothing is off by more


def test_a_known_operator_is_promised_about_what_it_got(rows: Any) -> None:
    gain = TuningGain.of(rows)
    assert gain is not None
    one = max(gain.known, key=lambda known: known.gain)
    default_us = 100.0
    peak = one.operator["flops"] / default_us / one.rate / 0.9
    tuned = gain.predict(one.operator, one.cache, default_us, peak)
    assert tuned is not None
    assert tuned.low_us <= tuned.us <= tuned.high_us <= default_us
    assert tuned.us == pytest.approx(default_us * np.exp(-one.gain), rel=0.5)


def test_nothing_is_promised_of_what_is_mostly_a_call(rows: Any) -> None:
    gain = TuningGain.of(rows)
    assert gain is not None
    tiny = {**gain.known[0].operator, "flops": 1000}
    assert gain.predict(tiny, "hot", 0.1, 100_000.0) is None


def test_too_few_searches_promise_nothing(rows: Any) -> None:
    keys = {one.operator["operator_key"] for one in searches(rows)[:4]}
    assert TuningGain.of(row for row in rows if row["operator_key"] in keys) is None
