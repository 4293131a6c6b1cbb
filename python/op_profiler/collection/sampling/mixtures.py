"""Mixtures of several kinds of operators, drawn at random: as in networks, or at the limits of a machine."""

from __future__ import annotations

import random

from op_profiler.operators.kinds import draws, sizes
from op_profiler.operators.kinds.convolutions import Conv2d, Conv2dTranspose, Int8Conv2d
from op_profiler.operators.kinds.elementwise import INT8_ELEMENTWISE, Int8Elementwise
from op_profiler.operators.kinds.norms import Softmax
from op_profiler.operators.kinds.point import Draw, InFloat16, Point
from op_profiler.operators.kinds.products import BatchMatmul, Dense, DenseOfActivations, Int8Dense, Repacking
from op_profiler.operators.kinds.rearrangements import GrowingPast, Transpose

USUAL = {
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
"""The default kinds, and the share of each if no kind is requested: the proportions in networks."""
_IN_FLOAT16 = ("conv2d", "depthwise", "dense", "batch_matmul", "pool2d", "elementwise", "transpose", "concatenate")
_LEFT_IN_FLOAT32 = {"bias_gelu", "gelu", "exp", "global_avg"}


def _powers_of_two(rng: random.Random) -> Point:
    """Draw an operator with sizes at or next to powers of two; strides of a power of two map to few cache sets."""

    def near(low: int, high: int) -> int:
        return sizes.near_power_of_two(rng, low, high)

    form = rng.choice(("conv2d", "conv2d", "conv2d_transpose", "dense", "dense", "batch_matmul", "transpose"))
    if form == "conv2d":
        size, kernel = near(4, 64), rng.choice((1, 3))
        return Conv2d(1, near(16, 1024), size, size, near(16, 1024), kernel, 1, epilogue="bias_relu")
    if form == "conv2d_transpose":
        return Conv2dTranspose(near(32, 1024), near(4, 32), near(4, 512))
    if form == "dense":
        return Dense(near(1, 512), near(32, 4096), near(32, 4096), rng.choice(("none", "bias")))
    if form == "batch_matmul":
        return BatchMatmul(2 ** rng.randrange(5), near(4, 512), near(4, 512), near(16, 512), rng.random() < 0.4)
    return Transpose((near(16, 2048), near(16, 2048)), (1, 0))


def _large_weights(rng: random.Random) -> Point:
    """Draw an operator whose weights exceed the second- or third-level cache, with little work per weight."""
    if rng.random() < 0.6:
        features = sizes.log_uniform(rng, 1024, 8192, 64), sizes.log_uniform(rng, 1024, 8192, 8)
        return Dense(sizes.log_uniform(rng, 1, 16), *features, rng.choice(("none", "bias", "bias_relu")))
    size = sizes.log_uniform(rng, 2, 14)
    channels = sizes.log_uniform(rng, 384, 2048, 32), sizes.log_uniform(rng, 384, 2048, 32)
    return Conv2d(1, channels[0], size, size, channels[1], rng.choice((1, 3)), 1, epilogue="bias_relu")


def _odd_rows(rng: random.Random) -> Point:
    """Draw a product over a sequence whose length no tile divides, so that the loop has a guarded remainder."""
    rows = sizes.odd_rows(rng)
    if rng.random() < 0.6:
        epilogue = rng.choice(("none", "bias", "bias_relu", "bias_gelu"))
        return Dense(rows, sizes.features(rng, 32), sizes.features(rng, 10), epilogue)
    heads, width = rng.choice((1, 2, 3, 4, 6, 8, 12, 16)), rng.choice((16, 32, 48, 64, 80, 96, 128))
    columns, inner = rng.choice(((rows, width), (width, rows), (sizes.odd_rows(rng), width)))
    return BatchMatmul(heads, rows, columns, inner, rng.random() < 0.4)


def _attention(rng: random.Random) -> Point:
    """Draw an operator of attention (scores, softmax, weighted values, transposed heads) for any sequence length."""
    heads, width = rng.choice((1, 2, 3, 4, 6, 8, 12, 16, 32)), rng.choice((16, 32, 40, 64, 80, 96, 128))
    queries = sizes.log_uniform(rng, 2, 2048)
    keys = queries if rng.random() < 0.7 else sizes.log_uniform(rng, 2, 2048)
    return rng.choice(
        (
            BatchMatmul(heads, queries, keys, width, transposed=rng.random() < 0.5),
            BatchMatmul(heads, queries, width, keys, transposed=rng.random() < 0.5),
            Softmax(heads, queries, keys),
            Transpose((1, queries, heads, width), rng.choice(((0, 2, 1, 3), (0, 2, 3, 1)))),
        )
    )


def _decoder_step(rng: random.Random) -> Point:
    """Draw an operator that computes one new token: a product of one row with earlier tokens or with weights, etc."""
    heads, past = rng.choice((1, 2, 4, 8, 12, 16, 32)), sizes.log_uniform(rng, 1, 4096)
    width = rng.choice((32, 64, 80, 96, 128))
    return rng.choice(
        (
            BatchMatmul(heads, 1, past, width, transposed=True),
            BatchMatmul(heads, 1, width, past, transposed=False),
            Softmax(heads, 1, past),
            GrowingPast(heads, past, width),
            Dense(1, heads * width, rng.choice((1, 2, 3, 4)) * heads * width, rng.choice(("none", "bias_gelu"))),
        )
    )


def _strided_weights(rng: random.Random) -> Point:
    """Draw an operator that rearranges weights at run time, with a stride near a power of two."""
    columns = sizes.near_power_of_two(rng, 128, 4096)
    if rng.random() < 0.4:
        inputs, size = sizes.near_power_of_two(rng, 64, 1024), rng.choice((2, 4, 4, 7, 8, 8, 14, 16))
        return Conv2dTranspose(inputs, size, sizes.near_power_of_two(rng, 32, 512))
    rows = sizes.log_uniform(rng, 64, 4096, 4) if rng.random() < 0.7 else 1000
    if rng.random() < 0.5:
        block = rng.choice([block for block in range(4, 33) if rows % block == 0])
        return Repacking(rows, columns, block)
    return DenseOfActivations(rng.choice((1, 1, 1, 2, 4, 16)), columns, rows)


def _float16(rng: random.Random) -> Point:
    """Draw a float16 operator of a default kind that Relay's mixed-precision pass converts."""
    shares = [USUAL[name] for name in _IN_FLOAT16]
    while True:
        point = draws()[rng.choices(_IN_FLOAT16, shares)[0]](rng)
        if not {getattr(point, name, "") for name in ("epilogue", "op", "mode")} & _LEFT_IN_FLOAT32:
            return InFloat16(point)


def _int8(rng: random.Random) -> Point:
    """Draw an int8 operator of a default kind that Relay's quantizer converts."""
    form = rng.choices(("conv2d", "depthwise", "dense", "elementwise"), (0.5, 0.2, 0.2, 0.1))[0]
    if form == "dense":
        return Int8Dense(
            1 if rng.random() < 0.4 else sizes.sequence(rng), sizes.features(rng, 32), sizes.features(rng, 10)
        )
    if form == "elementwise":
        return Int8Elementwise(rng.choice(INT8_ELEMENTWISE), sizes.activation_shape(rng))
    channels, stride = sizes.channels(rng), rng.choices((1, 2), (0.8, 0.2))[0]
    if form == "depthwise":
        return Int8Conv2d(channels, sizes.size(rng), channels, rng.choice((3, 5)), stride, groups=channels)
    kernel = rng.choices((1, 3, 5), (0.55, 0.4, 0.05))[0]
    return Int8Conv2d(channels, sizes.size(rng), sizes.channels(rng), kernel, stride)


MIXTURES: dict[str, Draw] = {
    "powers_of_two": _powers_of_two,
    "large_weights": _large_weights,
    "odd_rows": _odd_rows,
    "attention": _attention,
    "decoder_step": _decoder_step,
    "strided_weights": _strided_weights,
    "float16": _float16,
    "int8": _int8,
}
