"""Ways to run models, timed in turn, and what is said of their times."""

from __future__ import annotations

import time

import numpy as np
import pytest

from op_profiler.measure.limits import Limits
from op_profiler.measure.load import ForeignLoad
from op_profiler.parallel.corun.timing import (
    Load,
    TimedWays,
    Way,
    compare_outputs,
    in_quiet_rounds,
    surely_fastest,
    time_in_turn,
)


def test_outputs_are_compared_bit_for_bit() -> None:
    ones = np.ones(4, np.float32)
    assert compare_outputs([ones, ones], [ones, ones.copy()]) == (True, 0.0)
    equal, largest = compare_outputs([ones], [ones + np.float32(1e-3)])
    assert not equal and largest == pytest.approx(1e-3, rel=1e-3)
    assert compare_outputs([np.zeros(1)], [-np.zeros(1)]) == (False, 0.0)
    nan = np.array([np.nan, 2.0])
    assert compare_outputs([nan], [nan.copy()]) == (True, 0.0)
    assert compare_outputs([nan], [np.array([1.0, 2.0])]) == (False, np.inf)
    assert compare_outputs([], []) == (True, 0.0)


def test_ways_are_timed_in_turn() -> None:
    order: list[int] = []
    ways = [Way(lambda i=i: order.append(i), lambda: None) for i in range(3)]  # type: ignore[misc]
    timed = time_in_turn(ways, rounds=3, meter=None, limits=Limits())
    assert order == [0, 1, 2, 1, 2, 0, 2, 0, 1]
    assert timed.samples_us.shape == (3, 3)


def test_a_way_is_timed_when_what_ran_before_is_asleep() -> None:
    """One long run is enough; many short ones are as long as other threads look for work."""
    started: list[float] = []

    def run(seconds: float) -> None:
        started.append(time.perf_counter())
        time.sleep(seconds)

    began = time.perf_counter()
    time_in_turn([Way(lambda: None, lambda: run(1e-5))], rounds=1, meter=None, limits=Limits())
    assert started[-1] - began >= 0.002
    started.clear()
    time_in_turn([Way(lambda: None, lambda: run(0.003))], rounds=1, meter=None, limits=Limits())
    assert len(started) == 2


class _Others:
    """Stands in for a machine that others use: the share that they use, reading after reading."""

    def __init__(self, *shares: float) -> None:
        self._shares = iter(shares)

    def read(self) -> ForeignLoad:
        share = next(self._shares)
        return ForeignLoad(share, share > 0.5)


@pytest.mark.parametrize(("patience_seconds", "taken", "foreign"), [(60.0, 4, False), (0.0, 2, True)])
def test_rounds_under_the_load_of_others_are_taken_again_or_marked(
    patience_seconds: float, taken: int, foreign: bool
) -> None:
    calls: list[int] = []
    limits = Limits(window_seconds=0.0001, repeat_seconds=patience_seconds)
    meter = _Others(0.0, 1.0, 1.0, 0.0, 0.0)

    def one_round(turn: int) -> int:
        calls.append(turn)
        time.sleep(0.001)
        return turn

    kept, load = in_quiet_rounds(one_round, rounds=2, meter=meter, limits=limits)
    assert kept == [0, 1]
    assert (load.repeated_seconds > 0) == (patience_seconds > 0)
    assert (len(calls), load.foreign, load.before) == (taken, foreign, 0.0)


def test_when_the_time_is_up_the_fewest_rounds_are_taken() -> None:
    kept, load = in_quiet_rounds(lambda turn: turn, rounds=9, meter=None, limits=Limits(), fewest=3, until=0.0)
    assert kept == [0, 1, 2]
    assert load.before is None


def test_a_way_gives_place_only_to_one_that_is_surely_faster() -> None:
    noise = np.random.default_rng(0).normal(0, 1, (15, 3))
    assert surely_fastest(np.array([10.0, 10.0, 9.9]) + noise, 0) == 0
    assert surely_fastest(np.array([10.0, 10.0, 9.9]) + noise, 1) == 1
    assert surely_fastest(np.array([10.0, 12.0, 6.0]) + noise, 0) == 2


def test_the_speedup_is_that_of_rounds_and_not_of_medians() -> None:
    timed = TimedWays(np.array([[10.0, 5.0], [40.0, 20.0], [20.0, 20.0]]), Load(False, None, None))
    assert timed.speedup(1) == 2.0
    assert timed.median_us.tolist() == [20.0, 20.0]


@pytest.mark.parametrize(
    ("ratios", "foreign", "compared"),
    [
        ([2.0, 1277.0, 900.0, 1.0, 1300.0], True, False),
        ([2.0, 1277.0, 900.0, 1.0, 1300.0], False, True),
        ([2.0] * 5, True, False),  # too few to tell how far the rounds agree
        ([1.0, 40.0] * 20, True, False),
        ([1.9, 2.0, 2.1] * 7, True, True),
    ],
)
def test_under_foreign_load_a_speedup_is_one_only_where_the_rounds_agree(
    ratios: list[float], foreign: bool, compared: bool
) -> None:
    timed = TimedWays(np.array([[10.0 * ratio, 10.0] for ratio in ratios]), Load(foreign, None, None))
    found = timed.to_json()
    assert found["foreign_load"] == foreign and found["rounds"] == len(ratios) and found["plan_us"] == 10.0
    if compared:
        assert found["speedup"] == pytest.approx(np.median(ratios)) and found["not_compared"] is None
    else:
        assert found["speedup"] is found["speedup_interval"] is None
        assert "was not obtained" in found["not_compared"] and "repeat it" in found["not_compared"]
