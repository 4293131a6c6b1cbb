"""Operators behind a convolution compute the same with its channels packed in blocks as without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ...executor import executor_of

CHANNELS = 32

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "variance over channels": lambda relay, y: relay.variance(y, 1),
    "variance over channels and rows": lambda relay, y: relay.variance(y, [1, 2], keepdims=True),
    "variance over all but channels": lambda relay, y: relay.variance(y, 1, exclude=True),
    "variance over rows": lambda relay, y: relay.variance(y, [2, 3]),
    "layer norm behind a mean": lambda relay, y: relay.nn.layer_norm(
        relay.mean(y, [2, 3]), *(relay.const(np.linspace(1, 2, CHANNELS, dtype="float32")) for _ in range(2))
    ),
    "largest channels": lambda relay, y: relay.topk(y, 3, 1, ret_type="values"),
    "largest columns": lambda relay, y: relay.topk(y, 3, 3)[0],
    "removed channels": lambda relay, y: relay.squeeze(relay.mean(y, 1, keepdims=True), [-3]),
    "removed axes": lambda relay, y: relay.squeeze(relay.max(y, 1, keepdims=True)),
    "removed batch": lambda relay, y: relay.squeeze(y, [0]),
    "sum of all but the batch": lambda relay, y: relay.sum(y, 0, exclude=True),
    "index of the largest of a column": lambda relay, y: relay.argmax(y, [1, 2]),
    "index of the smallest channel": lambda relay, y: relay.argmin(y, 1),
    "equal parts of parts of blocks": lambda relay, y: relay.split(y, 16, axis=1)[1],
    "equal parts of whole blocks": lambda relay, y: relay.split(y, 2, axis=-3)[1],
    "part by size": lambda relay, y: relay.strided_slice(y, [0, 8, 0, 0], [1, 16, -1, -1], slice_mode="size"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_behind_a_packed_convolution_computes_the_same(tvm: Any, name: str) -> None:
    relay = tvm.relay
    random = np.random.default_rng(0)
    weight = relay.const(random.standard_normal((CHANNELS, CHANNELS, 3, 3)).astype("float32"))
    x = relay.var("x", shape=(1, CHANNELS, 6, 6))
    y = relay.nn.conv2d(x, weight, padding=(1, 1), channels=CHANNELS, kernel_size=(3, 3)) + relay.const(3.0)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], OPERATORS[name](relay, y))))
    given = random.standard_normal((1, CHANNELS, 6, 6)).astype("float32")
    found = []
    for left_out in ([], ["AlterOpLayout"]):
        with tvm.transform.PassContext(opt_level=3, disabled_pass=left_out):
            run = executor_of(relay.build(module, target="llvm"))
        run.set_input("x", given)
        run.run()
        found.append(run.get_output(0).numpy())
    packed, plain = found
    np.testing.assert_allclose(packed, plain, rtol=1e-4, atol=1e-3)
