"""What stands around convolutions and products: pooling, norms, activations, reductions."""

from __future__ import annotations

import dataclasses
import math

from op_profiler.collection.sampling.point import Point, Scope, activate
from op_profiler.compilers.tvm_types import Node

UNARY = ("relu", "sigmoid", "tanh", "gelu", "relu6", "sqrt", "exp", "swish")
ACTIVATIONS = ("gelu_tanh", "hardswish")
"""Further ones of one operand, drawn where their kind is named."""
BINARY = ("add", "multiply", "subtract", "add_relu")
POOLS = ("max", "avg", "global_avg")
REDUCTIONS = ("sum", "max", "mean")
LARGEST_BLOCK = 16
"""Channels in the innermost dimension where TVM blocks them for 512-bit vectors: their largest divisor up to this."""


def channel_block(channels: int) -> int:
    """Channels in the innermost dimension of a blocked tensor."""
    return max(block for block in range(1, LARGEST_BLOCK + 1) if channels % block == 0)


@dataclasses.dataclass(frozen=True)
class Pool2d(Point):
    """Pooling over blocked channels, as it stands between convolutions."""

    kind = "pool2d"
    batch: int
    channels: int
    height: int
    width: int
    window: int
    stride: int
    mode: str = "max"

    def expression(self, scope: Scope) -> Node:
        nn = scope.relay.nn
        block = channel_block(self.channels)
        x = scope.input(self.batch, self.channels // block, self.height, self.width, block)
        layout = f"NCHW{block}c"
        if self.mode == "global_avg":
            return nn.global_avg_pool2d(x, layout=layout)
        pool = nn.max_pool2d if self.mode == "max" else nn.avg_pool2d
        return pool(
            x,
            pool_size=(self.window, self.window),
            strides=(self.stride, self.stride),
            padding=(self.window // 2, self.window // 2),
            layout=layout,
        )

    def work(self) -> tuple[float, float]:
        elements = float(self.batch * self.channels * self.height * self.width)
        return elements * (1 if self.mode == "global_avg" else self.window**2 / self.stride**2), 2 * elements


@dataclasses.dataclass(frozen=True)
class Softmax(Point):
    """Over the last axis of [outer, rows, columns]."""

    kind = "softmax"
    outer: int
    rows: int
    columns: int

    def expression(self, scope: Scope) -> Node:
        return scope.relay.nn.softmax(scope.input(self.outer, self.rows, self.columns), axis=-1)

    def work(self) -> tuple[float, float]:
        elements = float(self.outer * self.rows * self.columns)
        return 5 * elements, 2 * elements


@dataclasses.dataclass(frozen=True)
class LayerNorm(Point):
    """Over the last axis of [1, rows, columns]; the compiler makes several operators of it."""

    kind = "layer_norm"
    rows: int
    columns: int

    def expression(self, scope: Scope) -> Node:
        x = scope.input(1, self.rows, self.columns)
        return scope.relay.nn.layer_norm(x, scope.weight(self.columns), scope.weight(self.columns), epsilon=1e-5)

    def work(self) -> tuple[float, float]:
        elements = float(self.rows * self.columns)
        return 8 * elements, 4 * elements


@dataclasses.dataclass(frozen=True)
class Elementwise(Point):
    """One of `UNARY`, `ACTIVATIONS` or `BINARY`; `shape` is the shape of all its operands."""

    kind = "elementwise"
    op: str
    shape: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        x = scope.input(*self.shape)
        if self.op in (*UNARY, *ACTIVATIONS):
            return activate(scope, x, self.op)
        y = scope.input(*self.shape)
        if self.op == "add_relu":
            return relay.nn.relu(relay.add(x, y))
        return getattr(relay, self.op)(x, y)

    def work(self) -> tuple[float, float]:
        elements = float(math.prod(self.shape))
        return elements, (3 if self.op in BINARY else 2) * elements


@dataclasses.dataclass(frozen=True)
class Mean(Point):
    """Mean over the last axis of [rows, columns]."""

    kind = "mean"
    rows: int
    columns: int

    def expression(self, scope: Scope) -> Node:
        return scope.relay.mean(scope.input(1, self.rows, self.columns), axis=-1, keepdims=True)

    def work(self) -> tuple[float, float]:
        return float(self.rows * self.columns), float(self.rows * self.columns)


@dataclasses.dataclass(frozen=True)
class Reduction(Point):
    """One of `REDUCTIONS` over some axes of a tensor, which stay with the length 1."""

    kind = "reduction"
    op: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        return getattr(scope.relay, self.op)(scope.input(*self.shape), axis=list(self.axes), keepdims=True)

    def work(self) -> tuple[float, float]:
        elements = float(math.prod(self.shape))
        return elements, elements
