"""Random points: sizes are drawn log-uniformly, and half of them are rounded to what networks use."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence

from op_profiler.collection.sampling import kinds
from op_profiler.collection.sampling.point import Point
from op_profiler.errors import UnknownNameError

_LARGEST_OPERATIONS = 3e9
_LARGEST_ELEMENTS = 2.5e7
_SMALLEST_ELEMENTS = 64.0
_USUAL_SIZES = (7, 8, 13, 14, 16, 17, 27, 28, 32, 35, 55, 56, 64, 71, 73, 96, 112, 128, 147, 149, 224)
_SEQUENCES = (16, 32, 64, 128, 197, 256, 384, 512)
_SHARES = {
    "conv2d": 0.34,
    "depthwise": 0.10,
    "conv2d_transpose": 0.02,
    "dense": 0.16,
    "batch_matmul": 0.11,
    "pool2d": 0.07,
    "softmax": 0.04,
    "layer_norm": 0.02,
    "elementwise": 0.09,
    "transpose": 0.05,
    "concatenate": 0.02,
    "mean": 0.01,
}
_WHERE_NAMED = ("conv2d_dilated", "conv2d_grouped", "conv3d", "decoder_step")
"""Kinds that are drawn where they are named, all as often: what a seed draws without names stays what it was."""
_SHARE_WHERE_NAMED = 0.05


def space_names() -> list[str]:
    """What `draw` can be restricted to."""
    return [*_SHARES, *_WHERE_NAMED]


def usual_names() -> list[str]:
    """What `draw` draws where it is not restricted."""
    return list(_SHARES)


def draw(rng: random.Random, names: Sequence[str] = ()) -> Iterator[Point]:
    """Points without end, each within the limits of this module on work and memory.

    Args:
        names: of `space_names`; empty for the usual ones, in the proportions in which they matter to networks.

    Raises:
        UnknownNameError: no such space.
    """
    for name in names:
        if name not in space_names():
            raise UnknownNameError("kind of operator", name, space_names())
    chosen = list(names) or usual_names()
    weights = [_SHARES.get(name, _SHARE_WHERE_NAMED) for name in chosen]
    while True:
        point = _DRAWS[rng.choices(chosen, weights)[0]](rng)
        operations, elements = point.work()
        if operations <= _LARGEST_OPERATIONS and _SMALLEST_ELEMENTS <= elements <= _LARGEST_ELEMENTS:
            yield point


def _log_uniform(rng: random.Random, low: int, high: int, multiple: int = 1) -> int:
    value = math.exp(rng.uniform(math.log(low), math.log(high)))
    return max(multiple, round(value / multiple) * multiple)


def _channels(rng: random.Random, low: int = 16, high: int = 1024) -> int:
    multiple = rng.choices((32, 16, 8, 4, 2), (0.42, 0.28, 0.18, 0.07, 0.05))[0]
    return _log_uniform(rng, low, high, multiple)


def _size(rng: random.Random, low: int = 5, high: int = 160) -> int:
    return rng.choice(_USUAL_SIZES) if rng.random() < 0.75 else _log_uniform(rng, low, high)


def _batch(rng: random.Random) -> int:
    return rng.choices((1, 2, 4, 8), (0.8, 0.1, 0.05, 0.05))[0]


def _sequence(rng: random.Random) -> int:
    return rng.choice(_SEQUENCES) if rng.random() < 0.75 else _log_uniform(rng, 8, 512)


def _conv2d(rng: random.Random) -> Point:
    size = _size(rng)
    stem = rng.random() < 0.04
    kernel = rng.choices((1, 3, 5, 7), (0.5, 0.4, 0.06, 0.04))[0]
    return kinds.Conv2d(
        batch=_batch(rng),
        in_channels=3 if stem else _channels(rng),
        height=size,
        width=size if rng.random() < 0.9 else _size(rng),
        out_channels=_channels(rng),
        kernel=kernel,
        stride=rng.choices((1, 2), (0.8, 0.2))[0],
        epilogue=rng.choices(
            ("none", "bias", "bias_relu", "bias_relu6", "bias_swish", "residual_relu"), (1, 1.5, 4, 1, 0.5, 1)
        )[0],
    )


def _depthwise(rng: random.Random) -> Point:
    channels, size = _channels(rng, 16, 1536), _size(rng)
    return kinds.Conv2d(
        batch=_batch(rng),
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
    channels = _channels(rng, 32, 1024)
    out = max(4, channels // 2) if rng.random() < 0.7 else _channels(rng, 4, 512)
    return kinds.Conv2dTranspose(channels, _log_uniform(rng, 4, 64), out, rng.choice((2, 4, 4)))


def _conv2d_dilated(rng: random.Random) -> Point:
    return kinds.Conv2dDilated(
        in_channels=_channels(rng, 16, 512),
        size=_size(rng),
        out_channels=_channels(rng, 16, 512),
        dilation=rng.choices((2, 4, 6, 12, 18), (4, 2, 1, 1, 1))[0],
        kernel=rng.choices((3, 5), (0.9, 0.1))[0],
        epilogue=rng.choice(("none", "bias", "bias_relu")),
    )


def _conv2d_grouped(rng: random.Random) -> Point:
    """In groups that are no channels, as in ResNeXt and ShuffleNet: TVM does not block their channels."""
    groups, size = rng.choice((2, 3, 4, 8, 32)), _size(rng, 5, 64)
    return kinds.Conv2d(
        batch=1,
        in_channels=groups * _log_uniform(rng, 4, 64, 2),
        height=size,
        width=size,
        out_channels=groups * _log_uniform(rng, 4, 64, 2),
        kernel=rng.choices((1, 3), (0.5, 0.5))[0],
        stride=rng.choices((1, 2), (0.8, 0.2))[0],
        groups=groups,
        epilogue=rng.choice(("none", "bias", "bias_relu")),
    )


def _conv3d(rng: random.Random) -> Point:
    return kinds.Conv3d(
        in_channels=3 if rng.random() < 0.1 else _channels(rng, 8, 256),
        depth=rng.choice((4, 8, 16, 32)) if rng.random() < 0.75 else _log_uniform(rng, 2, 48),
        size=_size(rng, 5, 112),
        out_channels=_channels(rng, 8, 256),
        kernel=rng.choices((1, 3), (0.3, 0.7))[0],
        stride=rng.choices((1, 2), (0.8, 0.2))[0],
        epilogue=rng.choice(("none", "bias", "bias_relu")),
    )


def _decoder_step(rng: random.Random) -> Point:
    """What one new token needs: products of one row with all that came before, or with a layer's weights."""
    heads, past = rng.choice((1, 2, 4, 8, 12, 16, 32)), _log_uniform(rng, 1, 4096)
    width = rng.choice((32, 64, 80, 96, 128))
    return rng.choice(
        (
            kinds.BatchMatmul(heads, 1, past, width, transposed=True),
            kinds.BatchMatmul(heads, 1, width, past, transposed=False),
            kinds.Softmax(heads, 1, past),
            kinds.GrowingPast(heads, past, width),
            kinds.Dense(1, heads * width, rng.choice((1, 2, 3, 4)) * heads * width, rng.choice(("none", "bias_gelu"))),
        )
    )


def _features(rng: random.Random, least: int) -> int:
    """Widths of layers: multiples of 32 and 64 mostly, and what classifiers have."""
    if rng.random() < 0.08:
        return rng.choice((10, 21, 91, 100, 1000, 1001))
    return _log_uniform(rng, least, 4096, rng.choices((1, 8, 32, 64), (0.1, 0.15, 0.35, 0.4))[0])


def _dense(rng: random.Random) -> Point:
    return kinds.Dense(
        rows=1 if rng.random() < 0.4 else _sequence(rng),
        in_features=_features(rng, 32),
        out_features=_features(rng, 10),
        epilogue=rng.choices(("none", "bias", "bias_relu", "bias_gelu", "bias_tanh"), (1, 3, 1, 1, 0.5))[0],
    )


def _batch_matmul(rng: random.Random) -> Point:
    transposed = rng.random() < 0.4
    heads = rng.choice((1, 2, 3, 4, 6, 8, 12, 16)) * rng.choices((1, 2, 4), (0.8, 0.1, 0.1))[0]
    sequence, width = _sequence(rng), rng.choice((16, 32, 48, 64, 80, 96, 128))
    if rng.random() < 0.5:
        return kinds.BatchMatmul(heads, sequence, sequence, width, transposed)
    if rng.random() < 0.7:
        return kinds.BatchMatmul(heads, sequence, width, sequence, transposed)
    return kinds.BatchMatmul(heads, _sequence(rng), _sequence(rng), _log_uniform(rng, 8, 512), transposed)


def _pool2d(rng: random.Random) -> Point:
    size = _size(rng)
    window = rng.choice((2, 3, 3, 3))
    return kinds.Pool2d(
        batch=_batch(rng),
        channels=_channels(rng, 16, 2048),
        height=size,
        width=size,
        window=window,
        stride=rng.choice((1, 2)),
        mode=rng.choices(kinds.POOLS, (0.4, 0.3, 0.3))[0],
    )


def _softmax(rng: random.Random) -> Point:
    if rng.random() < 0.25:
        return kinds.Softmax(1, _batch(rng), _log_uniform(rng, 10, 50000))
    sequence = _sequence(rng)
    return kinds.Softmax(rng.choice((1, 2, 3, 4, 6, 8, 12, 16)), sequence, sequence)


def _layer_norm(rng: random.Random) -> Point:
    return kinds.LayerNorm(_sequence(rng), _log_uniform(rng, 64, 2048, 32))


def _activation_shape(rng: random.Random) -> tuple[int, ...]:
    """Of a blocked convolution, of a sequence, or of a vector."""
    form = rng.random()
    if form < 0.5:
        channels, size = _channels(rng), _size(rng)
        block = kinds.channel_block(channels)
        return (_batch(rng), channels // block, size, size, block)
    if form < 0.85:
        return (1, _sequence(rng), _log_uniform(rng, 32, 4096, 32))
    return (_batch(rng), _log_uniform(rng, 32, 4096))


def _elementwise(rng: random.Random) -> Point:
    return kinds.Elementwise(rng.choice((*kinds.UNARY, *kinds.BINARY, *kinds.BINARY)), _activation_shape(rng))


def _transpose(rng: random.Random) -> Point:
    sequence, heads, width = _sequence(rng), rng.choice((1, 2, 4, 8, 12, 16)), rng.choice((16, 32, 64, 96, 128))
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
    channels, size = _channels(rng, 16, 256), _size(rng)
    block = kinds.channel_block(channels)
    return kinds.Concatenate((_batch(rng), channels // block, size, size, block), rng.choice((2, 2, 2, 3, 4)))


def _mean(rng: random.Random) -> Point:
    return kinds.Mean(_sequence(rng), _log_uniform(rng, 64, 2048, 32))


_DRAWS: dict[str, Callable[[random.Random], Point]] = {
    "conv2d": _conv2d,
    "depthwise": _depthwise,
    "conv2d_transpose": _conv2d_transpose,
    "dense": _dense,
    "batch_matmul": _batch_matmul,
    "pool2d": _pool2d,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "elementwise": _elementwise,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "mean": _mean,
    "conv2d_dilated": _conv2d_dilated,
    "conv2d_grouped": _conv2d_grouped,
    "conv3d": _conv3d,
    "decoder_step": _decoder_step,
}
