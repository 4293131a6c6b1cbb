"""Kernels of the virtual machine are called from every place within a cache line of the stack."""

from __future__ import annotations

from op_profiler.measure.stack import StackProbe, stack_places


def test_the_model_and_its_kernels_begin_where_their_turn_wants_it() -> None:
    probe, places = StackProbe(), stack_places()
    first = probe.called(places.of_kernels(0))
    for turn in range(8):
        by_itself, in_model = probe.called(places.of_kernels(turn)), probe.called_in_model(places.of_model(turn))
        assert (first - by_itself) % 64 == (first - in_model) % 64 == 16 * (turn % 4)
