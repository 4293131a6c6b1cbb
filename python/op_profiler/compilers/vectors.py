"""Vector registers of a processor, as the default schedules assume them."""

from __future__ import annotations

import dataclasses

from op_profiler.compilers.tvm_types import Target

_MANY, _FEW = 32, 16
_WIDEST = 16


@dataclasses.dataclass(frozen=True)
class Vectors:
    """The vector registers of a processor.

    Attributes:
        lanes: number of float32 values in one register.
        accumulators: number of registers that can contain sums, next to those for operands.
    """

    lanes: int
    accumulators: int

    @classmethod
    def of(cls, target: Target, lanes: int) -> Vectors:
        """Return the registers of the processor of an llvm target, given the number of float32 values in one."""
        many = lanes >= _WIDEST or "aarch64" in str(getattr(target, "attrs", ""))
        return cls(lanes, (_MANY if many else _FEW) - 4)
