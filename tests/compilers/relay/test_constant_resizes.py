"""Resizes of weights, whose kernels LLVM refuses where TVM computes them while it builds."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_profiler.compilers.imported_model import ImportedModel, InputSpec

from ...executor import executor_of


def test_a_table_that_is_resized_by_bicubic_interpolation_is_compiled(tvm: Any) -> None:
    from tvm.topi.testing import resize2d_python

    from op_profiler.compilers.relay.lower import compile_model, optimize

    relay = tvm.relay
    table = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype("float32")
    x, weight = relay.var("x", shape=(1, 2, 7, 7)), relay.var("table", shape=table.shape)
    sizes = {"size": (7, 7), "method": "cubic", "coordinate_transformation_mode": "half_pixel", "cubic_alpha": -0.5}
    resized = relay.image.resize2d(relay.transpose(weight, (0, 1, 3, 2)), **sizes)
    both = relay.add(relay.nn.relu(relay.add(x, resized)), relay.image.resize2d(x, **sizes))
    module = tvm.IRModule.from_expr(relay.Function([x, weight], both))
    params = {"table": tvm.nd.array(table)}
    model = ImportedModel("m", "file", module, params, (InputSpec("x", (1, 2, 7, 7), "float32"),), 1)
    compiled = compile_model(model, tvm.target.Target("llvm"))
    assert compiled.left_out == ("tir.CommonSubexprElim",)
    lowered = [occurrence.operator.key for occurrence in optimize(model, tvm.target.Target("llvm"))]
    assert lowered == [occurrence.operator.key for occurrence in compiled.occurrences]
    run = executor_of(compiled.library)
    given = np.ones((1, 2, 7, 7), "float32")
    run.set_input("x", given)
    run.run()
    expected = resize2d_python(table.transpose(0, 1, 3, 2), (7 / 4, 7 / 4), "NCHW", "cubic", "half_pixel")
    np.testing.assert_allclose(run.get_output(0).numpy(), np.maximum(given + expected, 0) + given, atol=1e-4)
