"""Conversion to int8 does not depend on the models that the same process converted before."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.compilers.relay.precision import in_precision


def test_a_second_model_of_a_process_is_converted_as_the_first(tvm: Any) -> None:
    """Relay's quantizer stops at a global pooling, for all models, until its state is reset."""
    relay, rng = tvm.relay, np.random.default_rng(0)
    weights = [rng.standard_normal(shape).astype("float32") for shape in ((8, 3, 3, 3), (8, 8, 3, 3))]
    found = data = relay.var("data", shape=(1, 3, 8, 8), dtype="float32")
    for weight in weights:
        found = relay.nn.relu(relay.nn.conv2d(found, relay.const(weight), channels=8, kernel_size=(3, 3)))
    module = tvm.IRModule.from_expr(relay.Function([data], relay.nn.global_avg_pool2d(found)))
    model = ImportedModel("net", "test", relay.transform.InferType()(module), {}, ())
    inputs = {"data": rng.standard_normal((1, 3, 8, 8)).astype("float32")}
    first, second = (in_precision(model, "int8", inputs, tvm.target.Target("llvm")).mod for _ in range(2))
    assert "int8" in str(first)
    tvm.ir.assert_structural_equal(first, second)
