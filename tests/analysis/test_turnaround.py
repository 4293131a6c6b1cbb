"""Where more stops paying: curves whose answer is known, series from measurements, and operators never swept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from op_profiler.analysis.table import FactorTable, factor_table
from op_profiler.analysis.turnaround import find_knee, turnarounds
from op_profiler.analysis.unswept import MINIMUM_OPERATORS, predict_unswept
from op_profiler.dataset.flat import COLUMNS
from op_profiler.errors import UnknownNameError, UsageError

from ..installed import needs

pytestmark = needs("pandas", "sklearn")

THREADS = np.arange(1, 65)


def amdahl(serial: float, threads: np.ndarray = THREADS) -> np.ndarray:
    return serial + (1 - serial) / threads


@pytest.mark.parametrize("serial", [0.05, 0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("threshold", [0.02, 0.05, 0.2])
def test_an_amdahl_curve_turns_where_its_formula_says(serial: float, threshold: float) -> None:
    last = serial + (1 - serial) / 64
    limit = (1 - serial) / (last / (1 - threshold) - serial)  # T(n) (1 - threshold) = T(64), solved for n
    found = find_knee(THREADS, amdahl(serial), threshold=threshold)
    assert found.value == np.ceil(limit)


def test_a_step_turns_at_its_foot_however_long_the_plateau() -> None:
    for plateau in (1, 5, 50):
        values = np.arange(1, 5 + plateau)
        assert find_knee(values, np.where(values < 4, 100.0, 40.0)).value == 4
    twice = find_knee([1, 2, 4, 8, 16], [100, 50, 50, 20, 20])
    assert twice.value == 8, "a plateau before a further fall is not the end"


def test_flat_and_rising_curves_turn_at_once_and_say_so() -> None:
    for cost in ([5.0, 5.0, 5.0], [5.0, 6.0, 9.0], [5.0, 4.9, 4.8]):
        found = find_knee([1, 2, 4], cost)
        assert found.value == 1 and "more never pays" in str(found.reason)


def test_a_curve_that_still_falls_has_no_turnaround_point() -> None:
    found = find_knee([1, 2, 4, 8], [80.0, 40.0, 20.0, 10.0])
    assert found.value is None and found.reason == "still pays at the largest value measured, 8"
    assert "single value" in str(find_knee([4], [1.0]).reason)
    with pytest.raises(ValueError, match="rise"):
        find_knee([2, 1], [1.0, 1.0])


def test_noise_inside_the_intervals_moves_nothing() -> None:
    rng = np.random.default_rng(0)
    values = np.array([1, 2, 4, 8, 16, 32])
    true = np.array([100.0, 50.0, 25.0, 25.0, 25.0, 25.0])
    with_intervals, without = [], []
    for _ in range(200):
        cost = true * (1 + 0.04 * rng.standard_normal(6))
        half = 2 * 0.04 * cost
        with_intervals.append(find_knee(values, cost, low=cost - half, high=cost + half).value)
        without.append(find_knee(values, cost).value)
    assert np.mean([v == 4 for v in with_intervals]) > 0.97
    assert np.mean([v == 4 for v in without]) < 0.75, "the threshold alone follows the noise"


def test_unknown_intervals_leave_the_threshold_to_decide() -> None:
    cost, nan = [100.0, 80.0, 79.0], float("nan")
    wide = find_knee([1, 2, 4], cost, low=[70, 70, 70], high=[110, 110, 110])
    assert wide.value == 1, "the intervals touch"
    assert find_knee([1, 2, 4], cost, low=[nan, 70, 70], high=[nan, 110, 110]).value == 2


def row(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(column.name for column in COLUMNS)
    batch, size = changes.pop("batch", 1), changes.pop("size", 8)
    values |= {"operator_key": "o", "anchor": "nn.conv2d", "op_names": ["nn.conv2d"], "schedule_key": "s"}
    values |= {"inputs": [{"shape": [batch, 3, size, size], "dtype": "float32"}], "layouts": {"data_layout": "NCHW"}}
    values |= {"outputs": [{"shape": [batch, 8, size, size], "dtype": "float32"}], "params": [], "structure": ""}
    values |= {"attrs": [{"kernel_size": [3, 3]}], "flops": 1000 * batch * size * size, "origin": "default"}
    values |= {"bytes_read": 4, "bytes_written": 4, "threads": 1, "cache": "hot", "device_key": "d", "model_key": ""}
    values |= {"rounds": 9, "std_us": 0.0, "complete": True, "foreign_load": False}
    return values | changes


def test_threads_are_swept_within_a_schedule_and_a_state_of_the_caches() -> None:
    rows = [
        row(threads=n, cache=cache, median_us=100 * float(amdahl(serial, np.array(n))))
        for cache, serial in (("hot", 0.9), ("cold", 0.01))
        for n in (1, 2, 4)
    ]
    rows.append(row(schedule_key="other", threads=8, median_us=1.0))
    cold, hot = turnarounds(factor_table(rows), "threads")
    assert (hot.context["cache"], hot.value, hot.values) == ("hot", 2, (1, 2, 4))
    assert (cold.context["cache"], cold.value) == ("cold", None) and "largest value measured, 4" in str(cold.reason)
    assert hot.members == ("o",) and hot.without_interval == 0 and not hot.per_work


def test_a_decode_is_judged_by_the_time_per_work_over_the_length_of_its_past() -> None:
    def decode(past: int, median_us: float, heads: int = 4) -> dict[str, Any]:
        read = [{"shape": shape, "dtype": "float32"} for shape in ([1, heads, 8], [1, past, 2, 2, 8])]
        attrs = [{"sequences": 1, "past": past}]
        values = {"anchor": "attention.decode", "op_names": ["attention.decode"], "inputs": read, "attrs": attrs}
        return row(**values, operator_key=f"{heads}:{past}", flops=100 * past, median_us=median_us)

    few = [decode(past, 20 + past) for past in (16, 64, 512, 2048)]
    (found,) = turnarounds(factor_table([*few, decode(32, 9.0, heads=8), row(median_us=1.0)]), "past")
    assert found.values == (16, 64, 512, 2048) and found.value == 512 and found.per_work
    assert found.members == ("4:16", "4:64", "4:512", "4:2048")


def test_the_batch_is_judged_by_the_time_per_work_within_a_family() -> None:
    """A fixed 100 us and 10 us for each of the batch: the operators differ in nothing else."""
    rows = [row(operator_key=f"b{b}", batch=b, median_us=100.0 + 10 * b) for b in (1, 8, 64, 512, 1024)]
    rows += [row(operator_key="other", batch=2, size=16, median_us=1.0)]
    (found,) = turnarounds(factor_table(rows), "batch")
    per_image = np.array([100.0 / b + 10 for b in (1, 8, 64, 512, 1024)])
    assert found.values == (1, 8, 64, 512, 1024) and found.value == 512 and found.per_work
    np.testing.assert_allclose(found.cost, per_image * 1e3 / 64000)
    assert found.members == ("b1", "b8", "b64", "b512", "b1024")
    sizes = [row(operator_key=f"s{s}", size=s, median_us=50.0 + s * s) for s in (4, 64, 128)]
    (found,) = turnarounds(factor_table(sizes), "input_size")
    assert found.values == (48, 3 * 64**2, 3 * 128**2) and found.value == 3 * 64**2


def test_a_tile_costs_what_its_best_schedule_costs() -> None:
    rows = [
        row(schedule_key=f"{x}{k}", tile={"ow": x}, median_us=best + 50 * k)
        for x, best in ((1, 100), (2, 60), (4, 40), (8, 39), (16, 70))
        for k in range(4)
    ]
    (found,) = turnarounds(factor_table(rows), "tile.ow")
    assert found.value == 4 and found.cost == (100, 60, 40, 39, 70) and found.reason is None


def test_factors_without_an_order_are_refused() -> None:
    table = factor_table([row(median_us=1.0)])
    for name in ("reorder", "flops"):
        with pytest.raises(UsageError, match=f"{name} has no turnaround point; these can have one: .*threads"):
            turnarounds(table, name)
    with pytest.raises(UnknownNameError, match="batch"):
        turnarounds(table, "batches")
    assert turnarounds(table, "threads") == []


def swept(count: int, seed: int | None = None) -> FactorTable:
    """Operators of which the large ones profit from threads; with a seed, any of them. The last five are not swept."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count + 5):
        size = 4 * (i + 1)
        large = bool(rng.integers(2)) if seed is not None else size % 8 == 0
        size = size * 16 if large and seed is None else size
        for n in (1, 2, 4) if i < count else (1,):
            cost = 100.0 / min(n, 2) if large else 100.0
            rows.append(row(operator_key=f"o{i:03}", size=size, threads=n, median_us=cost))
    return factor_table(rows)


def test_operators_that_were_never_swept_are_predicted_from_those_that_were() -> None:
    table = swept(60)
    found = predict_unswept(table, "threads", turnarounds(table, "threads"))
    assert (found.operators, found.sweeps, found.classes) == (60, 60, {"1": 30, "2": 30})
    assert found.accuracy is not None and found.accuracy > 0.9 and found.better
    assert found.baseline is not None and found.baseline < 0.6 and found.p_value is not None and found.p_value < 0.01
    assert found.predicted.keys() == {f"o{i:03}" for i in range(60, 65)} and found.refused is None


def test_a_model_that_knows_nothing_is_said_to_know_nothing() -> None:
    table = swept(60, seed=1)
    found = predict_unswept(table, "threads", turnarounds(table, "threads"))
    assert found.accuracy is not None and found.accuracy < 0.75 and not found.better


def test_too_few_operators_and_a_single_class_are_refused() -> None:
    table = swept(MINIMUM_OPERATORS - 1)
    few = predict_unswept(table, "threads", turnarounds(table, "threads"))
    assert few.predicted == {} and few.accuracy is None
    assert few.refused == f"not enough: 19 operators were swept over threads, {MINIMUM_OPERATORS} are needed"
    flat = factor_table([row(operator_key=str(i), threads=n, median_us=1.0) for i in range(30) for n in (1, 2)])
    same = predict_unswept(flat, "threads", turnarounds(flat, "threads"))
    assert same.refused == "nothing to compare: every sweep gave 1"
