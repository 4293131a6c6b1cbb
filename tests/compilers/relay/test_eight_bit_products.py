"""Products of eight bits are exact for every x86 processor, whatever instructions it has for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

_NEEDS = {
    "znver4": "avx512_vnni",
    "skylake-avx512": "avx512bw",
    "haswell": "avx2",
    "nehalem": "sse4_2",
}


@pytest.mark.parametrize("processor", _NEEDS)
@pytest.mark.parametrize("kinds", [("uint8", "uint8"), ("uint8", "int8"), ("int8", "uint8"), ("int8", "int8")])
def test_a_convolution_of_full_range_is_exact(processor: str, kinds: tuple[str, str], tvm: Any) -> None:
    from tvm.contrib import graph_executor

    from op_profiler.targets import TARGETS

    if _NEEDS[processor] not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip(f"this processor has no {_NEEDS[processor]}")
    relay, rng = tvm.relay, np.random.default_rng(0)
    data, weights = (rng.integers(*_range(kind), shape).astype(kind) for kind, shape in zip(kinds, _SHAPES))
    x, zero, scale = relay.var("x", shape=data.shape, dtype=kinds[0]), relay.const(3), relay.const(1.0)
    made = relay.qnn.op.conv2d(x, relay.const(weights), zero, zero, scale, scale, (3, 3), weights.shape[0])
    target = TARGETS.get("llvm").for_int8(tvm.target.Target(f"llvm -mcpu={processor}"))
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(tvm.IRModule.from_expr(relay.Function([x], made)), target)
    executor = graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.run(x=data)
    windows = np.lib.stride_tricks.sliding_window_view(data.astype("int64") - 3, (3, 3), axis=(2, 3))
    expected = np.einsum("ncyxhw,ochw->noyx", windows, weights.astype("int64") - 3)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), expected)


_SHAPES = (1, 16, 6, 6), (8, 16, 3, 3)


def _range(kind: str) -> tuple[int, int]:
    limits = np.iinfo(kind)
    return limits.min, limits.max + 1
