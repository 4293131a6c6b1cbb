"""Random points of what stands between the heavy operators of real networks, drawn where they are named."""

from __future__ import annotations

import random
from collections.abc import Callable

from op_profiler.collection.sampling import kinds, sizes
from op_profiler.collection.sampling.point import Point

_WINDOWS = (2, 4, 7, 8, 14)
_TABLES = (16, 49, 64, 96, 196, 197, 256)
"""Rows and columns of what attention adds to its scores; most are no multiple of a vector."""


def _block_of(rng: random.Random, channels: int) -> int:
    """The largest block mostly, which TVM takes where nothing else is known; else another."""
    if rng.random() < 0.4:
        return kinds.channel_block(channels)
    return rng.choice([block for block in range(2, 33) if channels % block == 0] or [1])


def _relayout(rng: random.Random) -> Point:
    channels, size = sizes.channels(rng, 8, 1024), sizes.size(rng, 4, 112)
    before, after = _block_of(rng, channels), _block_of(rng, channels)
    plain = rng.random()
    before, after = (0 if plain < 0.15 else before), (0 if plain > 0.85 else after)
    return kinds.Relayout(channels, size, before, after, relu=before == after or rng.random() < 0.15)


def _rearranged(rng: random.Random) -> Point:
    return rng.choice((_heads, _heads, _shuffled, _windows, _tokens, _image))(rng)


def _heads(rng: random.Random) -> Point:
    rows, heads, width = _rows(rng), rng.choice((1, 2, 4, 5, 6, 8, 12, 16)), rng.choice((16, 24, 32, 48, 64, 96, 128))
    added = rng.random() < 0.2
    if rng.random() < 0.3:
        shape, together = (heads, rows, width), (rows, heads * width)
        return kinds.Rearranged(shape, shape, (1, 0, 2), together, added=added)
    parts, turned = (rows, heads, width), rng.random() < 0.4
    result = (heads, width, rows) if turned else (heads, rows, width)
    return kinds.Rearranged((rows, heads * width), parts, (1, 2, 0) if turned else (1, 0, 2), result, added=added)


def _shuffled(rng: random.Random) -> Point:
    groups, size = rng.choice((2, 2, 3, 4, 8)), sizes.size(rng, 5, 64)
    channels = groups * sizes.log_uniform(rng, 8, 256, 2)
    image, parts = (1, channels, size, size), (1, groups, channels // groups, size, size)
    where = rng.choice(("", "", "from", "to"))
    block = kinds.channel_block(channels) if where else 0
    return kinds.Rearranged(image, parts, (0, 2, 1, 3, 4), image, block, from_blocked=where == "from")


def _windows(rng: random.Random) -> Point:
    window, count = rng.choice(_WINDOWS), rng.choice((2, 4, 7, 8, 14))
    channels, size = sizes.channels(rng, 16, 512), window * count
    parts = (count, window, count, window, channels)
    tokens, image = (count * count, window * window, channels), (1, size, size, channels)
    if rng.random() < 0.5:
        return kinds.Rearranged(image, parts, (0, 2, 1, 3, 4), tokens, added=rng.random() < 0.3)
    together = (count, count, window, window, channels)
    return kinds.Rearranged(tokens, together, (0, 2, 1, 3, 4), image, added=rng.random() < 0.3)


def _tokens(rng: random.Random) -> Point:
    """An image becomes tokens."""
    channels, size = sizes.channels(rng, 16, 768), sizes.size(rng, 4, 64)
    image, block = (1, channels, size, size), kinds.channel_block(channels) if rng.random() < 0.7 else 0
    flat = (1, channels, size * size)
    added = rng.random() < 0.3
    result = (size * size, channels)
    return kinds.Rearranged(image, flat, (0, 2, 1), result, block, from_blocked=block > 0, added=added)


def _image(rng: random.Random) -> Point:
    """Tokens become an image."""
    channels, size = sizes.channels(rng, 16, 768), sizes.size(rng, 4, 64)
    block = kinds.channel_block(channels) if rng.random() < 0.7 else 0
    parts = (1, size * size, channels)
    return kinds.Rearranged((size * size, channels), parts, (0, 2, 1), (1, channels, size, size), block)


def _rows(rng: random.Random) -> int:
    return rng.choice((49, 77, 196, 197, 257)) if rng.random() < 0.3 else sizes.sequence(rng)


def _broadcast(rng: random.Random) -> Point:
    """Over images with blocked channels or plain ones, over sequences, and over scores of attention."""
    op = rng.choice(kinds.BROADCASTS)
    form = rng.choice(("image", "image", "sequence", "scores"))
    if op.endswith("table") or (form == "scores" and op in ("divide", "sum")):
        rows = rng.choice(_TABLES) if rng.random() < 0.6 else sizes.log_uniform(rng, 4, 512)
        columns = rows if rng.random() < 0.6 else rng.choice(_TABLES)
        heads = rng.choice((1, 2, 4, 5, 8, 12, 16))
        return kinds.Broadcast(op, (heads, rows, columns), (1, 1, 1))
    if form == "image":
        channels, size = sizes.channels(rng, 8, 1024), sizes.size(rng, 4, 112)
        block = _block_of(rng, channels) if rng.random() < 0.7 else 0
        shape = kinds.blocked(channels, size, block)
        return kinds.Broadcast(op, shape, (*shape[:2], 1, 1, *shape[4:]))
    shape = (1, _rows(rng), sizes.log_uniform(rng, 32, 3072, 32))
    return kinds.Broadcast(op, shape, (1, 1, shape[2]))


def _joined_slices(rng: random.Random) -> Point:
    channels, size = sizes.channels(rng, 32, 512), sizes.size(rng, 5, 64)
    block = kinds.channel_block(channels)
    shape = kinds.blocked(channels, size, block)
    most = max(shape[1], 1)
    return kinds.JoinedSlices(shape, tuple(rng.randint(1, most) for _ in range(rng.choice((2, 2, 3, 4)))))


def _unpadded_pool2d(rng: random.Random) -> Point:
    channels, size = sizes.channels(rng, 16, 1024), max(sizes.size(rng, 6, 150), 4)
    block = _block_of(rng, channels) if rng.random() < 0.7 else 0
    window, stride = rng.choice(((2, 2), (2, 2), (3, 2), (3, 2), (3, 1), (2, 1)))
    return kinds.UnpaddedPool2d(channels, size, window, stride, rng.choice(("max", "max", "avg")), block)


def _attention_einsum(rng: random.Random) -> Point:
    """Over a whole image, or over windows of it; keys may be of an image of a quarter of the size."""
    windows = rng.choice((1, 1, 1, 4, 16, 64))
    rows = rng.choice(_WINDOWS) ** 2 if windows > 1 else _rows(rng)
    keys = rows if windows > 1 or rng.random() < 0.5 else max(rows // 4, 1) + rng.choice((0, 0, 1))
    heads, width = rng.choice((1, 2, 3, 4, 6, 8, 12, 16)), rng.choice((24, 32, 32, 48, 64, 64, 96))
    return kinds.AttentionEinsum(windows, rows, keys, heads, width, rng.random() < 0.5)


def _strided_weights(rng: random.Random) -> Point:
    """Weights that are put in another order while the model runs, whose rows are about a power of two apart."""
    columns = sizes.near_power_of_two(rng, 128, 4096)
    if rng.random() < 0.4:
        inputs, size = sizes.near_power_of_two(rng, 64, 1024), rng.choice((2, 4, 4, 7, 8, 8, 14, 16))
        return kinds.Conv2dTranspose(inputs, size, sizes.near_power_of_two(rng, 32, 512))
    rows = sizes.log_uniform(rng, 64, 4096, 4) if rng.random() < 0.7 else 1000
    if rng.random() < 0.5:
        block = rng.choice([block for block in range(4, 33) if rows % block == 0])
        return kinds.Repacking(rows, columns, block)
    return kinds.DenseOfActivations(rng.choice((1, 1, 1, 2, 4, 16)), columns, rows)


def _turned_heads(rng: random.Random) -> Point:
    """Keys of attention, whose rows come last, and queries: of layers as wide as they are in networks."""
    heads, width = rng.choice((1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 24, 32)), rng.choice((32, 64, 64, 64, 80, 96, 128))
    rows = _rows(rng)
    turned = rng.random() < 0.7
    result = (heads, width, rows) if turned else (heads, rows, width)
    return kinds.Rearranged(
        (rows, heads * width), (1, rows, heads, width), (0, 2, 3, 1) if turned else (0, 2, 1, 3), result
    )


def _image_norm(rng: random.Random) -> Point:
    channels, size = sizes.channels(rng, 32, 1024), sizes.size(rng, 7, 64)
    norm = rng.choice(kinds.NORMS)
    groups = rng.choice([n for n in (1, 1, 8, 16, 32) if channels % n == 0]) if norm == "group" else 1
    return kinds.ImageNorm(norm, channels, size, groups)


def _layer_scale(rng: random.Random) -> Point:
    return kinds.LayerScale(sizes.channels(rng, 32, 1024), sizes.size(rng, 7, 64), rng.random() < 0.5)


def _turned_positions(rng: random.Random) -> Point:
    heads, width = rng.choice((1, 2, 4, 8, 12, 16, 32)), rng.choice((32, 64, 64, 96, 128))
    return kinds.TurnedPositions(heads, _rows(rng), width, rng.random() < 0.4, rng.random() < 0.5)


def _reduced_attention(rng: random.Random) -> Point:
    """Each place of an image with a few rows, which the image is reduced to before, as in SegFormer and PVT."""
    size, times = rng.choice((14, 16, 28, 28, 32, 56, 56, 64)), rng.choice((1, 2, 4, 7, 8))
    rows, keys, width = size**2, max(size // times, 4) ** 2 + rng.choice((0, 0, 1)), rng.choice((16, 24, 32, 40, 64))
    columns, inner = (width, keys) if rng.random() < 0.5 else (keys, width)
    return kinds.BatchMatmul(rng.choice((1, 1, 2, 3, 4, 5, 8)), rows, columns, inner, transposed=False)


def _gated_dense(rng: random.Random) -> Point:
    inputs = sizes.near_power_of_two(rng, 128, 2048) if rng.random() < 0.3 else sizes.log_uniform(rng, 96, 2048, 8)
    return kinds.GatedDense(inputs, rng.choice((1000, 1000, 1001)) if rng.random() < 0.4 else sizes.features(rng, 32))


BETWEEN: dict[str, tuple[float, Callable[[random.Random], Point]]] = {
    "relayout": (0.01, _relayout),
    "rearranged": (0.015, _rearranged),
    "broadcast": (0.02, _broadcast),
    "joined_slices": (0.005, _joined_slices),
    "unpadded_pool2d": (0.01, _unpadded_pool2d),
    "attention_einsum": (0.005, _attention_einsum),
    "strided_weights": (0.005, _strided_weights),
    "turned_heads": (0.005, _turned_heads),
    "image_norm": (0.005, _image_norm),
    "layer_scale": (0.005, _layer_scale),
    "turned_positions": (0.005, _turned_positions),
    "reduced_attention": (0.005, _reduced_attention),
    "gated_dense": (0.005, _gated_dense),
}
"""How often each is among all kinds, and how it is drawn."""
