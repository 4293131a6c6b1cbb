"""Kernels in place: they compute what the model computes, and their times are the model's."""

from __future__ import annotations

import itertools
import time
from typing import Any, cast

import numpy as np
import pytest

from op_profiler.compilers.calls import call_overhead_us
from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.executor_graph import kernel_calls, outputs, planned_tensors
from op_profiler.compilers.relay.graph_executor import load_graph
from op_profiler.cores import available_cores
from op_profiler.measure.in_place import timed_us
from op_profiler.measure.limits import Limits
from op_profiler.measure.load import MINIMUM_SECONDS, CoreMeter, ForeignLoad
from op_profiler.measure.rounds import Rounds
from op_profiler.measure.samples import Samples, heavy_operators, per_operator
from op_profiler.measure.threads import ThreadPool, default_thread_counts


@pytest.fixture(scope="module")
def graph(tvm: Any, compiled_small: Any) -> Any:
    value = np.random.default_rng(1).standard_normal((1, 16, 32, 32)).astype("float32")
    return load_graph(compiled_small, tvm.cpu(), {"data": value})


def _output(graph: Any) -> np.ndarray:
    return graph.kernels[-1].arrays[-1].numpy().copy()


def test_walking_the_kernels_gives_the_output_of_the_model_bit_for_bit(graph: Any, tvm: Any) -> None:
    graph.run_model()
    expected = _output(graph)
    output = graph.kernels[-1].arrays[-1]
    output.copyfrom(np.full(expected.shape, 7, dtype=expected.dtype))
    for cache in ("model", "hot", "cold"):
        times = graph.walk(cache, [True] * len(graph.kernels))
        assert np.array_equal(_output(graph), expected)
        assert all(t > 0 for t in times)
        output.copyfrom(np.zeros_like(expected))


def test_kernels_share_the_memory_that_the_executor_planned(graph: Any) -> None:
    written = {kernel.arrays[-1].handle.contents.data for kernel in graph.kernels}
    assert len(written) < len(graph.kernels)


def test_kernels_that_are_not_timed_run_all_the_same(graph: Any) -> None:
    graph.run_model()
    expected = _output(graph)
    times = graph.walk("hot", [False] * len(graph.kernels))
    assert np.isnan(times).all()
    assert np.array_equal(_output(graph), expected)


def test_a_kernel_that_fails_says_so_and_has_no_time(graph: Any, tvm: Any) -> None:
    from op_profiler.compilers.relay.calls import PackedCall

    kernel = graph.kernels[0]
    wrong = PackedCall(kernel.name, kernel.label, kernel.function, kernel.arrays[:-1])
    assert np.isnan(timed_us(wrong))
    assert not wrong.run()
    assert "num_args" in (wrong.error() or "")
    assert kernel.error() is None


def test_the_cost_of_a_call_is_small_against_a_kernel(graph: Any) -> None:
    heaviest_us = np.median([graph.walk("model", [True] * len(graph.kernels)) for _ in range(15)], axis=0).max()
    assert np.median([call_overhead_us() for _ in range(15)]) < heaviest_us


def test_thread_pool_is_read_back(graph: Any) -> None:
    pool = ThreadPool()
    for count in default_thread_counts():
        pool.use(count)
        graph.run_model()
        assert pool.effective_threads() == count
        assert pool.effective_core_set() == pool.core_set(count) == available_cores()[:count]


@pytest.mark.skipif(len(available_cores()) < 2, reason="needs two cores")
def test_threads_stay_on_the_cores_that_the_pool_was_given(graph: Any) -> None:
    last, first = available_cores()[-1], available_cores()[0]
    pool = ThreadPool((last, first))
    for count, cores in ((2, (first, last)), (1, (last,)), (2, (first, last))):
        pool.use(count)
        graph.run_model()
        assert pool.effective_core_set() == cores
    ThreadPool().use(1)


def test_rounds_stop_and_keep_every_sample(graph: Any) -> None:
    threads = default_thread_counts()
    samples = {n: Samples() for n in threads}
    seen: list[float] = []
    rounds = Rounds(
        graph,
        ThreadPool(),
        threads=threads,
        cache="model",
        groups=list(range(len(graph.kernels))),
        skipped=[False] * len(graph.kernels),
        coverage=0.95,
        limits=Limits(usual_rounds=20, usual_seconds=0.3, maximum_seconds=2.0, repeat_seconds=0.5),
        meter=CoreMeter(available_cores()),
    )
    outcome = rounds.run(samples, seen.append)
    for one in samples.values():
        assert one.rounds == outcome.rounds >= 11
        assert one.matrix().shape == (one.rounds, len(graph.kernels))
        assert len(one.foreign) == one.rounds
    assert seen == sorted(seen)


def test_rounds_go_on_from_earlier_samples(graph: Any) -> None:
    kernels = len(graph.kernels)
    limits = Limits(target=1e9, minimum_rounds=11)
    old = Samples([5.0] * 12, [[1.0] * kernels] * 12, [False] * 12)
    rounds = Rounds(
        graph,
        ThreadPool(),
        threads=(1,),
        cache="model",
        groups=list(range(kernels)),
        skipped=[False] * kernels,
        coverage=1.0,
        limits=limits,
        meter=None,
    )
    assert rounds.run({1: old}, lambda _: None).rounds == 12


def test_heavy_operators_are_the_largest_that_reach_the_coverage() -> None:
    matrix = np.array([[10.0, 50.0, 10.0, 30.0]] * 3)
    groups = np.array([0, 1, 0, 2])
    assert per_operator(matrix, groups).tolist() == [[10.0, 50.0, 30.0]] * 3
    assert heavy_operators(matrix, groups, 0.5).tolist() == [False, True, False]
    assert heavy_operators(matrix, groups, 0.51).tolist() == [False, True, True]
    assert heavy_operators(matrix, groups, 1.0).tolist() == [True, True, True]


def test_weights_that_are_reshaped_or_answered_stay_in_the_memory_of_the_executor() -> None:
    def given(name: str) -> dict[str, Any]:
        return {"op": "null", "name": name, "inputs": []}

    def call(function: str, *inputs: int) -> dict[str, Any]:
        sources = [[index, 0, 0] for index in inputs]
        return {"op": "tvm_op", "name": function, "attrs": {"func_name": function}, "inputs": sources}

    weights = [given("read"), given("reshaped"), given("answered")]
    nodes = [given("data"), *weights, call("__nop", 2), call("kernel", 0, 1, 3, 4)]
    attrs = {"shape": [0, [[1]] * len(nodes)], "dltype": [0, ["float32"] * len(nodes)]}
    graph = {"nodes": nodes, "heads": [[5, 0, 0], [3, 0, 0]], "attrs": attrs}
    (kernel,) = kernel_calls(graph)
    assert (kernel.inputs, kernel.reads, kernel.writes) == ((), (0, 1, 3, 4), (5,))
    tensors = planned_tensors(graph)
    assert [tensor.view_of for tensor in tensors] == [None, None, None, None, 2, None]
    compiled = CompiledModel(None, (), {}, 0.0, "graph", (kernel,), tensors, outputs(graph))
    assert compiled.only_read(["read", "reshaped", "answered"]) == {"read": 1}


class OfLength:
    """A model of one kernel, and the probe beside it; all that it is asked for is counted."""

    def __init__(self, us: float) -> None:
        self.us = us
        self.runs = self.readings = 0

    def run_model(self) -> None:
        self.runs += 1

    def move_stack(self) -> None:
        """It is called from anywhere."""

    def time_model(self) -> float:
        self.readings += 1
        return self.us

    def walk(self, cache: str, timed: list[bool]) -> list[float]:
        return [self.us]

    def moved(self) -> OfLength:
        return self

    def call_overhead_us(self) -> None:
        """Nothing is called."""

    def launch_gap_us(self) -> None:
        """Nothing is launched."""

    def timed(self) -> tuple[float, float]:
        return 1.0, 1.0


def rounds_of(model: OfLength, limits: Limits, meter: Any = None) -> Rounds:
    return Rounds(
        cast("Any", model),
        ThreadPool(),
        threads=(1,),
        cache="model",
        groups=[0],
        skipped=[False],
        coverage=1.0,
        limits=limits,
        meter=meter,
        probe=cast("Any", model) if meter is None else None,
    )


@pytest.mark.parametrize(
    ("us", "readings", "runs"), [(5e3, 5, 3), (5e4, 5, 3), (1e5, 3, 1), (1e6, 1, 1), (float("nan"), 1, 3)]
)
def test_long_models_are_read_and_run_less_often_around_the_rounds(us: float, readings: int, runs: int) -> None:
    model = OfLength(us)
    rounds = rounds_of(model, Limits(minimum_rounds=1, maximum_rounds=1))
    assert rounds.whole_model_us(1) == pytest.approx(us, nan_ok=True) and model.readings == readings
    model.runs = 0
    rounds.run({1: Samples()}, lambda _: None)
    assert model.runs == runs  # behind the probe; what is timed follows


def test_a_short_model_is_read_for_a_while_in_blocks_of_many_runs() -> None:
    """A block has one run in three that is slow; a single one would be another time each time."""
    model = OfLength(5.0)
    slow = itertools.cycle([9.0, 5.0, 5.0])
    model.time_model = lambda: next(slow)  # type: ignore[method-assign]
    rounds = rounds_of(model, Limits())
    started = time.monotonic()
    assert rounds.whole_model_us(1) == 5.0
    assert time.monotonic() - started > 0.05


class Loud:
    """A meter that always finds a burner, and like the others tells nothing of shorter times than it can."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def read(self) -> ForeignLoad | None:
        now = time.monotonic()
        if now - self._last < MINIMUM_SECONDS:
            return None
        self._last = now
        return ForeignLoad(1.0, True)


def test_foreign_load_is_seen_in_rounds_that_are_over_before_the_meter_can_tell() -> None:
    samples = Samples()
    rounds = rounds_of(OfLength(100.0), Limits(repeat_seconds=0.0).of_rounds(21), Loud())
    outcome = rounds.run({1: samples}, lambda _: None)
    assert outcome.load_after == 1.0 and samples.foreign == [True] * samples.rounds
