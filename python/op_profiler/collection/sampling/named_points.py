"""Random points of the kinds that are drawn where they are named: what few networks have, or what tells the machine's
limits."""

from __future__ import annotations

import random
from collections.abc import Callable

from op_profiler.collection.sampling import kinds, sizes
from op_profiler.collection.sampling.between_points import BETWEEN
from op_profiler.collection.sampling.point import Point
from op_profiler.collection.sampling.usual_points import USUAL
from op_profiler.predict.latency.default_schedule import largest_divisor


def _conv2d_dilated(rng: random.Random) -> Point:
    return kinds.Conv2dDilated(
        in_channels=sizes.channels(rng, 16, 512),
        size=sizes.size(rng),
        out_channels=sizes.channels(rng, 16, 512),
        dilation=rng.choices((2, 4, 6, 12, 18), (4, 2, 1, 1, 1))[0],
        kernel=rng.choices((3, 5), (0.9, 0.1))[0],
        epilogue=rng.choice(("none", "bias", "bias_relu")),
    )


def _conv2d_grouped(rng: random.Random) -> Point:
    """In groups that are no channels, as in ResNeXt and ShuffleNet: TVM does not block their channels."""
    groups, size = rng.choice((2, 3, 4, 8, 32)), sizes.size(rng, 5, 64)
    return kinds.Conv2d(
        batch=1,
        in_channels=groups * sizes.log_uniform(rng, 4, 64, 2),
        height=size,
        width=size,
        out_channels=groups * sizes.log_uniform(rng, 4, 64, 2),
        kernel=rng.choices((1, 3), (0.5, 0.5))[0],
        stride=rng.choices((1, 2), (0.8, 0.2))[0],
        groups=groups,
        epilogue=rng.choice(("none", "bias", "bias_relu")),
    )


def _conv2d_wide_groups(rng: random.Random) -> Point:
    """Of more channels a group, of images as in ShuffleNet, and of one row of tokens as in SqueezeBERT."""
    groups, size = rng.choice((2, 3, 4, 4, 8)), sizes.size(rng, 5, 64)
    sequence = rng.random() < 0.3
    channels = [groups * sizes.log_uniform(rng, 16, 768 if sequence else 256, 2) for _ in range(2)]
    return kinds.Conv2d(
        batch=1,
        in_channels=channels[0],
        height=1 if sequence else size,
        width=sizes.sequence(rng) if sequence else size,
        out_channels=channels[1],
        kernel=1 if sequence else rng.choices((1, 3), (0.7, 0.3))[0],
        stride=1 if sequence else rng.choices((1, 2), (0.8, 0.2))[0],
        groups=groups,
        epilogue=rng.choice(("none", "bias", "bias_relu", "residual_relu")),
    )


def _conv1d(rng: random.Random) -> Point:
    """Layers of temporal and of speech networks: dilated, with strides, and one filter a channel."""
    channels, form = sizes.channels(rng, 8, 768), rng.choices(("plain", "dilated", "strided", "apart"), (4, 3, 2, 2))[0]
    return kinds.Conv1d(
        in_channels=channels if form == "apart" or rng.random() < 0.5 else sizes.channels(rng, 1, 768),
        length=sizes.sequence(rng) if rng.random() < 0.5 else sizes.log_uniform(rng, 16, 16384),
        out_channels=channels,
        kernel=rng.choice((3, 5, 7, 15, 31)) if form == "apart" else rng.choices((1, 2, 3, 5, 9), (3, 1, 5, 2, 1))[0],
        stride=rng.choice((2, 4, 5)) if form == "strided" else 1,
        dilation=2 ** rng.randint(1, 6) if form == "dilated" else 1,
        groups=channels if form == "apart" else 1,
        epilogue=rng.choice(("none", "bias", "bias_relu")),
    )


def _conv3d(rng: random.Random) -> Point:
    return kinds.Conv3d(
        in_channels=3 if rng.random() < 0.1 else sizes.channels(rng, 8, 256),
        depth=rng.choice((4, 8, 16, 32)) if rng.random() < 0.75 else sizes.log_uniform(rng, 2, 48),
        size=sizes.size(rng, 5, 112),
        out_channels=sizes.channels(rng, 8, 256),
        kernel=rng.choices((1, 3), (0.3, 0.7))[0],
        stride=rng.choices((1, 2), (0.8, 0.2))[0],
        epilogue=rng.choice(("none", "bias", "bias_relu")),
    )


def _decoder_step(rng: random.Random) -> Point:
    """What one new token needs: products of one row with all that came before, or with a layer's weights."""
    heads, past = rng.choice((1, 2, 4, 8, 12, 16, 32)), sizes.log_uniform(rng, 1, 4096)
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


def _conv2d_nhwc(rng: random.Random) -> Point:
    channels, depthwise = sizes.channels(rng, 8, 512), rng.random() < 0.4
    return kinds.Conv2dNHWC(
        size=sizes.size(rng, 5, 112),
        in_channels=3 if not depthwise and rng.random() < 0.1 else channels,
        out_channels=channels if depthwise else sizes.channels(rng, 8, 512),
        kernel=rng.choices((1, 3, 5), (0.1 if depthwise else 0.5, 0.4, 0.1))[0],
        stride=rng.choices((1, 2), (0.8, 0.2))[0],
        depthwise=depthwise,
        epilogue=rng.choice(("none", "bias", "bias_relu", "bias_relu6")),
    )


def _powers_of_two(rng: random.Random) -> Point:
    """Strides of a power of two lead to a few sets of each cache; one more or less and they do not."""

    def near(low: int, high: int) -> int:
        return sizes.near_power_of_two(rng, low, high)

    form = rng.choice(("conv2d", "conv2d", "conv2d_transpose", "dense", "dense", "batch_matmul", "transpose"))
    if form == "conv2d":
        size, kernel = near(4, 64), rng.choice((1, 3))
        return kinds.Conv2d(1, near(16, 1024), size, size, near(16, 1024), kernel, 1, epilogue="bias_relu")
    if form == "conv2d_transpose":
        return kinds.Conv2dTranspose(near(32, 1024), near(4, 32), near(4, 512))
    if form == "dense":
        return kinds.Dense(near(1, 512), near(32, 4096), near(32, 4096), rng.choice(("none", "bias")))
    if form == "batch_matmul":
        return kinds.BatchMatmul(2 ** rng.randrange(5), near(4, 512), near(4, 512), near(16, 512), rng.random() < 0.4)
    return kinds.Transpose((near(16, 2048), near(16, 2048)), (1, 0))


def _large_weights(rng: random.Random) -> Point:
    """More than the second or the third cache holds, and little to do with each value."""
    if rng.random() < 0.6:
        features = sizes.log_uniform(rng, 1024, 8192, 64), sizes.log_uniform(rng, 1024, 8192, 8)
        return kinds.Dense(sizes.log_uniform(rng, 1, 16), *features, rng.choice(("none", "bias", "bias_relu")))
    size = sizes.log_uniform(rng, 2, 14)
    channels = sizes.log_uniform(rng, 384, 2048, 32), sizes.log_uniform(rng, 384, 2048, 32)
    return kinds.Conv2d(1, channels[0], size, size, channels[1], rng.choice((1, 3)), 1, epilogue="bias_relu")


def _odd_rows(rng: random.Random) -> Point:
    """Sequences as they come: no tile divides them, and a product over them ends in a guarded rest."""
    rows = sizes.odd_rows(rng)
    if rng.random() < 0.6:
        epilogue = rng.choice(("none", "bias", "bias_relu", "bias_gelu"))
        return kinds.Dense(rows, sizes.features(rng, 32), sizes.features(rng, 10), epilogue)
    heads, width = rng.choice((1, 2, 3, 4, 6, 8, 12, 16)), rng.choice((16, 32, 48, 64, 80, 96, 128))
    columns, inner = rng.choice(((rows, width), (width, rows), (sizes.odd_rows(rng), width)))
    return kinds.BatchMatmul(heads, rows, columns, inner, rng.random() < 0.4)


def _transformer(rng: random.Random) -> Point:
    """Projections and feed-forward layers of a sequence: weights that only the last cache holds, read for many rows."""
    width, times = sizes.log_uniform(rng, 128, 1280, 64), rng.choice((1, 1, 2, 3, 4, 4))
    wide = rng.random() < 0.5
    features = (times * width, width) if wide else (width, times * width)
    rows = rng.choice(
        (rng.choice((32, 64, 128, 256)), sizes.log_uniform(rng, 16, 320), rng.choice((37, 49, 77, 101, 197, 257)))
    )
    return kinds.Dense(rows, *features, rng.choice(("none", "bias", "bias", "bias_gelu", "bias_tanh")))


def _gates(rng: random.Random) -> Point:
    return kinds.Gates(rng.choice(kinds.CELLS), rng.choice((1, 1, 1, 4, 16)), sizes.log_uniform(rng, 16, 1024, 4))


def _lrn(rng: random.Random) -> Point:
    return kinds.LocalResponseNorm(sizes.channels(rng, 16, 256), sizes.size(rng, 6, 64), rng.choice((3, 5, 5, 9)))


def _activation(rng: random.Random) -> Point:
    """Over the features of a sequence or the channels of an image."""
    op = rng.choice((*kinds.ACTIVATIONS, *kinds.ACTIVATIONS, "gelu", "swish", "tanh", "sigmoid"))
    sequence = (1, sizes.sequence(rng), sizes.features(rng, 32))
    return kinds.Elementwise(op, sequence if rng.random() < 0.5 else sizes.activation_shape(rng))


def _run_time_weights(rng: random.Random) -> Point:
    """Dense layers whose weight is an activation, and the packing of such a weight alone."""
    rows, columns = sizes.features(rng, 32), sizes.features(rng, 32)
    if rng.random() < 0.4:
        return kinds.Repacking(rows, columns, largest_divisor(rows, 32))
    return kinds.DenseOfActivations(sizes.sequence(rng), columns, rows, transposed=rng.random() < 0.5)


def _attention(rng: random.Random) -> Point:
    """Scores, their softmax, what they weigh, and heads that change places, of sequences of every length."""
    heads, width = rng.choice((1, 2, 3, 4, 6, 8, 12, 16, 32)), rng.choice((16, 32, 40, 64, 80, 96, 128))
    queries = sizes.log_uniform(rng, 2, 2048)
    keys = queries if rng.random() < 0.7 else sizes.log_uniform(rng, 2, 2048)
    return rng.choice(
        (
            kinds.BatchMatmul(heads, queries, keys, width, transposed=rng.random() < 0.5),
            kinds.BatchMatmul(heads, queries, width, keys, transposed=rng.random() < 0.5),
            kinds.Softmax(heads, queries, keys),
            kinds.Transpose((1, queries, heads, width), rng.choice(((0, 2, 1, 3), (0, 2, 3, 1)))),
        )
    )


def _reduction(rng: random.Random) -> Point:
    """Over rows, columns, both, or channels, of sequences and of images with channels blocked, first or last."""
    channels, size = sizes.channels(rng, 16, 1024), sizes.size(rng, 5, 112)
    block, rows = kinds.channel_block(channels), sizes.log_uniform(rng, 1, 512)
    shape, axes = rng.choice(
        (
            ((1, channels // block, size, size, block), (2, 3)),
            ((1, channels, size, size), (2, 3)),
            ((1, channels, size, size), (1,)),
            ((1, size, size, channels), (1, 2)),
            ((1, rows, channels), (2,)),
            ((1, rows, channels), (1,)),
            ((rows, channels), (0,)),
            ((rows, channels), (0, 1)),
        )
    )
    return kinds.Reduction(rng.choice(kinds.REDUCTIONS), shape, axes)


_IN_FLOAT16 = ("conv2d", "depthwise", "dense", "batch_matmul", "pool2d", "elementwise", "transpose", "concatenate")
_LEFT_IN_FLOAT32 = {"bias_gelu", "gelu", "exp", "global_avg"}


def _float16(rng: random.Random) -> Point:
    """Of the usual kinds what Relay's mixed precision converts."""
    shares = [USUAL[name][0] for name in _IN_FLOAT16]
    while True:
        point = USUAL[rng.choices(_IN_FLOAT16, shares)[0]][1](rng)
        if not {getattr(point, name, "") for name in ("epilogue", "op", "mode")} & _LEFT_IN_FLOAT32:
            return kinds.InFloat16(point)


def _int8(rng: random.Random) -> Point:
    """Of the usual kinds what Relay's quantizer converts."""
    form = rng.choices(("conv2d", "depthwise", "dense", "elementwise"), (0.5, 0.2, 0.2, 0.1))[0]
    if form == "dense":
        return kinds.Int8Dense(
            1 if rng.random() < 0.4 else sizes.sequence(rng), sizes.features(rng, 32), sizes.features(rng, 10)
        )
    if form == "elementwise":
        return kinds.Int8Elementwise(rng.choice(kinds.INT8_ELEMENTWISE), sizes.activation_shape(rng))
    channels, stride = sizes.channels(rng), rng.choices((1, 2), (0.8, 0.2))[0]
    if form == "depthwise":
        return kinds.Int8Conv2d(channels, sizes.size(rng), channels, rng.choice((3, 5)), stride, groups=channels)
    kernel = rng.choices((1, 3, 5), (0.55, 0.4, 0.05))[0]
    return kinds.Int8Conv2d(channels, sizes.size(rng), sizes.channels(rng), kernel, stride)


WHERE_NAMED: dict[str, tuple[float, Callable[[random.Random], Point]]] = {
    "conv2d_dilated": (0.03, _conv2d_dilated),
    "conv2d_grouped": (0.03, _conv2d_grouped),
    "conv2d_nhwc": (0.05, _conv2d_nhwc),
    "conv3d": (0.02, _conv3d),
    "powers_of_two": (0.05, _powers_of_two),
    "large_weights": (0.02, _large_weights),
    "odd_rows": (0.05, _odd_rows),
    "run_time_weights": (0.03, _run_time_weights),
    "attention": (0.05, _attention),
    "reduction": (0.03, _reduction),
    "decoder_step": (0.04, _decoder_step),
    "transformer": (0.03, _transformer),
    "gates": (0.01, _gates),
    "lrn": (0.01, _lrn),
    "activation": (0.01, _activation),
    "conv2d_wide_groups": (0.01, _conv2d_wide_groups),
    "float16": (0.04, _float16),
    "int8": (0.06, _int8),
    **BETWEEN,
    # Not among all: what a seed of all kinds draws stays, until the points of calibrations are chosen anew.
    "conv1d": (0.0, _conv1d),
}
"""How often each is among all kinds, which the usual ones make up half of; and how it is drawn."""
