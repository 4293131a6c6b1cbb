"""Dynamic shapes: the operators carry the shapes that they were called with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from op_profiler.errors import MeasureError
from op_profiler.frontends._base import InputSpec, RelayModel
from op_profiler.measure.vm import VmKernels, operators_at_run_time
from op_profiler.operators.lower import compile_model


def test_dynamic_dense(tvm: Any, target: Any) -> None:
    relay = tvm.relay
    x, w = relay.var("x", shape=(relay.Any(), 64)), relay.var("w", shape=(32, 64))
    module = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    params = {"w": tvm.nd.array(np.ones((32, 64), "float32"))}
    model = RelayModel("dyn", "test", relay.transform.InferType()(module), params, (InputSpec("x", (None, 64)),))
    compiled = compile_model(model, target, "vm")
    kernels = VmKernels(compiled, tvm.cpu(), [np.ones((5, 64), "float32")])
    operators = operators_at_run_time(compiled, kernels)
    dense = operators[-1]
    assert dense.inputs[0].shape == (5, 64)
    assert dense.flops == 2 * 5 * 64 * 32 + 5 * 32
    assert all(t > 0 for t in kernels.walk("model", [True] * len(operators)))
    with pytest.raises(MeasureError, match="--cache model only"):
        kernels.cache_mechanism("hot")
