"""What loops move through the caches, on nests that can be counted by hand; and the model of a kernel's time."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.loop_nest import Access, Kernel, Loop, LoopNest
from op_profiler.operators.kinds.described import described
from op_profiler.operators.kinds.elementwise import Elementwise
from op_profiler.operators.kinds.point import Point
from op_profiler.operators.kinds.products import Dense
from op_profiler.prediction.latency.features import KINDS
from op_profiler.prediction.latency.kernel_model import KernelModel
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.traffic import LEVELS, MOVED, NAMES, TERMS
from op_profiler.prediction.latency.traffic import traffic_features as features_of_kernel

_, L1, _, _, L3 = (level.size_bytes for level in LEVELS.values())


def traffic_features(nests: Sequence[LoopNest]) -> np.ndarray:
    """Of a kernel of which only the loops are known."""
    return features_of_kernel(Kernel(tuple(nests), None))


def feature(nests: list[LoopNest], name: str) -> float:
    return float(traffic_features(nests)[NAMES.index(name)])


def amount(nests: list[LoopNest], name: str) -> float:
    return float(2.0 ** feature(nests, name) - 1)


def copy(elements: int, kind: str = "serial") -> LoopNest:
    accesses = (Access(0, True, False, 4, elements, (1,)), Access(1, True, True, 4, elements, (1,)))
    return LoopNest((Loop(elements, kind),), accesses, {}, 0)


def product(rows: int, columns: int, inner: int, tile: int = 1) -> LoopNest:
    """rows x columns over inner, `tile` rows in registers, 16 columns a vector; the weights are packed."""
    loops = (
        Loop(rows // tile, "parallel"),
        Loop(columns // 16, "serial"),
        Loop(inner, "serial"),
        Loop(tile, "unrolled"),
        Loop(16, "vectorized"),
    )
    sums = Access(3, False, True, 4, tile * 16, (0, 0, 0, 16, 1))
    data = Access(0, True, False, 4, rows * inner, (tile * inner, 0, 1, inner, 0))
    weights = Access(1, True, False, 4, columns * inner, (0, 16 * inner, 16, 0, 1))
    return LoopNest(loops, (sums, data, weights, sums), {"add": 1, "mul": 1, "fma": 1}, 0)


def test_a_copy_moves_every_byte_once_through_every_level() -> None:
    elements = 4 * L3
    for name in (f"serial_{level}" for level in LEVELS):
        assert amount([copy(elements)], name) == pytest.approx(2 * 4 * elements, rel=1e-3)
    assert amount([copy(elements, "parallel")], "serial_past_32m") == 0
    assert feature([copy(64)], "main_vector") == pytest.approx(np.log2(17))


def test_weights_that_fit_no_cache_come_again_for_each_row() -> None:
    columns, inner = 1024, 1024  # 4 MiB: more than the second level, less than the third
    weights = 4 * columns * inner
    for rows, tile, times in ((8, 1, 8), (8, 8, 1), (4, 2, 2)):
        nest = product(rows, columns, inner, tile)
        assert amount([nest], "parallel_past_1m") == pytest.approx(times * weights, rel=0.05)
        assert amount([nest], "parallel_past_32m") == pytest.approx(weights, rel=0.05)
        assert amount([nest], "parallel_past_2m") == pytest.approx(times * weights, rel=0.05)
    between = product(8, 384, 1024)  # 1.5 MiB: which second-level cache a processor has decides
    assert amount([between], "parallel_past_1m") > 7 * amount([between], "parallel_past_2m")
    assert L1 > 4 * 64 * 64
    assert amount([product(8, 64, 64)], "parallel_past_48k") < 2 * (4 * 64 * 64 + 4 * 8 * 64)


def test_sums_in_registers_hide_each_other() -> None:
    chains = {tile: amount([product(8, 64, 256, tile)], "parallel_chain") for tile in (1, 4)}
    assert chains[1] == pytest.approx(4 * chains[4], rel=1e-3)
    assert feature([product(8, 64, 256, 4)], "main_accumulators") == pytest.approx(np.log2(5))


def test_a_short_sum_is_unrolled_and_vectors_are_made_of_the_loop_around_it() -> None:
    def depthwise(window: int) -> LoopNest:
        """Channels last: 64 of them, each the sum of a window."""
        loops = (Loop(100, "serial"), Loop(64, "serial"), Loop(window, "serial"))
        data = Access(0, True, False, 4, 164 * 64, (64, 1, 64))
        weights = Access(1, True, False, 4, window * 64, (0, 1, 64))
        sums = Access(2, True, True, 4, 6400, (64, 1, 0))
        return LoopNest(loops, (sums, data, weights, sums), {"add": 1, "mul": 1, "fma": 1}, 0)

    short, long = [depthwise(9)], [depthwise(64)]
    assert amount(short, "serial_arithmetic") == pytest.approx(100 * 64 * 9 / 16, rel=1e-3)
    assert amount(short, "serial_chain") == 0
    assert amount(long, "serial_arithmetic") == pytest.approx(100 * 64 * 64, rel=1e-3)
    assert amount(long, "serial_chain") == pytest.approx(4 * 100 * 64 * 64, rel=1e-3)


def test_long_vectors_are_several_sums() -> None:
    def summed(lanes: int) -> LoopNest:
        """One sum a lane, over 64 rows."""
        loops = (Loop(64, "serial"), Loop(lanes, "vectorized"))
        data = Access(0, True, False, 4, 64 * lanes, (lanes, 1))
        sums = Access(1, False, True, 4, 1, (0, 0))
        return LoopNest(loops, (sums, data, sums), {"add": 1}, 0)

    assert amount([summed(128)], "serial_chain") == pytest.approx(4 * 64)


def test_steps_of_a_page_need_an_address_each() -> None:
    def column(rows: int, step_bytes: int) -> LoopNest:
        """A column is summed up, a hundred times over."""
        loops = (Loop(100, "serial"), Loop(rows, "serial"))
        data = Access(0, True, False, 4, rows * step_bytes // 4, (0, step_bytes // 4))
        sums = Access(1, True, True, 4, 100, (1, 0))
        return LoopNest(loops, (sums, data, sums), {"add": 1}, 0)

    def addresses(nest: LoopNest, level: str) -> float:
        return amount([nest], f"serial_{level}")

    assert addresses(column(1024, 4096), "past_64_pages") == pytest.approx(100 * 1024, rel=0.02)
    assert addresses(column(32, 4096), "past_64_pages") == pytest.approx(32, abs=3)
    assert addresses(column(1024, 64), "past_64_pages") == pytest.approx(16, abs=3)
    assert addresses(column(1024, 4096), "past_2k_pages") == pytest.approx(1024, rel=0.02)
    # 128 pages between them lead to one set of sixteen.
    assert addresses(column(1024, 128 * 4096), "past_2k_pages") == pytest.approx(100 * 1024, rel=0.02)


def test_a_condition_that_no_lane_tells_apart_leaves_the_vector() -> None:
    nest = copy(64)
    rows = dataclasses.replace(nest, loops=(Loop(8, "serial"), Loop(8, "serial")), guards=1, guarded=frozenset({0}))
    accesses = tuple(dataclasses.replace(access, strides=(8, 1)) for access in nest.accesses)
    whole = dataclasses.replace(rows, accesses=accesses)
    lanes = dataclasses.replace(whole, guarded=frozenset({1}))
    assert feature([whole], "main_vector") == pytest.approx(np.log2(9)) and amount([whole], "serial_selected") == 0
    assert feature([lanes], "main_vector") == 1 and amount([lanes], "serial_selected") == pytest.approx(64)


def test_a_long_sum_is_a_chain_though_its_last_loop_is_short() -> None:
    loops = (Loop(64, "serial"), Loop(32, "serial"), Loop(32, "serial"))
    data = Access(0, True, False, 4, 64 * 32 * 32, (1024, 32, 1))
    sums = Access(1, True, True, 4, 64, (1, 0, 0))
    nest = LoopNest(loops, (sums, data, sums), {"add": 1}, 0)
    assert amount([nest], "serial_chain") == pytest.approx(4 * 64 * 1024, rel=1e-3)


def test_reads_that_are_far_from_each_other_are_scattered() -> None:
    def read(stride: int) -> LoopNest:
        accesses = (Access(0, True, False, 4, 1 << 20, (1, stride)), Access(1, True, True, 4, 1 << 14, (64, 1)))
        return LoopNest((Loop(256, "serial"), Loop(64, "serial")), accesses, {}, 0)

    assert amount([read(4096)], "serial_scattered") > 0
    assert amount([read(16)], "serial_scattered") == 0
    few = Access(0, True, False, 4, 1 << 20, (1, 4096))
    rows = LoopNest((Loop(256, "serial"), Loop(4, "serial")), (few, Access(1, True, True, 4, 1024, (4, 1))), {}, 0)
    assert amount([rows], "serial_scattered") == 0  # four streams, which a prefetcher follows


def test_strides_of_a_power_of_two_evict_what_others_keep() -> None:
    def transposed(columns: int) -> LoopNest:
        """Reads [512, columns] down its columns."""
        loops = (Loop(columns, "serial"), Loop(512, "serial"))
        read = Access(0, True, False, 4, 512 * columns, (1, columns))
        return LoopNest(loops, (read, Access(1, True, True, 4, 512 * columns, (512, 1))), {}, 0)

    assert feature([transposed(1024)], "evicted_l1") > 5
    assert feature([transposed(1040)], "evicted_l1") == pytest.approx(1.0, abs=0.2)
    assert feature([transposed(1024)], "main_aliasing") == pytest.approx(np.log2(4097))


def test_the_model_of_kernels_learns_costs_that_made_the_times() -> None:
    rng = np.random.default_rng(0)
    shapes = rng.choice([16, 32, 64, 128, 256, 512], size=(300, 3))
    rows = [traffic_features([product(int(m), int(n), int(k)), copy(int(m * n))]) for m, n, k in shapes]
    query = query_of(np.repeat(rows, 2, axis=0), np.tile([1, 2], len(rows)))
    start = KernelModel.fit(query.without_loops(), np.ones(len(query)), np.ones(len(query)))
    truth = model_of(start.threads, start.log_costs + rng.normal(0, 0.7, start.log_costs.shape))
    latency = truth.times_us(query)[:, 0]
    learned = KernelModel.fit(query.take(np.arange(400)), latency[:400], np.ones(400))
    off = learned.times_us(query)[400:, 0] / latency[400:] - 1
    assert np.abs(off).mean() < 0.1
    assert np.isnan(learned.times_us(query.without_loops())).all()


def test_few_kernels_tell_how_a_device_differs_from_others() -> None:
    """It is three times as slow at instructions, and in other ways like the others; a dozen products show no more."""
    products = [
        traffic_features([product(16, int(n), int(k))]) for n, k in itertools.product((64, 256), range(32, 200, 32))
    ]
    copies = [traffic_features([copy(int(size))]) for size in (1 << 12, 1 << 16, 1 << 20, 1 << 24)]
    learned, asked = query_of(products, [1] * len(products)), query_of(copies, [1] * len(copies))
    other = KernelModel.fit(learned.without_loops(), np.ones(len(learned)), np.ones(len(learned)))
    other = model_of(other.threads, other.log_costs + np.random.default_rng(0).normal(0, 0.7, other.log_costs.shape))
    slower = other.log_costs + np.log(3.0) * (np.arange(other.log_costs.shape[1]) < len(TERMS))
    truth = model_of(other.threads, slower)
    times, weight = truth.times_us(learned)[:, 0], np.ones(len(learned))
    off = [
        np.abs(np.log(found.times_us(asked)[:, 0] / truth.times_us(asked)[:, 0])).max()
        for found in (KernelModel.fit(learned, times, weight, like) for like in ((), ((other, 0.1),)))
    ]
    assert off[1] < 0.1 and off[1] < off[0] / 2


def test_the_model_of_kernels_learns_costs_of_a_kind_from_those_of_all() -> None:
    sizes = [int(size) for size in np.random.default_rng(0).choice([64, 256, 1024, 4096], 300)]
    dense = query_of([traffic_features([product(16, 64, size), copy(size)]) for size in sizes], [1] * len(sizes))
    copies = [traffic_features([copy(16 * size)]) for size in sizes]
    elementwise = query_of(copies, [1] * len(sizes), layer=Elementwise("add", (1, 64)))
    query = Query.joined([dense, elementwise])
    assert len(set(query.kinds)) == 2
    plain = KernelModel.fit(query.without_loops(), np.ones(600), np.ones(600)).times_us(query)[:, 0]
    latency = plain * np.where(query.kinds == query.kinds[0], 1.0, 1.6)
    learned = KernelModel.fit(query, latency, np.ones(600)).times_us(query) / latency[:, None] - 1
    of_all, of_kinds = np.abs(learned).mean(axis=0)
    assert of_kinds < 0.05 and of_kinds < of_all


def test_a_thread_count_that_was_not_fitted_has_the_costs_of_the_nearest() -> None:
    loops = [traffic_features([product(64, 64, 64)])] * 3
    start = KernelModel.fit(query_of(loops, [1, 2, 2]).without_loops(), np.ones(3), np.ones(3))
    costs = start.log_costs + np.array([[0.0], [0.7]])
    both, second = model_of(start.threads, costs), model_of(start.threads[1:], costs[1:])
    asked = query_of(loops, [4, 2, 1])
    found = both.times_us(asked)[:, 0]
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[:2], second.times_us(asked)[:2, 0])
    assert found[2] == pytest.approx(second.times_us(asked)[2, 0] / np.exp(0.7), rel=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_weights_that_the_call_before_left_in_a_cache_are_not_fetched_again(threads: int) -> None:
    loops = [traffic_features([product(16, 512, 128)])] * 2  # 256 KiB of weights
    query = query_of(loops, [threads] * 2, calls=[1000, 1])
    model = KernelModel.fit(query.without_loops(), np.ones(2), np.ones(2))
    only = np.full_like(model.log_costs, -50.0)
    only[:, len(TERMS) + MOVED.index("past_1m")] = 0.0  # the time is what comes from behind the second cache
    often, once = model_of(model.threads, only).times_us(query)[:, 0]
    assert often < 0.15 * once


def test_a_call_costs_more_where_much_is_moved_until_the_next() -> None:
    query = query_of([traffic_features([copy(16)])] * 3, [1] * 3, calls=[1, 1, 1000])
    moved, apart = np.array([1e4, 1e9, 1e9]), np.array([1e4, 1e9, 1e9])
    query = dataclasses.replace(query, traffic_bytes=moved, working_set_bytes=apart)
    few_layers = dataclasses.replace(query, working_set_bytes=np.full(3, 1e4))  # called often, all of them are kept
    model = KernelModel.fit(query.without_loops(), np.ones(3), np.ones(3))
    only = np.full_like(model.log_costs, -50.0)
    only[:, -3:-1] = np.log([[0.1, 2.0]])
    little, much, often = model_of(model.threads, only).times_us(query)[:, 0]
    assert little == pytest.approx(0.1, abs=0.01)
    assert much == pytest.approx(2.1, abs=0.1)
    assert often == pytest.approx(0.1, abs=0.1)
    np.testing.assert_allclose(model_of(model.threads, only).times_us(few_layers)[:, 0], little, rtol=1e-3)


def model_of(threads: np.ndarray, log_costs: np.ndarray) -> KernelModel:
    """Every kind has the costs of all."""
    return KernelModel(threads, log_costs, np.repeat(log_costs[:, None], len(KINDS), axis=1))


def query_of(
    loops: Sequence[np.ndarray] | np.ndarray,
    threads: Sequence[int] | np.ndarray,
    calls: Any = 1,
    layer: Point = Dense(2, 32, 48, "bias"),  # noqa: B008 - points do not change
) -> Query:
    """Kernels that do what `loops` says, in a network that moves 100 MB."""
    operators = [described(layer)] * len(loops)
    table = np.array(loops, dtype=np.float32)
    return Query.of(operators, threads=np.array(threads), traffic_bytes=1e8, calls=np.array(calls), loops=table)


def test_what_a_model_moves_is_told_in_powers_of_two() -> None:
    """Exact bytes would name the model, and what it was off by would be learned by heart."""
    operator = [described(Dense(2, 32, 48, "bias"))]
    near, alike, far = (Query.of(operator, traffic_bytes=moved).columns for moved in (100e6, 104e6, 250e6))
    np.testing.assert_array_equal(near, alike)
    assert (near != far).sum() == 3
