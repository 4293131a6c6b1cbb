"""What is called a real change: noise with a known answer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from op_profiler.comparison.changes import FALSE_SHARE, Change, Estimate, half_width, judge, of_pairs

_PAIRS, _OPERATORS, _COMPARISONS = 24, 30, 200


def in_turns(rng: np.random.Generator, changes: np.ndarray, spread: float = 0.03) -> list[Estimate]:
    """Operators that change by so much, measured in turns in pairs of places.

    Each pair has noise with heavy tails, part of which all operators of the pair share, and one pair in twenty is
    disturbed by a neighbour.
    """
    shared = 0.3 * spread * rng.standard_normal((_PAIRS, 1))
    own = spread * rng.standard_t(4, (_PAIRS, len(changes)))
    hit = np.where(rng.random((_PAIRS, 1)) < 0.05, rng.choice([-0.5, 0.5], (_PAIRS, 1)), 0.0)
    logs = np.log1p(changes) + shared + own + hit
    before_us = 100.0 * np.exp(rng.normal(0.0, spread, logs.shape))
    found = [of_pairs(b, b * np.exp(d)) for b, d in zip(before_us.T, logs.T)]
    return [one for one in found if one is not None]


def of(found: list[Change | None]) -> list[Change]:
    return [one for one in found if one is not None]


def test_where_nothing_changed_hardly_anything_is_called_real() -> None:
    """The promise is one comparison of fifty with any false alarm among its operators."""
    rng = np.random.default_rng(0)
    alarms = [any(one.real for one in of(judge(in_turns(rng, np.zeros(_OPERATORS)))[0])) for _ in range(_COMPARISONS)]
    assert 0 < sum(alarms) <= FALSE_SHARE * _COMPARISONS


def test_without_the_adjustment_every_third_comparison_would_raise_an_alarm() -> None:
    rng = np.random.default_rng(1)
    alone = [judge([one])[0][0] for one in in_turns(rng, np.zeros(_OPERATORS * 20))]
    share = float(np.mean([one is not None and one.real is True for one in alone]))
    assert 0.01 < share < 0.03, "each alone is wrong in one case of fifty"
    assert 1 - (1 - share) ** _OPERATORS > 0.3


def test_a_slow_down_of_5_percent_in_one_operator_is_found_and_others_are_not() -> None:
    rng = np.random.default_rng(2)
    changes = np.zeros(_OPERATORS)
    changes[7] = 0.05
    found = [of(judge(in_turns(rng, changes, 0.015))[0]) for _ in range(100)]
    assert sum(one[7].slower for one in found) >= 95
    assert sum(one[0].real is True for one in found) <= 5
    assert np.median([one[7].change for one in found]) == pytest.approx(0.05, abs=0.005)


def test_of_the_changes_that_are_called_real_one_in_fifty_is_none_at_most() -> None:
    rng = np.random.default_rng(3)
    changes = np.where(np.arange(_OPERATORS) < 10, 0.06, 0.0)
    shares = []
    for _ in range(200):
        real = np.array([one.real for one in of(judge(in_turns(rng, changes, 0.02))[0])])
        shares.append(real[10:].sum() / max(real.sum(), 1))
    assert np.mean(shares) <= FALSE_SHARE


def test_intervals_hold_what_was_planted() -> None:
    rng = np.random.default_rng(4)
    missed = []
    for _ in range(100):
        changes = rng.choice([0.0, -0.1, 0.1], _OPERATORS)
        found, level = judge(in_turns(rng, changes))
        real = [one for one in of(found) if one.real]
        assert 1 - FALSE_SHARE <= level < 1
        low_high = [(one.low, one.high, c) for one, c in zip(of(found), changes) if one.real]
        missed.append(sum(not (low or 0) <= c <= (high or 0) for low, high, c in low_high) / max(len(real), 1))
    assert np.mean(missed) <= FALSE_SHARE


def test_a_change_is_real_exactly_where_its_interval_leaves_out_zero() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        found, _ = judge(in_turns(rng, rng.choice([0.0, 0.03], _OPERATORS)))
        for one in of(found):
            assert one.low is not None and one.high is not None and one.low <= one.change <= one.high
            assert one.real == (one.low > 0 or one.high < 0)


def test_one_change_alone_is_students_t() -> None:
    from scipy import stats

    rng = np.random.default_rng(6)
    logs = rng.normal(0.02, 0.01, 4)  # of four values no end is cut off
    before_us = np.full(4, 1e4)
    estimate = of_pairs(before_us, before_us * np.exp(logs))
    assert estimate is not None and estimate.degrees == 3
    expected = stats.ttest_1samp(logs, 0)
    (change,), level = judge([estimate])
    assert change is not None and level == 1 - FALSE_SHARE
    assert change.p_value == pytest.approx(expected.pvalue, rel=1e-3)
    low, high = expected.confidence_interval(1 - FALSE_SHARE)
    assert (change.low, change.high) == pytest.approx((math.expm1(low), math.expm1(high)), rel=1e-3)
    assert half_width(estimate, 1) == pytest.approx((high - low) / 2, rel=1e-3)


def test_what_cannot_be_told_is_not_told() -> None:
    few = of_pairs(np.array([1.0, 1.0, 1.0, 0.0]), np.array([1.0, 1.0, 1.0, 1.0]))
    unknown = Estimate(100.0, 150.0, math.log(1.5), None)
    found, level = judge([few, unknown])
    assert found[0] is None and level == 1 - FALSE_SHARE
    assert found[1] is not None and found[1].real is None and found[1].low is None
    assert found[1].change == pytest.approx(0.5) and half_width(unknown, 3) == math.inf


def test_a_tick_of_the_clock_is_no_change() -> None:
    ticks = of_pairs(np.full(20, 0.130), np.full(20, 0.131))
    (change,), _ = judge([ticks])
    assert change is not None and not change.real
    (nothing,), _ = judge([Estimate(1.0, 1.0, 0.0, 0.0, 5.0)])
    assert nothing is not None and nothing.real is False
