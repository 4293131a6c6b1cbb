"""Times of calls: what the call takes is told from what the kernel takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.relay.graph_executor import load_graph
from op_profiler.compilers.relay.lower import compile_model
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.calls import Call, Kernel, TimedCalls, call_overhead_us
from op_profiler.measure.in_place import timed_us
from op_profiler.measure.threads import ThreadPool

_ROUNDS = 500


def test_calls_are_made_in_order_and_each_is_timed(tvm: Any) -> None:
    made: list[int] = []
    functions = [tvm.runtime.convert(lambda index=index: made.append(index)) for index in range(3)]
    calls = TimedCalls([Call(str(index), function, [], []) for index, function in enumerate(functions)])
    times = calls.run()
    assert made == [0, 1, 2]
    assert times.shape == (3,) and (times > 0).all()


def test_a_call_that_fails_has_no_time_and_the_others_have_theirs(tvm: Any, compiled_small: Any) -> None:
    graph = load_graph(compiled_small, tvm.cpu(), {"data": np.zeros((1, 16, 32, 32), "float32")})
    right = graph.kernels[0]
    wrong = Kernel(right.name, right.label, right.function, right.arrays[:-1])
    assert np.isnan(TimedCalls([right, wrong, right]).run()).tolist() == [False, True, False]


def test_a_call_costs_less_than_python_takes_for_it(tvm: Any) -> None:
    """Reading the clock, which some machines take 0.2 us for, is in both; the rest is what the native walk saves."""
    nothing = Call("nothing", tvm.get_global_func("testing.nop"), [], [])
    overheads_us, python_us = [], []
    for _ in range(15):
        overheads_us.append(call_overhead_us())
        python_us.append(min(timed_us(nothing) for _ in range(50)))
    assert np.median(overheads_us) < np.median(python_us)


def test_kernels_of_half_a_microsecond_add_up(tvm: Any, target: Any) -> None:
    """Of a model whose 32 kernels take 0.1 to 2 us each; with Python around each call they took half as much again.

    As in `Rounds` what a call costs is read apart from the rounds, since that pushes 33 us of work out of the nearest
    caches, and the whole model and its kernels take turns in coming first. Least times over many rounds, since a
    machine that runs tests is never quiet; and the nearest of three times, since some never are for so long.
    """
    model = FRONTENDS.get("local").load(ModelRequest(source="local", name="rnn"))
    rng = np.random.default_rng(0)
    graph = load_graph(compile_model(model, target), tvm.cpu(), {i.name: i.random(rng) for i in model.inputs})
    ThreadPool().use(1)
    everything = [True] * len(graph.kernels)
    ratios = []
    for _ in range(3):
        overhead_us = np.median([graph.call_overhead_us() for _ in range(30)])
        whole, kernels = [], []
        for turn in range(_ROUNDS):
            graph.run_model()
            if turn % 2:
                whole.append(graph.time_model())
            kernels.append(graph.walk("model", everything))
            if not turn % 2:
                whole.append(graph.time_model())
        ratios.append(float(np.sum(np.min(kernels, axis=0) - overhead_us) / np.min(whole)))
    assert min(ratios, key=lambda ratio: abs(ratio - 1.0)) == pytest.approx(1.0, abs=0.15)
