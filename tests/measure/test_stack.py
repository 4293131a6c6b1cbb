"""Kernels are called from every place within a cache line of the stack, in the model and by themselves."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_profiler.compilers.relay.graph_executor import load_graph
from op_profiler.measure.stack import StackProbe, stack_places


def test_a_call_begins_where_its_turn_wants_it(tvm: Any) -> None:
    probe, places = StackProbe(), stack_places()
    addresses = [probe.called(places.of_kernels(turn)) for turn in range(64)]
    assert [(addresses[0] - address) % 64 for address in addresses] == [16 * (turn % 4) for turn in range(64)]
    assert len({address % 4096 // 64 for address in addresses}) > 16  # other lines of a page as well


def test_the_model_and_its_kernels_begin_at_the_same_place(tvm: Any) -> None:
    probe, places = StackProbe(), stack_places()
    for turn in range(8):
        by_itself, in_model = probe.called(places.of_kernels(turn)), probe.called_in_model(places.of_model(turn))
        assert (by_itself - in_model) % 64 == 0


def test_every_round_is_measured_from_another_place(tvm: Any, compiled_small: Any) -> None:
    inputs = {"data": np.random.default_rng(0).random((1, 16, 32, 32), dtype="float32")}
    graph = load_graph(compiled_small, tvm.cpu(), inputs)
    (expected,) = graph.output_arrays()
    places = set()
    for _ in range(100):
        graph.run_model()
        places.add(graph.stack_turn % 4)
        assert graph.time_model() > 0 and min(graph.walk("model", [True] * len(graph.kernels))) > 0
        assert np.array_equal(graph.output_arrays()[0], expected)
    assert places == {0, 1, 2, 3}
