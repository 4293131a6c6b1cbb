"""Pooling, with and without padding."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

from op_profiler.operators.kinds import sizes
from op_profiler.operators.kinds.point import Draw, Point, Scope

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Node

POOLS = ("max", "avg", "global_avg")


@dataclasses.dataclass(frozen=True)
class Pool2d(Point):
    """Pooling of an image whose channels are in blocks, as between convolutions."""

    kind = "pool2d"
    described = True
    choices = {"mode": POOLS}
    batch: int
    channels: int
    height: int
    width: int
    window: int
    stride: int
    mode: str = "max"

    def expression(self, scope: Scope) -> Node:
        """Return the pooling over [batch, blocks, height, width, block], with padding of half a window on each side."""
        nn = scope.relay.nn
        block = scope.block(self.channels)
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
        """See `Point.work`: one operation per value of each window; the moved elements are twice the number of input
        elements."""
        elements = float(self.batch * self.channels * self.height * self.width)
        return elements * (1 if self.mode == "global_avg" else self.window**2 / self.stride**2), 2 * elements


@dataclasses.dataclass(frozen=True)
class UnpaddedPool2d(Point):
    """Pooling of an image without padding. The channels are in blocks of `block`; 0: channels are not blocked."""

    kind = "unpadded_pool2d"
    channels: int
    size: int
    window: int
    stride: int
    mode: str
    block: int

    def expression(self, scope: Scope) -> Node:
        """Return the call of Relay that pools one image without padding, including partial windows (``ceil_mode``)."""
        nn = scope.relay.nn
        pool = nn.max_pool2d if self.mode == "max" else nn.avg_pool2d
        return pool(
            scope.input(*sizes.blocked(self.channels, self.size, self.block)),
            pool_size=(self.window, self.window),
            strides=(self.stride, self.stride),
            layout=sizes.layout_name(self.block),
            ceil_mode=True,
        )

    def work(self) -> tuple[float, float]:
        """See `Point.work`: one operation per value of each window; twice the input elements are moved."""
        elements = float(self.channels * self.size**2)
        return elements * self.window**2 / self.stride**2, 2 * elements


@dataclasses.dataclass(frozen=True)
class LargeWindow(Point):
    """Pooling of [batch, channels, size, ...] over windows of many values, with or without padding.

    Attributes:
        axes: 1 for a series, 2 for an image.
    """

    kind = "large_windows"
    batch: int
    channels: int
    size: int
    window: int
    stride: int
    margin: int
    mode: str
    axes: int = 2

    def expression(self, scope: Scope) -> Node:
        """Return the pool of a tensor in NCW or NCHW layout."""
        pool = getattr(scope.relay.nn, f"{self.mode}_pool{self.axes}d")
        window, stride, margin = ((size,) * self.axes for size in (self.window, self.stride, self.margin))
        x = scope.input(self.batch, self.channels, *[self.size] * self.axes)
        return pool(x, pool_size=window, strides=stride, padding=margin)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: one operation per element of each window; twice the input elements are moved."""
        elements = float(self.batch * self.channels * self.size**self.axes)
        return elements * (self.window / self.stride) ** self.axes, 2 * elements


def _large_windows(rng: random.Random) -> Point:
    axes = 1 if rng.random() < 0.25 else 2
    size = sizes.log_uniform(rng, 8, 112) if axes == 2 else sizes.log_uniform(rng, 32, 8192)
    window = min(rng.choice((3, 5, 7, 9, 13, 21, 31)), size)
    stride, margin = rng.choice((1, 2, 3, window)), rng.choice((0, window // 2))
    channels = sizes.log_uniform(rng, 1, 256)
    return LargeWindow(rng.choice((1, 8, 32)), channels, size, window, stride, margin, rng.choice(("max", "avg")), axes)


def _pool2d(rng: random.Random) -> Point:
    size = sizes.size(rng)
    window = rng.choice((2, 3, 3, 3))
    return Pool2d(
        batch=sizes.batch(rng),
        channels=sizes.channels(rng, 16, 2048),
        height=size,
        width=size,
        window=window,
        stride=rng.choice((1, 2)),
        mode=rng.choices(POOLS, (0.4, 0.3, 0.3))[0],
    )


def _unpadded_pool2d(rng: random.Random) -> Point:
    channels, size = sizes.channels(rng, 16, 1024), max(sizes.size(rng, 6, 150), 4)
    block = sizes.block_of(rng, channels) if rng.random() < 0.7 else 0
    window, stride = rng.choice(((2, 2), (2, 2), (3, 2), (3, 2), (3, 1), (2, 1)))
    return UnpaddedPool2d(channels, size, window, stride, rng.choice(("max", "max", "avg")), block)


DRAWS: dict[str, Draw] = {
    "pool2d": _pool2d,
    "unpadded_pool2d": _unpadded_pool2d,
    "large_windows": _large_windows,
}
