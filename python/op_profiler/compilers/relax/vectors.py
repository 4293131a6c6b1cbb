"""The vectors of Relax's default schedules."""

from __future__ import annotations

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Target
from op_profiler.compilers.vectors import Vectors
from op_profiler.operators.kinds.sizes import largest_divisor

divisor = largest_divisor
"""Returns the largest divisor of a size up to a limit; called with the size and the limit."""
_FLOAT_BITS = 32
_LANES_OF_X86 = (("avx512f", 16), ("avx2", 8))


def vectors_of(target: Target) -> Vectors:
    """Return the registers of the processor of an llvm target.

    Args:
        target: `tvm.target.Target`.
    """
    return Vectors.of(target, _lanes(target))


def _lanes(target: Target) -> int:
    """Return the float32 values in a vector. This TVM reports 512 bits for every x86 processor."""
    codegen = load_tvm().target.codegen
    target_has_features = codegen.target_has_features
    if not target_has_features(["sse2"], target):
        return max(int(codegen.llvm_get_vector_width(target)) // _FLOAT_BITS, 4)
    return next((lanes for feature, lanes in _LANES_OF_X86 if target_has_features([feature], target)), 4)


def lanes_of(size: int, vectors: Vectors) -> int:
    """Return the vector width for a loop of `size` iterations: the largest divisor of `size` that fits into a register.

    If this is less than half a register, and `size` is at most two registers, the width is `size`, such as 25, and LLVM
    splits the vector.
    """
    lanes = divisor(size, vectors.lanes)
    return size if 2 * lanes < vectors.lanes and size <= 2 * vectors.lanes else lanes
