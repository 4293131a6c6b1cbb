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
    """A kernel over float32 tensors, in Einstein's notation: axes that the output lacks are summed over.

    Its loops, from the outermost: the output's first axis, in parallel; the summed axes; the output's other axes,
    unrolled, and the last of them vectorized.

    Attributes:
        name: name of the kernel.
        factors: axes of each input tensor, one letter per axis, such as ``("ki", "kjl")``.
        output: axes of the output, such as ``cijl``; at least two.
        sizes: sizes of all axes; the summed ones in the order of their loops. An axis that no factor has repeats the
            sum.
        in_registers: sums are computed in registers and then written, even where LLVM would not do this by itself.
    """

    name: str
    factors: tuple[str, ...]
    output: str
    sizes: Mapping[str, int]
    in_registers: bool = False

    @property
    def summed(self) -> str:
        """Return the summed axes, the outermost first."""
        return "".join(axis for axis in self.sizes if axis not in self.output)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Return the shapes of the inputs, then that of the output."""
        return [tuple(self.sizes[axis] for axis in axes) for axes in (*self.factors, self.output)]

    @property
    def terms(self) -> int:
        """Return the number of products that the kernel sums up, over all outputs."""
        return math.prod(self.sizes.values())

    def tensors(self, te: ModuleType) -> list[Any]:
        """Return the inputs, then the output, as tensor expressions, which are the same in all versions of TVM.

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
