"""Data that is moved and not computed with."""

from __future__ import annotations

import dataclasses
import math

from op_profiler.collection.sampling.point import Point, Scope
from op_profiler.compilers.tvm_types import Node


@dataclasses.dataclass(frozen=True)
class Transpose(Point):
    """Permutation of axes."""

    kind = "transpose"
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        return scope.relay.transpose(scope.input(*self.shape), axes=self.axes)

    def work(self) -> tuple[float, float]:
        return 0.0, 2.0 * math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Concatenate(Point):
    """`parts` tensors of one shape, put together along the channels (axis 1)."""

    kind = "concatenate"
    shape: tuple[int, ...]
    parts: int

    def expression(self, scope: Scope) -> Node:
        return scope.relay.concatenate([scope.input(*self.shape) for _ in range(self.parts)], axis=1)

    def work(self) -> tuple[float, float]:
        return 0.0, 2.0 * self.parts * math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class GrowingPast(Point):
    """What a decoder keeps of earlier tokens, [heads, past, width], and one more token behind them."""

    kind = "growing_past"
    heads: int
    past: int
    width: int

    def expression(self, scope: Scope) -> Node:
        kept, new = scope.input(self.heads, self.past, self.width), scope.input(self.heads, 1, self.width)
        return scope.relay.concatenate([kept, new], axis=1)

    def work(self) -> tuple[float, float]:
        return 0.0, 2.0 * self.heads * (self.past + 1) * self.width


@dataclasses.dataclass(frozen=True)
class Repacking(Point):
    """The weight [rows, columns] of a dense layer, packed in blocks of rows while the model runs.

    Each value of a block comes from another row, `4 * columns` bytes apart: with a power of two all of them lead to a
    few sets of a cache.
    """

    kind = "repacking"
    rows: int
    columns: int
    block: int

    def expression(self, scope: Scope) -> Node:
        x = scope.input(self.rows, self.columns)
        return scope.relay.layout_transform(x, src_layout="NC", dst_layout=f"NC{self.block}n")

    def work(self) -> tuple[float, float]:
        return 0.0, 2.0 * self.rows * self.columns
