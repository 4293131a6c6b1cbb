"""Random sizes: drawn log-uniformly, and most of them rounded to what networks use."""

from __future__ import annotations

import math
import random

from op_profiler.collection.sampling import kinds

_USUAL_SIZES = (7, 8, 13, 14, 16, 17, 27, 28, 32, 35, 55, 56, 64, 71, 73, 96, 112, 128, 147, 149, 224)
_SEQUENCES = (16, 32, 64, 128, 197, 256, 384, 512)


def log_uniform(rng: random.Random, low: int, high: int, multiple: int = 1) -> int:
    value = math.exp(rng.uniform(math.log(low), math.log(high)))
    return max(multiple, round(value / multiple) * multiple)


def channels(rng: random.Random, low: int = 16, high: int = 1024) -> int:
    multiple = rng.choices((32, 16, 8, 4, 2), (0.42, 0.28, 0.18, 0.07, 0.05))[0]
    return log_uniform(rng, low, high, multiple)


def size(rng: random.Random, low: int = 5, high: int = 160) -> int:
    return rng.choice(_USUAL_SIZES) if rng.random() < 0.75 else log_uniform(rng, low, high)


def batch(rng: random.Random) -> int:
    return rng.choices((1, 2, 4, 8), (0.8, 0.1, 0.05, 0.05))[0]


def sequence(rng: random.Random) -> int:
    return rng.choice(_SEQUENCES) if rng.random() < 0.75 else log_uniform(rng, 8, 512)


def features(rng: random.Random, least: int) -> int:
    """Widths of layers: multiples of 32 and 64 mostly, and what classifiers have."""
    if rng.random() < 0.08:
        return rng.choice((10, 21, 91, 100, 1000, 1001))
    return log_uniform(rng, least, 4096, rng.choices((1, 8, 32, 64), (0.1, 0.15, 0.35, 0.4))[0])


def activation_shape(rng: random.Random) -> tuple[int, ...]:
    """Of a blocked convolution, of a sequence, or of a vector."""
    form = rng.random()
    if form < 0.5:
        width, side = channels(rng), size(rng)
        block = kinds.channel_block(width)
        return (batch(rng), width // block, side, side, block)
    if form < 0.85:
        return (1, sequence(rng), log_uniform(rng, 32, 4096, 32))
    return (batch(rng), log_uniform(rng, 32, 4096))


def near_power_of_two(rng: random.Random, low: int, high: int) -> int:
    """A power of two within limits that are some, or one less or more than it."""
    exponents = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    return max(2 ** rng.choice(exponents) + rng.choices((-1, 0, 1), (0.2, 0.6, 0.2))[0], 1)


def odd_rows(rng: random.Random) -> int:
    """1 to 511 rows that no vector and no tile divides."""
    return log_uniform(rng, 1, 510) | 1
