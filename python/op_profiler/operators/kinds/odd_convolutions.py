"""Convolutions of few channels, and of long rows, as in graphs with single operators rather than in networks."""

from __future__ import annotations

import dataclasses
import random

from op_profiler.operators.kinds import sizes
from op_profiler.operators.kinds.convolutions import Conv2d, Convolving
from op_profiler.operators.kinds.point import Draw, Point


@dataclasses.dataclass(frozen=True)
class LongConv1d(Convolving):
    """Convolution over [batch, in_channels, length]."""

    kind = "long_conv1d"
    batch: int
    in_channels: int
    length: int
    out_channels: int
    kernel: int
    stride: int
    dilation: int
    epilogue: str


def _few_channels(rng: random.Random) -> Point:
    """Draw a convolution with one to three input or output channels, or with one filter for each of them."""
    few, others = rng.randint(1, 3), sizes.log_uniform(rng, 1, 128)
    inside, outside = rng.choice(((few, others), (few, others), (others, few), (few, few)))
    size = sizes.log_uniform(rng, 4, 256)
    return Conv2d(
        batch=rng.choice((1, 8, 32)),
        in_channels=inside,
        height=size,
        width=size,
        out_channels=outside,
        kernel=rng.choices((1, 2, 3, 5, 7, 11), (2, 1, 4, 2, 1, 1))[0],
        stride=rng.choices((1, 2, 3), (4, 2, 1))[0],
        groups=few if inside == outside and rng.random() < 0.5 else 1,
        epilogue=rng.choice(("none", "bias")),
    )


def _long_conv1d(rng: random.Random) -> Point:
    """Draw a convolution over rows of up to 262144 values with few channels."""
    return LongConv1d(
        batch=rng.choice((1, 8, 32)),
        in_channels=rng.choice((1, 1, 2, 3, 8, 16, 64)),
        length=sizes.log_uniform(rng, 256, 1 << 18),
        out_channels=rng.choice((1, 2, 3, 8, 16, 32, 64)),
        kernel=rng.choice((1, 2, 3, 5, 7, 11, 31)),
        stride=rng.choice((1, 1, 2, 3)),
        dilation=rng.choice((1, 1, 1, 2, 4)),
        epilogue=rng.choice(("none", "bias")),
    )


DRAWS: dict[str, Draw] = {"few_channels": _few_channels, "long_conv1d": _long_conv1d}
