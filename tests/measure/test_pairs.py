"""Whole model and sum of operators: a ratio, or the reason why there is none."""

from __future__ import annotations

from typing import Any

import pytest

from op_profiler.measure.measurement import Measurement, ModelTiming


def timing(sum_us: float, *, foreign: bool = False, after_us: float = 100.0, **details: Any) -> ModelTiming:
    whole = Measurement(median_us=100.0, ci_low_us=99.0, ci_high_us=101.0, foreign_load=foreign)
    return ModelTiming(
        whole_model=whole, before_us=100.0, after_us=after_us, sum_of_operators_us=sum_us, details=details
    )


def test_a_pair_under_foreign_load_that_differs_is_no_ratio() -> None:
    found = timing(35.0, foreign=True)
    assert found.ratio is None and "under background load" in (found.not_a_pair or "")


def test_a_pair_whose_readings_are_apart_is_no_ratio() -> None:
    found = timing(80.0, after_us=75.0)
    assert found.ratio is None and "100.0, 100.0, 75.0 us" in (found.not_a_pair or "")


def test_operators_that_do_not_add_up_without_a_disturbance_are_a_result() -> None:
    found = timing(80.0, reused_operators=0)
    assert found.ratio == pytest.approx(0.8) and found.not_a_pair is None


@pytest.mark.parametrize("sum_us", [2.0, 49.0, 201.0])
def test_an_absurd_quotient_is_no_ratio_even_without_a_known_reason(sum_us: float) -> None:
    wide: dict[str, Any] = {"ratio_per_round": sum_us / 100, "ratio_per_round_ci": [0.0, 4.0]}
    narrow: dict[str, Any] = {}
    for details in (narrow, wide):
        found = timing(sum_us, reused_operators=0, **details)
        assert found.ratio is None and "for an unknown reason" in (found.not_a_pair or "")
        assert "--remeasure noisy" in (found.not_a_pair or "")


def test_a_sum_with_operators_of_another_run_that_differs_is_no_ratio() -> None:
    found = timing(2.0, reused_operators=3)
    assert found.ratio is None and "in another run: 3" in (found.not_a_pair or "")
    assert timing(103.5, reused_operators=3).ratio == pytest.approx(1.035)


def test_a_sum_that_differs_is_no_ratio_where_an_earlier_version_may_have_reused_operators() -> None:
    found = timing(2.0)
    assert found.ratio is None and "of different rounds" in (found.not_a_pair or "")
    assert timing(80.0, ratio_per_round=0.8, ratio_per_round_ci=[0.79, 0.81]).ratio == pytest.approx(0.8)


def test_what_the_intervals_allow_is_a_ratio_even_under_foreign_load() -> None:
    assert timing(103.5, foreign=True).ratio == pytest.approx(1.035)
    assert timing(110.0, foreign=True).ratio is None
    wide = timing(110.0, foreign=True, ratio_per_round_ci=[1.02, 1.18])
    assert wide.ratio == pytest.approx(1.1)


def test_a_sum_that_is_missing_is_no_disturbance() -> None:
    whole = Measurement(median_us=100.0, foreign_load=True)
    found = ModelTiming(whole_model=whole, before_us=1.0, after_us=9.0, sum_of_operators_us=None)
    assert found.ratio is None and found.not_a_pair is None


def test_two_medians_of_different_rounds_are_no_ratio() -> None:
    """A run of an earlier version: the median of the whole is of slow rounds, those of operators of both."""
    found = timing(73.4, ratio_per_round=0.9996, ratio_per_round_ci=[0.999, 1.004])
    assert found.ratio is None and "of different rounds" in (found.not_a_pair or "")


def test_the_ratio_follows_from_the_two_times() -> None:
    assert timing(93.0, ratio_per_round=0.94, ratio_per_round_ci=[0.93, 0.95]).ratio == pytest.approx(0.93)
