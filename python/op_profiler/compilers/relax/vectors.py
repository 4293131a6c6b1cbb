"""The vector unit that the default schedules reckon with."""

from __future__ import annotations

import dataclasses

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Target

_FLOAT_BITS = 32
_MANY, _FEW = 32, 16


@dataclasses.dataclass(frozen=True)
class Vectors:
    """The registers of a processor.

    Attributes:
        lanes: float32 values in one.
        accumulators: how many may hold sums, beside those that hold operands.
    """

    lanes: int
    accumulators: int


def vectors_of(target: Target) -> Vectors:
    """Of the processor of a target of kind llvm.

    Args:
        target: `tvm.target.Target`.
    """
    load_tvm()
    from tvm.target.codegen import llvm_get_vector_width

    lanes = max(int(llvm_get_vector_width(target)) // _FLOAT_BITS, 4)
    many = lanes >= 16 or "aarch64" in str(getattr(target, "attrs", ""))
    return Vectors(lanes, (_MANY if many else _FEW) - 4)


def divisor(size: int, most: int) -> int:
    """The largest divisor of a size that is not above `most`; 1 at least."""
    return max(d for d in range(1, max(min(size, most), 1) + 1) if size % d == 0)


def lanes_of(size: int, vectors: Vectors) -> int:
    """How wide a loop of one row is to be vectorized: full vectors, else an odd width that LLVM splits, such as 25."""
    lanes = divisor(size, vectors.lanes)
    return size if 2 * lanes < vectors.lanes and size <= 2 * vectors.lanes else lanes
