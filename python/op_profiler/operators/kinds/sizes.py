"""Random sizes, drawn log-uniformly and mostly rounded to values that networks use, and blocks of channels."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence

_USUAL_SIZES = (7, 8, 13, 14, 16, 17, 27, 28, 32, 35, 55, 56, 64, 71, 73, 96, 112, 128, 147, 149, 224)
_SEQUENCES = (16, 32, 64, 128, 197, 256, 384, 512)
LARGEST_BLOCK = 16
"""Largest number of channels in the innermost dimension. For 512-bit vectors, the size of TVM's blocks is the largest
divisor of the channels up to this number."""


@functools.cache
def largest_divisor(number: int, limit: int) -> int:
    """Return the largest divisor of a number up to a limit; 1 for a number or a limit below 1."""
    return max(divisor for divisor in range(1, max(min(number, limit), 1) + 1) if number % divisor == 0)


def channel_block(channels: int) -> int:
    """Return the number of channels in a block (innermost dimension) of a tensor with `channels` channels."""
    return largest_divisor(channels, LARGEST_BLOCK)


def blocked(channels: int, size: int, block: int) -> tuple[int, ...]:
    """Return the shape of a square image with channels in blocks of `block`; 0: channels are not blocked."""
    return (1, channels // block, size, size, block) if block else (1, channels, size, size)


def layout_name(block: int) -> str:
    """Return the name of the layout of images with channels in blocks of `block`; 0: channels are not blocked."""
    return f"NCHW{block}c" if block else "NCHW"


def margins(padding: Sequence[int]) -> list[int]:
    """Return the number of zeros that a padding adds to each axis, before and after it together.

    Args:
        padding: zeros before each axis, followed by zeros after each axis.
    """
    half = len(padding) // 2
    return [before + behind for before, behind in zip(padding[:half], padding[half:])]


def windows(
    lengths: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1, 1, 1),
) -> tuple[int, ...]:
    """Return how often a window fits along each axis.

    Args:
        lengths, kernel, stride, dilation: one per axis.
        padding: as for `margins`.
    """
    every = zip(lengths, margins(padding), kernel, dilation, stride)
    return tuple((length + margin - d * (k - 1) - 1) // step + 1 for length, margin, k, d, step in every)


def log_uniform(rng: random.Random, low: int, high: int, multiple: int = 1) -> int:
    """Draw a number log-uniformly between `low` and `high`, and round it to a positive multiple of `multiple`."""
    value = math.exp(rng.uniform(math.log(low), math.log(high)))
    return max(multiple, round(value / multiple) * multiple)


def channels(rng: random.Random, low: int = 16, high: int = 1024) -> int:
    """Draw a number of channels, log-uniform, most often a multiple of 32, 16 or 8."""
    multiple = rng.choices((32, 16, 8, 4, 2), (0.42, 0.28, 0.18, 0.07, 0.05))[0]
    return log_uniform(rng, low, high, multiple)


def size(rng: random.Random, low: int = 5, high: int = 160) -> int:
    """Draw the height or width of an image: with probability 3/4 one of the usual sizes, otherwise log-uniform."""
    return rng.choice(_USUAL_SIZES) if rng.random() < 0.75 else log_uniform(rng, low, high)


def batch(rng: random.Random) -> int:
    """Draw a batch size of 1, 2, 4 or 8; 1 with probability 4/5."""
    return rng.choices((1, 2, 4, 8), (0.8, 0.1, 0.05, 0.05))[0]


def sequence(rng: random.Random) -> int:
    """Draw a number of tokens: with probability 3/4 one of the usual lengths, otherwise 8 to 512, log-uniform."""
    return rng.choice(_SEQUENCES) if rng.random() < 0.75 else log_uniform(rng, 8, 512)


def features(rng: random.Random, least: int) -> int:
    """Draw the width of a layer: `least` to 4096, mostly a multiple of 32 or 64; or a usual number of classes."""
    if rng.random() < 0.08:
        return rng.choice((10, 21, 91, 100, 1000, 1001))
    return log_uniform(rng, least, 4096, rng.choices((1, 8, 32, 64), (0.1, 0.15, 0.35, 0.4))[0])


def activation_shape(rng: random.Random) -> tuple[int, ...]:
    """Draw the shape of a blocked image, of a sequence, or of a vector."""
    form = rng.random()
    if form < 0.5:
        width, side = channels(rng), size(rng)
        block = channel_block(width)
        return (batch(rng), width // block, side, side, block)
    if form < 0.85:
        return (1, sequence(rng), log_uniform(rng, 32, 4096, 32))
    return (batch(rng), log_uniform(rng, 32, 4096))


def near_power_of_two(rng: random.Random, low: int, high: int) -> int:
    """Draw a power of two from `low` to `high`, or a number that is one less or one more."""
    exponents = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    return max(2 ** rng.choice(exponents) + rng.choices((-1, 0, 1), (0.2, 0.6, 0.2))[0], 1)


def odd_rows(rng: random.Random) -> int:
    """Draw an odd number of rows from 1 to 511, so that vectors do not divide it."""
    return log_uniform(rng, 1, 510) | 1


def block_of(rng: random.Random, channels: int) -> int:
    """Draw the number of channels in a block: with probability 0.4 TVM's default, otherwise a divisor from 2 to 32."""
    if rng.random() < 0.4:
        return channel_block(channels)
    return rng.choice([block for block in range(2, 33) if channels % block == 0] or [1])


def rows(rng: random.Random) -> int:
    """Draw a number of rows: the tokens of a sequence, or the patches of an image."""
    return rng.choice((49, 77, 196, 197, 257)) if rng.random() < 0.3 else sequence(rng)
