"""The interval of the median, checked against what it claims."""

from __future__ import annotations

import math

import numpy as np
import pytest

from op_profiler.measure.statistics import median_interval, relative_half_width, summarize


@pytest.mark.parametrize("count", [6, 11, 30, 101])
def test_interval_covers_the_true_median_as_often_as_it_says(count: int) -> None:
    rng = np.random.default_rng(count)
    true_median = math.exp(0.0)
    trials = [median_interval(rng.lognormal(0.0, 0.5, count)) for _ in range(2000)]
    covered = np.mean([low <= true_median <= high for low, high in trials])
    assert covered >= 0.94


def test_interval_is_not_wider_than_needed() -> None:
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(2000):
        low, high = median_interval(rng.standard_normal(101))
        covered.append(low <= 0 <= high)
    assert np.mean(covered) <= 0.975


def test_too_few_samples_have_no_interval() -> None:
    assert median_interval(np.ones(5)) == (-math.inf, math.inf)
    assert relative_half_width(np.ones(5)) == math.inf
    assert relative_half_width(np.ones(6)) == 0.0


def test_summary_takes_each_round_as_the_mean_of_its_occurrences() -> None:
    measurement = summarize(np.array([[1.0, 3.0], [2.0, 4.0], [5.0, 7.0]]))
    assert measurement.median_us == 3.0
    assert measurement.min_us == 2.0
    assert measurement.samples_us == ((1.0, 3.0), (2.0, 4.0), (5.0, 7.0))
    assert measurement.ci_low_us is None and measurement.error is None


def test_one_round_has_no_standard_deviation() -> None:
    assert summarize(np.array([[2.0, 4.0]])).std_us is None
