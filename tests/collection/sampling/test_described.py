"""Layers that are described without a compiler are what the compiler makes of them."""

from __future__ import annotations

import dataclasses

import pytest

from op_profiler.collection.sampling.batches import operators_of_points
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import UsageError
from op_profiler.operators.kinds.convolutions import Conv2d, Conv2dTranspose
from op_profiler.operators.kinds.described import described
from op_profiler.operators.kinds.elementwise import ACTIVATIONS, Elementwise
from op_profiler.operators.kinds.norms import Softmax
from op_profiler.operators.kinds.point import EPILOGUES, Point
from op_profiler.operators.kinds.pooling import Pool2d
from op_profiler.operators.kinds.products import BatchMatmul, Dense
from op_profiler.targets.target import resolve_target

POINTS: tuple[Point, ...] = (
    *(Conv2d(1, 64, 14, 15, 96, 3, 1, 1, name) for name in EPILOGUES),
    Conv2d(2, 3, 30, 30, 20, 7, 2, 1, "bias_relu"),
    Conv2d(1, 26, 9, 9, 113, 1, 1, 1, "none"),
    Conv2d(1, 48, 12, 12, 48, 5, 2, 48, "bias_swish"),
    Conv2d(1, 32, 9, 8, 48, 3, 2, 4),
    *(Dense(4, 96, 130, name) for name in ("none", "bias", "bias_relu", "bias_gelu", "bias_tanh")),
    Dense(1, 64, 1000, "bias"),
    Softmax(3, 7, 20),
    BatchMatmul(2, 9, 11, 16),
    BatchMatmul(2, 9, 11, 16, transposed=False),
)
# Channels of these are blocked already, so how is theirs to say; `Pool2d` blocks for 512 bits.
BLOCKED: tuple[Point, ...] = (
    Pool2d(1, 48, 15, 15, 3, 2, "max"),
    Pool2d(1, 64, 14, 14, 3, 1, "avg"),
    Pool2d(1, 80, 7, 7, 7, 7, "global_avg"),
    *(Elementwise(op, (1, 2, 5, 5, 16)) for op in ("relu", "sigmoid", "swish", "relu6", *ACTIVATIONS)),
    *(Elementwise(op, (1, 2, 5, 5, 16)) for op in ("add", "add_relu", "multiply")),
)


@pytest.mark.parametrize(("processor", "lanes"), [("skylake-avx512", 16), ("haswell", 8)])
def test_described_as_tvm_has_them(processor: str, lanes: int) -> None:
    load_tvm()
    points = POINTS if lanes != 16 else POINTS + BLOCKED
    target = resolve_target(f"llvm -mcpu={processor}")
    found = {o.operator.key: o.operator for o in operators_of_points(points, target, 0)}
    for point in points:
        mine = described(point, lanes)
        assert mine.key in found, (point, mine.structure, mine.attrs)
        assert dataclasses.asdict(mine) == dataclasses.asdict(found[mine.key])


def test_a_kind_that_is_not_described_is_refused() -> None:
    with pytest.raises(UsageError, match="Conv2d, Dense"):
        described(Conv2dTranspose(8, 4, 4))
