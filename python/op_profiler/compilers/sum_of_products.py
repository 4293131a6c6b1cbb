"""Sums of products: reference kernels whose loops are the same under every compiler."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Mapping
from types import ModuleType
from typing import Any


@dataclasses.dataclass(frozen=True)
class SumOfProducts:
    """A kernel over float32 tensors, in Einstein's notation: an axis that the output lacks is summed over.

    Its loops, from the outermost in: the output's first axis, in parallel; the axes that are summed over; the output's
    other axes, unrolled, and the last of them vectorized.

    Attributes:
        name: of the kernel.
        factors: the axes of each tensor that is read, a letter each, such as ``("ki", "kjl")``.
        output: the axes of what is written, such as ``cijl``; two at least.
        sizes: of all axes; those that are summed over in the order of their loops. One that no factor has repeats the
            sum.
        in_registers: the sums are made in registers and then written, also where LLVM would not do that by itself.
    """

    name: str
    factors: tuple[str, ...]
    output: str
    sizes: Mapping[str, int]
    in_registers: bool = False

    @property
    def summed(self) -> str:
        """The axes that are summed over, the outermost first."""
        return "".join(axis for axis in self.sizes if axis not in self.output)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of what is read, and then of what is written."""
        return [tuple(self.sizes[axis] for axis in axes) for axes in (*self.factors, self.output)]

    @property
    def terms(self) -> int:
        """How often something is added to a sum."""
        return math.prod(self.sizes.values())

    def tensors(self, te: ModuleType) -> list[Any]:
        """What is read and then what is written, as tensor expressions, which all versions of TVM have alike.

        Args:
            te: ``tvm.te``.
        """
        *shapes, written = self.shapes
        read = [te.placeholder(shape, name=f"factor{number}") for number, shape in enumerate(shapes)]
        summed = {axis: te.reduce_axis((0, self.sizes[axis]), name=axis) for axis in self.summed}

        def value(*indices: Any) -> object:
            at = dict(zip(self.output, indices)) | summed
            values = [tensor[tuple(at[axis] for axis in axes)] for tensor, axes in zip(read, self.factors)]
            return te.sum(functools.reduce(operator.mul, values), axis=list(summed.values()))

        return [*read, te.compute(written, value, name=self.name)]
