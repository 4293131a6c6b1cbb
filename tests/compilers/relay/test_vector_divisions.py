"""Divisions of vectors of integers by a divisor of any sign, whose names LLVM refuses where TVM lowers them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.imported_model import ImportedModel, InputSpec

from ...executor import executor_of


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers_are_divided_by_vectors_and_by_negative_numbers(tvm: Any, dtype: str) -> None:
    from op_profiler.compilers.relay.lower import compile_model

    relay = tvm.relay
    x, y = (relay.var(name, shape=(3, 64), dtype=dtype) for name in "xy")
    by = relay.const(-7, dtype)
    results = [op(x, divisor) for op in (relay.floor_divide, relay.floor_mod) for divisor in (y, by)]
    module = tvm.IRModule.from_expr(relay.Function([x, y], relay.Tuple(results)))
    inputs = tuple(InputSpec(name, (3, 64), dtype) for name in "xy")
    compiled = compile_model(ImportedModel("m", "file", module, {}, inputs, 1), tvm.target.Target("llvm"))
    random = np.random.default_rng(0)
    dividend = random.integers(-100, 100, (3, 64)).astype(dtype)
    divisor = (random.integers(1, 9, (3, 64)) * random.choice([-1, 1], (3, 64))).astype(dtype)
    run = executor_of(compiled.library)
    run.set_input("x", dividend)
    run.set_input("y", divisor)
    run.run()
    expected = [op(dividend, by) for op in (np.floor_divide, np.mod) for by in (divisor, np.array(-7, dtype))]
    for number, one in enumerate(expected):
        np.testing.assert_array_equal(run.get_output(number).numpy(), one)
