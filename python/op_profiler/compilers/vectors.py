"""Vector registers of a processor, as the default schedules assume them."""

from __future__ import annotations

import dataclasses

from op_profiler.compilers.tvm_types import Target

_MANY, _FEW = 32, 16
_WIDEST = 16


@dataclasses.dataclass(frozen=True)
class Vectors:
    """The registers of a processor.

    Attributes:
        lanes: float32 values in one.
        accumulators: how many may hold sums, beside those that hold operands.
    """

    lanes: int
    accumulators: int

    @classmethod
    def of(cls, target: Target, lanes: int) -> Vectors:
        """Of the processor of a target of kind llvm, which has registers of so many float32 values."""
        many = lanes >= _WIDEST or "aarch64" in str(getattr(target, "attrs", ""))
        return cls(lanes, (_MANY if many else _FEW) - 4)
