"""Times of calls: what the call takes is told from what the kernel takes."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_profiler.compilers.calls import TimedCalls, call_overhead_us
from op_profiler.compilers.relay.calls import PackedCall
from op_profiler.compilers.relay.graph_executor import load_graph
from op_profiler.measure.in_place import timed_us


def test_calls_are_made_in_order_and_each_is_timed(tvm: Any) -> None:
    made: list[int] = []
    functions = [tvm.runtime.convert(lambda index=index: made.append(index)) for index in range(3)]
    calls = TimedCalls([PackedCall(str(index), "", function) for index, function in enumerate(functions)])
    times = calls.run()
    assert made == [0, 1, 2]
    assert times.shape == (3,) and (times > 0).all()


def test_a_call_that_fails_has_no_time_and_the_others_have_theirs(tvm: Any, compiled_small: Any) -> None:
    graph = load_graph(compiled_small, tvm.cpu(), {"data": np.zeros((1, 16, 32, 32), "float32")})
    right = graph.kernels[0]
    wrong = PackedCall(right.name, right.label, right.function, right.arrays[:-1])
    assert np.isnan(TimedCalls([right, wrong, right]).run()).tolist() == [False, True, False]


def test_a_call_costs_less_than_python_takes_for_it(tvm: Any) -> None:
    """Reading the clock, which some machines take 0.2 us for, is in both; the rest is what the native walk saves."""
    nothing = PackedCall("nothing", "", tvm.get_global_func("testing.nop"))
    overheads_us, python_us = [], []
    for _ in range(15):
        overheads_us.append(call_overhead_us())
        python_us.append(min(timed_us(nothing) for _ in range(50)))
    assert np.median(overheads_us) < np.median(python_us)
