"""Dynamic shapes: the operators carry the shapes that they were called with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relay.lower import compile_model
from op_profiler.compilers.relay.virtual_machine import VmKernels, operators_at_run_time
from op_profiler.errors import MeasureError


def test_dynamic_dense(tvm: Any, target: Any) -> None:
    relay = tvm.relay
    x, w = relay.var("x", shape=(relay.Any(), 64)), relay.var("w", shape=(32, 64))
    module = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    params = {"w": tvm.nd.array(np.ones((32, 64), "float32"))}
    model = ImportedModel("dyn", "test", relay.transform.InferType()(module), params, (InputSpec("x", (None, 64)),))
    compiled = compile_model(model, target, "vm")
    kernels = VmKernels(compiled, tvm.cpu(), [np.ones((5, 64), "float32")])
    operators = operators_at_run_time(compiled, kernels)
    dense = operators[-1]
    assert dense.inputs[0].shape == (5, 64)
    assert dense.flops == 2 * 5 * 64 * 32 + 5 * 32
    assert all(t > 0 for t in kernels.walk("model", [True] * len(operators)))
    with pytest.raises(MeasureError, match="--cache model only"):
        kernels.cache_mechanism("hot")


def test_kernels_are_told_apart_by_more_than_their_number(tvm: Any, target: Any) -> None:
    """Both branches are one kernel; which of them runs, the input decides."""
    relay = tvm.relay
    x = relay.var("x", shape=(4, 4))
    condition = relay.greater(relay.sum(x), relay.const(0.0))
    branch = relay.If(condition, relay.nn.relu(x), relay.tanh(x))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], branch)))
    model = ImportedModel("branches", "test", module, {}, (InputSpec("x", (4, 4)),))
    kernels = VmKernels(compile_model(model, target, "vm"), tvm.cpu(), [np.ones((4, 4), "float32")])
    assert all(time > 0 for time in kernels.walk("model", [True] * len(kernels.labels)))
    kernels._profiler.set_input("main", tvm.nd.array(-np.ones((4, 4), "float32")))
    with pytest.raises(MeasureError, match="calls other kernels"):
        kernels.walk("model", [True] * len(kernels.labels))
