"""Operators as a few numbers each, and how Relay writes them.

A kind states what one operator computes; the compiler decides the layouts and what is fused. One point may therefore
become several operators (a layer norm becomes its means and its scaling).
"""

from __future__ import annotations

import dataclasses
import math

from op_profiler.collection.sampling.point import Point, Scope, activate, epilogue
from op_profiler.compilers.tvm_types import Node

EPILOGUES = ("none", "bias", "bias_relu", "bias_relu6", "bias_swish", "bias_gelu", "bias_tanh", "residual_relu")
UNARY = ("relu", "sigmoid", "tanh", "gelu", "relu6", "sqrt", "exp", "swish")
BINARY = ("add", "multiply", "subtract", "add_relu")
POOLS = ("max", "avg", "global_avg")
LARGEST_BLOCK = 16
"""Channels in the innermost dimension where TVM blocks them for 512-bit vectors: their largest divisor up to this."""


def channel_block(channels: int) -> int:
    """Channels in the innermost dimension of a blocked tensor."""
    return max(block for block in range(1, LARGEST_BLOCK + 1) if channels % block == 0)


@dataclasses.dataclass(frozen=True)
class Conv2d(Point):
    """Convolution with padding that keeps the size at stride 1; depthwise where groups = in_channels = out_channels."""

    kind = "conv2d"
    batch: int
    in_channels: int
    height: int
    width: int
    out_channels: int
    kernel: int
    stride: int
    groups: int = 1
    epilogue: str = "none"

    @property
    def out_size(self) -> tuple[int, int]:
        padding = 2 * (self.kernel // 2) - self.kernel
        return (self.height + padding) // self.stride + 1, (self.width + padding) // self.stride + 1

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        x = relay.nn.conv2d(
            scope.input(self.batch, self.in_channels, self.height, self.width),
            scope.weight(self.out_channels, self.in_channels // self.groups, self.kernel, self.kernel),
            strides=(self.stride, self.stride),
            padding=(self.kernel // 2, self.kernel // 2),
            groups=self.groups,
            channels=self.out_channels,
            kernel_size=(self.kernel, self.kernel),
        )
        return epilogue(scope, x, (self.batch, self.out_channels, *self.out_size), self.epilogue, self.out_channels)

    def work(self) -> tuple[float, float]:
        rows, columns = self.out_size
        out = float(self.batch * self.out_channels * rows * columns)
        per_group = self.in_channels // self.groups
        moved = self.batch * self.in_channels * self.height * self.width + out
        return 2 * out * per_group * self.kernel**2, moved + self.out_channels * per_group * self.kernel**2


@dataclasses.dataclass(frozen=True)
class Conv2dDilated(Point):
    """Convolution whose window has gaps: it reads every `dilation`-th row and column. The size stays."""

    kind = "conv2d_dilated"
    in_channels: int
    size: int
    out_channels: int
    dilation: int
    kernel: int = 3
    epilogue: str = "none"

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        padding = self.dilation * (self.kernel // 2)
        x = relay.nn.conv2d(
            scope.input(1, self.in_channels, self.size, self.size),
            scope.weight(self.out_channels, self.in_channels, self.kernel, self.kernel),
            padding=(padding, padding),
            dilation=(self.dilation, self.dilation),
            channels=self.out_channels,
            kernel_size=(self.kernel, self.kernel),
        )
        return epilogue(scope, x, (1, self.out_channels, self.size, self.size), self.epilogue, self.out_channels)

    def work(self) -> tuple[float, float]:
        weights = float(self.in_channels * self.out_channels * self.kernel**2)
        return 2 * weights * self.size**2, weights + (self.in_channels + self.out_channels) * self.size**2


@dataclasses.dataclass(frozen=True)
class Conv3d(Point):
    """Convolution over [1, in_channels, depth, size, size], as video networks have it; padding as of `Conv2d`."""

    kind = "conv3d"
    in_channels: int
    depth: int
    size: int
    out_channels: int
    kernel: int
    stride: int
    epilogue: str = "none"

    @property
    def out_sizes(self) -> tuple[int, int, int]:
        padding = 2 * (self.kernel // 2) - self.kernel
        depth, size = ((n + padding) // self.stride + 1 for n in (self.depth, self.size))
        return depth, size, size

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        x = relay.nn.conv3d(
            scope.input(1, self.in_channels, self.depth, self.size, self.size),
            scope.weight(self.out_channels, self.in_channels, *[self.kernel] * 3),
            strides=[self.stride] * 3,
            padding=[self.kernel // 2] * 3,
            channels=self.out_channels,
            kernel_size=[self.kernel] * 3,
        )
        return epilogue(scope, x, (1, self.out_channels, *self.out_sizes), self.epilogue, self.out_channels)

    def work(self) -> tuple[float, float]:
        out = float(self.out_channels * math.prod(self.out_sizes))
        weights = self.in_channels * self.out_channels * self.kernel**3
        moved = self.in_channels * self.depth * self.size**2 + out + weights
        return 2 * out * self.in_channels * self.kernel**3, moved


@dataclasses.dataclass(frozen=True)
class Conv2dTranspose(Point):
    """Transposed convolution with stride 2, which doubles height and width."""

    kind = "conv2d_transpose"
    in_channels: int
    size: int
    out_channels: int
    kernel: int = 4

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        x = relay.nn.conv2d_transpose(
            scope.input(1, self.in_channels, self.size, self.size),
            scope.weight(self.in_channels, self.out_channels, self.kernel, self.kernel),
            strides=(2, 2),
            padding=(self.kernel // 2 - 1, self.kernel // 2 - 1),
            channels=self.out_channels,
            kernel_size=(self.kernel, self.kernel),
        )
        return relay.nn.relu(x)

    def work(self) -> tuple[float, float]:
        inputs, weights = self.in_channels * self.size**2, self.in_channels * self.out_channels * self.kernel**2
        return 2.0 * weights * self.size**2, float(inputs + weights + 4 * self.out_channels * self.size**2)


@dataclasses.dataclass(frozen=True)
class Dense(Point):
    """Fully connected layer."""

    kind = "dense"
    rows: int
    in_features: int
    out_features: int
    epilogue: str = "none"

    def expression(self, scope: Scope) -> Node:
        x = scope.relay.nn.dense(
            scope.input(self.rows, self.in_features), scope.weight(self.out_features, self.in_features)
        )
        return epilogue(scope, x, (self.rows, self.out_features), self.epilogue, self.out_features)

    def work(self) -> tuple[float, float]:
        m, k, n = self.rows, self.in_features, self.out_features
        return 2.0 * m * k * n, float(m * k + k * n + m * n)


@dataclasses.dataclass(frozen=True)
class BatchMatmul(Point):
    """Product of activations: [batch, rows, inner] by [batch, columns, inner] transposed, or by [batch, inner, columns]
    as it stands, which importers of torch and ONNX write and TVM computes in another way."""

    kind = "batch_matmul"
    batch: int
    rows: int
    columns: int
    inner: int
    transposed: bool = True

    def expression(self, scope: Scope) -> Node:
        left = scope.input(self.batch, self.rows, self.inner)
        shape = (self.columns, self.inner) if self.transposed else (self.inner, self.columns)
        right = scope.input(self.batch, *shape)
        return scope.relay.nn.batch_matmul(left, right, transpose_a=False, transpose_b=self.transposed)

    def work(self) -> tuple[float, float]:
        m, k, n = self.rows, self.inner, self.columns
        return 2.0 * self.batch * m * k * n, float(self.batch * (m * k + k * n + m * n))


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
    """One of `UNARY` or `BINARY`; `shape` is the shape of all its operands."""

    kind = "elementwise"
    op: str
    shape: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        x = scope.input(*self.shape)
        if self.op in UNARY:
            return activate(scope, x, self.op)
        y = scope.input(*self.shape)
        if self.op == "add_relu":
            return relay.nn.relu(relay.add(x, y))
        return getattr(relay, self.op)(x, y)

    def work(self) -> tuple[float, float]:
        elements = float(math.prod(self.shape))
        return elements, (2 if self.op in UNARY else 3) * elements


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
class Mean(Point):
    """Mean over the last axis of [rows, columns]."""

    kind = "mean"
    rows: int
    columns: int

    def expression(self, scope: Scope) -> Node:
        return scope.relay.mean(scope.input(1, self.rows, self.columns), axis=-1, keepdims=True)

    def work(self) -> tuple[float, float]:
        return float(self.rows * self.columns), float(self.rows * self.columns)
