"""What stands between the heavy operators of networks: other layouts, other axes, and values for whole channels."""

from __future__ import annotations

import dataclasses
import math

from op_profiler.collection.sampling.point import Point, Scope
from op_profiler.compilers.tvm_types import Node

BROADCASTS = ("scale_shift", "scale_shift_relu", "table", "scaled_table", "gate", "divide", "sum", "sum_relu")


@dataclasses.dataclass(frozen=True)
class Relayout(Point):
    """From one block of channels to another, as between convolutions whose tiles differ.

    Attributes:
        before, after: channels in the innermost dimension; 0: channels are not blocked. Both divide `channels`.
    """

    kind = "relayout"
    channels: int
    size: int
    before: int
    after: int
    relu: bool = False

    def expression(self, scope: Scope) -> Node:
        shape = blocked(self.channels, self.size, self.before)
        x = scope.relay.layout_transform(scope.input(*shape), _layout(self.before), _layout(self.after))
        return scope.relay.nn.relu(x) if self.relu else x

    def work(self) -> tuple[float, float]:
        return 0.0, 2.0 * self.channels * self.size**2


@dataclasses.dataclass(frozen=True)
class Rearranged(Point):
    """A tensor cut along its axes, their order changed, and put together again: heads of attention, windows, shuffled
    channels, and tokens that become an image.

    Attributes:
        parts: shape whose axes change places; as many elements as `shape` and `result`.
        block: channels in the innermost dimension of an image [1, channels, height, width] that it is made of
            (`from_blocked`) or becomes; 0: it is not blocked.
        added: whether another tensor is added at the end.
    """

    kind = "rearranged"
    shape: tuple[int, ...]
    parts: tuple[int, ...]
    axes: tuple[int, ...]
    result: tuple[int, ...]
    block: int = 0
    from_blocked: bool = False
    added: bool = False

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        if self.from_blocked:
            _, channels, height, width = self.shape
            x = scope.input(1, channels // self.block, height, width, self.block)
            x = relay.layout_transform(x, _layout(self.block), _layout(0))
        else:
            x = scope.input(*self.shape)
        x = relay.reshape(relay.transpose(relay.reshape(x, self.parts), self.axes), self.result)
        if self.added:
            x = relay.add(x, scope.input(*self.result))
        if self.block and not self.from_blocked:
            x = relay.layout_transform(x, _layout(0), _layout(self.block))
        return x

    def work(self) -> tuple[float, float]:
        return 0.0, (3.0 if self.added else 2.0) * math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Broadcast(Point):
    """One of `BROADCASTS` over an activation.

    Attributes:
        channels: shape of what belongs to channels, of as many axes as `shape`; 1 where it is the same everywhere.
    """

    kind = "broadcast"
    op: str
    shape: tuple[int, ...]
    channels: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        x = scope.input(*self.shape)
        if self.op.startswith("scale_shift"):
            x = relay.add(relay.multiply(x, scope.weight(*self.channels)), scope.weight(*self.channels))
        elif self.op == "table":
            x = relay.add(x, scope.weight(*self.shape))
        elif self.op == "scaled_table":
            x = relay.add(relay.multiply(x, scope.constant(0.125)), scope.weight(*self.shape))
        elif self.op == "gate":
            x = relay.multiply(x, relay.sigmoid(scope.input(*self.channels)))
        elif self.op == "divide":
            x = relay.divide(x, scope.constant(8.0))
        else:
            x = relay.add(relay.add(x, scope.input(*self.shape)), scope.input(*self.shape))
        return relay.nn.relu(x) if self.op.endswith("relu") else x

    def work(self) -> tuple[float, float]:
        tensors = {"table": 3, "scaled_table": 3, "sum": 4, "sum_relu": 4}.get(self.op, 2)
        return 2.0 * math.prod(self.shape), float(tensors * math.prod(self.shape))


@dataclasses.dataclass(frozen=True)
class JoinedSlices(Point):
    """Parts of tensors put together along the channels (axis 1): `kept` of each of several tensors of one shape."""

    kind = "joined_slices"
    shape: tuple[int, ...]
    kept: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        slices = [relay.strided_slice(scope.input(*self.shape), begin=[0], end=[kept], axes=[1]) for kept in self.kept]
        return relay.concatenate(slices, axis=1)

    def work(self) -> tuple[float, float]:
        return 0.0, 2.0 * sum(self.kept) * math.prod(self.shape) / self.shape[1]


@dataclasses.dataclass(frozen=True)
class UnpaddedPool2d(Point):
    """Pooling without a margin, over channels in blocks of `block`, or before them (0)."""

    kind = "unpadded_pool2d"
    channels: int
    size: int
    window: int
    stride: int
    mode: str
    block: int

    def expression(self, scope: Scope) -> Node:
        nn = scope.relay.nn
        pool = nn.max_pool2d if self.mode == "max" else nn.avg_pool2d
        return pool(
            scope.input(*blocked(self.channels, self.size, self.block)),
            pool_size=(self.window, self.window),
            strides=(self.stride, self.stride),
            layout=_layout(self.block),
            ceil_mode=True,
        )

    def work(self) -> tuple[float, float]:
        elements = float(self.channels * self.size**2)
        return elements * self.window**2 / self.stride**2, 2 * elements


def blocked(channels: int, size: int, block: int) -> tuple[int, ...]:
    """Shape of a square image with channels in blocks; 0: they are not blocked."""
    return (1, channels // block, size, size, block) if block else (1, channels, size, size)


def _layout(block: int) -> str:
    return f"NCHW{block}c" if block else "NCHW"
