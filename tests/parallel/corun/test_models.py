"""Parallel operators that are merged before a model is built."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_profiler.compilers.relay.merge_parallel import merged


def test_merged_operators_give_nearly_the_same(branching_network: Any, target: Any) -> None:
    from op_profiler.building.requested_inputs import random_inputs
    from op_profiler.compilers.relay.graph_executor import load_graph
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.compilers.tvm_build import runtime_device

    model, kinds = merged(branching_network)
    assert kinds == ("conv2d",)
    inputs = random_inputs(list(branching_network.inputs))
    device = runtime_device(target)
    outputs = [
        load_graph(compile_model(one, target), device, inputs).output_arrays()[0] for one in (branching_network, model)
    ]
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-4, atol=1e-6)


def test_a_model_without_parallel_operators_is_not_merged(small_network: Any) -> None:
    assert merged(small_network)[1] == ()
