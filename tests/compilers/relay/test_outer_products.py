"""Batched products of few terms, which TVM's schedule reads memory for that nothing was written to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ...executor import executor_of


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("terms", [1, 2, 3])
@pytest.mark.parametrize(("rows", "columns"), [(64, 128), (16, 16), (7, 5)])
def test_few_terms_are_summed(batch: int, terms: int, rows: int, columns: int, tvm: Any, target: Any) -> None:
    relay, rng = tvm.relay, np.random.default_rng(0)
    values = {
        "a": rng.standard_normal((batch, rows, terms), "float32"),
        "b": rng.standard_normal((batch, terms, columns), "float32"),
    }
    a, b = (relay.var(name, shape=value.shape) for name, value in values.items())
    product = relay.nn.batch_matmul(a, b, transpose_b=False)
    followed = relay.transpose(relay.nn.relu(relay.nn.batch_matmul(relay.abs(a), b, transpose_b=False)), (0, 2, 1))
    module = tvm.IRModule.from_expr(relay.Function([a, b], relay.Tuple([product, followed])))
    with tvm.transform.PassContext(opt_level=3):
        executor = executor_of(relay.build(module, target))
    executor.run(**values)
    expected = values["a"] @ values["b"], np.maximum(np.abs(values["a"]) @ values["b"], 0).transpose(0, 2, 1)
    for place, wanted in enumerate(expected):
        np.testing.assert_allclose(executor.get_output(place).numpy(), wanted, rtol=1e-5, atol=1e-5)
