"""Random points of the kinds that are drawn where none are named: by name, in the proportions of networks."""

from __future__ import annotations

import random
from collections.abc import Callable

from op_profiler.collection.sampling import kinds, sizes
from op_profiler.collection.sampling.point import Point


def _conv2d(rng: random.Random) -> Point:
    size = sizes.size(rng)
    stem = rng.random() < 0.04
    kernel = rng.choices((1, 3, 5, 7), (0.5, 0.4, 0.06, 0.04))[0]
    return kinds.Conv2d(
        batch=sizes.batch(rng),
        in_channels=3 if stem else sizes.channels(rng),
        height=size,
        width=size if rng.random() < 0.9 else sizes.size(rng),
        out_channels=sizes.channels(rng),
        kernel=kernel,
        stride=rng.choices((1, 2), (0.8, 0.2))[0],
        epilogue=rng.choices(
            ("none", "bias", "bias_relu", "bias_relu6", "bias_swish", "residual_relu"), (1, 1.5, 4, 1, 0.5, 1)
        )[0],
    )


def _depthwise(rng: random.Random) -> Point:
    channels, size = sizes.channels(rng, 16, 1536), sizes.size(rng)
    return kinds.Conv2d(
        batch=sizes.batch(rng),
        in_channels=channels,
        height=size,
        width=size,
        out_channels=channels,
        kernel=rng.choices((3, 5, 7), (0.6, 0.3, 0.1))[0],
        stride=rng.choices((1, 2), (0.7, 0.3))[0],
        groups=channels,
        epilogue=rng.choice(("none", "bias", "bias_relu", "bias_relu6", "bias_swish")),
    )


def _conv2d_transpose(rng: random.Random) -> Point:
    channels = sizes.channels(rng, 32, 1024)
    out = max(4, channels // 2) if rng.random() < 0.7 else sizes.channels(rng, 4, 512)
    return kinds.Conv2dTranspose(channels, sizes.log_uniform(rng, 4, 64), out, rng.choice((2, 4, 4)))


def _dense(rng: random.Random) -> Point:
    return kinds.Dense(
        rows=1 if rng.random() < 0.4 else sizes.sequence(rng),
        in_features=sizes.features(rng, 32),
        out_features=sizes.features(rng, 10),
        epilogue=rng.choices(("none", "bias", "bias_relu", "bias_gelu", "bias_tanh"), (1, 3, 1, 1, 0.5))[0],
    )


def _batch_matmul(rng: random.Random) -> Point:
    transposed = rng.random() < 0.4
    heads = rng.choice((1, 2, 3, 4, 6, 8, 12, 16)) * rng.choices((1, 2, 4), (0.8, 0.1, 0.1))[0]
    sequence, width = sizes.sequence(rng), rng.choice((16, 32, 48, 64, 80, 96, 128))
    if rng.random() < 0.5:
        return kinds.BatchMatmul(heads, sequence, sequence, width, transposed)
    if rng.random() < 0.7:
        return kinds.BatchMatmul(heads, sequence, width, sequence, transposed)
    return kinds.BatchMatmul(
        heads, sizes.sequence(rng), sizes.sequence(rng), sizes.log_uniform(rng, 8, 512), transposed
    )


def _pool2d(rng: random.Random) -> Point:
    size = sizes.size(rng)
    window = rng.choice((2, 3, 3, 3))
    return kinds.Pool2d(
        batch=sizes.batch(rng),
        channels=sizes.channels(rng, 16, 2048),
        height=size,
        width=size,
        window=window,
        stride=rng.choice((1, 2)),
        mode=rng.choices(kinds.POOLS, (0.4, 0.3, 0.3))[0],
    )


def _softmax(rng: random.Random) -> Point:
    if rng.random() < 0.25:
        return kinds.Softmax(1, sizes.batch(rng), sizes.log_uniform(rng, 10, 50000))
    sequence = sizes.sequence(rng)
    return kinds.Softmax(rng.choice((1, 2, 3, 4, 6, 8, 12, 16)), sequence, sequence)


def _layer_norm(rng: random.Random) -> Point:
    return kinds.LayerNorm(sizes.sequence(rng), sizes.log_uniform(rng, 64, 2048, 32))


def _elementwise(rng: random.Random) -> Point:
    return kinds.Elementwise(rng.choice((*kinds.UNARY, *kinds.BINARY, *kinds.BINARY)), sizes.activation_shape(rng))


def _transpose(rng: random.Random) -> Point:
    sequence, heads, width = sizes.sequence(rng), rng.choice((1, 2, 4, 8, 12, 16)), rng.choice((16, 32, 64, 96, 128))
    shape, axes = rng.choice(
        (
            ((1, sequence, heads, width), (0, 2, 1, 3)),
            ((1, heads, sequence, width), (0, 2, 1, 3)),
            ((1, sequence, heads, width), (0, 2, 3, 1)),
            ((heads, sequence, width), (0, 2, 1)),
            ((sequence, heads * width), (1, 0)),
        )
    )
    return kinds.Transpose(shape, axes)


def _concatenate(rng: random.Random) -> Point:
    channels, size = sizes.channels(rng, 16, 256), sizes.size(rng)
    block = kinds.channel_block(channels)
    return kinds.Concatenate((sizes.batch(rng), channels // block, size, size, block), rng.choice((2, 2, 2, 3, 4)))


def _mean(rng: random.Random) -> Point:
    return kinds.Mean(sizes.sequence(rng), sizes.log_uniform(rng, 64, 2048, 32))


USUAL: dict[str, tuple[float, Callable[[random.Random], Point]]] = {
    "conv2d": (0.34, _conv2d),
    "depthwise": (0.10, _depthwise),
    "conv2d_transpose": (0.02, _conv2d_transpose),
    "dense": (0.16, _dense),
    "batch_matmul": (0.11, _batch_matmul),
    "pool2d": (0.07, _pool2d),
    "softmax": (0.04, _softmax),
    "layer_norm": (0.02, _layer_norm),
    "elementwise": (0.09, _elementwise),
    "transpose": (0.05, _transpose),
    "concatenate": (0.02, _concatenate),
    "mean": (0.01, _mean),
}
"""How often each is drawn, and how."""
