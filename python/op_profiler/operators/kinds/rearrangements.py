"""Operators that reorder data or change its layout: heads of attention, windows, blocks of channels, rotary
positions."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import TYPE_CHECKING

from op_profiler.operators.kinds import sizes
from op_profiler.operators.kinds.point import Draw, Point, Scope

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Node

_WINDOWS = (2, 4, 7, 8, 14)


@dataclasses.dataclass(frozen=True)
class Transpose(Point):
    """Permutation of axes."""

    kind = "transpose"
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        """Return ``transpose`` of one input."""
        return scope.relay.transpose(scope.input(*self.shape), axes=self.axes)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: zero operations; input and output move once."""
        return 0.0, 2.0 * math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Concatenate(Point):
    """`parts` tensors of one shape, concatenated along the channels (axis 1)."""

    kind = "concatenate"
    shape: tuple[int, ...]
    parts: int

    def expression(self, scope: Scope) -> Node:
        """Return ``concatenate`` of `parts` inputs."""
        return scope.relay.concatenate([scope.input(*self.shape) for _ in range(self.parts)], axis=1)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: zero operations; all inputs and the output move once."""
        return 0.0, 2.0 * self.parts * math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class GrowingPast(Point):
    """Concatenation of a decoder's cached values of earlier tokens, [heads, past, width], and those of one new token,
    [heads, 1, width]."""

    kind = "growing_past"
    heads: int
    past: int
    width: int

    def expression(self, scope: Scope) -> Node:
        """Return ``concatenate`` of [heads, past, width] and [heads, 1, width] along the tokens."""
        kept, new = scope.input(self.heads, self.past, self.width), scope.input(self.heads, 1, self.width)
        return scope.relay.concatenate([kept, new], axis=1)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: zero operations; both inputs and the output move once."""
        return 0.0, 2.0 * self.heads * (self.past + 1) * self.width


@dataclasses.dataclass(frozen=True)
class Relayout(Point):
    """Change of the number of channels in a block, as between convolutions with different tiles.

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
        """Return ``layout_transform`` of an image, followed by relu if `relu` is set."""
        shape = sizes.blocked(self.channels, self.size, self.before)
        x = scope.relay.layout_transform(
            scope.input(*shape), sizes.layout_name(self.before), sizes.layout_name(self.after)
        )
        return scope.relay.nn.relu(x) if self.relu else x

    def work(self) -> tuple[float, float]:
        """See `Point.work`: zero operations; input and output move once."""
        return 0.0, 2.0 * self.channels * self.size**2


@dataclasses.dataclass(frozen=True)
class Rearranged(Point):
    """A tensor that is split along its axes, transposed, and joined again: heads of attention, windows, shuffled
    channels, and tokens that become an image.

    Attributes:
        parts: shape whose axes are permuted; it has as many elements as `shape` and `result`.
        block: number of channels in the innermost dimension of an image whose channels are in blocks: the input if
            `from_blocked` is set, otherwise the output; 0 if no image is blocked.
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
        """Return a reshape to `parts`, a transposition and a reshape to `result`; `added` and `block` add more ops."""
        relay = scope.relay
        if self.from_blocked:
            _, channels, height, width = self.shape
            x = scope.input(1, channels // self.block, height, width, self.block)
            x = relay.layout_transform(x, sizes.layout_name(self.block), sizes.layout_name(0))
        else:
            x = scope.input(*self.shape)
        x = relay.reshape(relay.transpose(relay.reshape(x, self.parts), self.axes), self.result)
        if self.added:
            x = relay.add(x, scope.input(*self.result))
        if self.block and not self.from_blocked:
            x = relay.layout_transform(x, sizes.layout_name(0), sizes.layout_name(self.block))
        return x

    def work(self) -> tuple[float, float]:
        """See `Point.work`: zero operations; input and output move once, and so does the tensor that is added."""
        return 0.0, (3.0 if self.added else 2.0) * math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class JoinedSlices(Point):
    """The first `kept` channels of each of several tensors of one shape, concatenated along the channels (axis 1)."""

    kind = "joined_slices"
    shape: tuple[int, ...]
    kept: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        """Return ``concatenate`` of the first `kept` channels of each input."""
        relay = scope.relay
        slices = [relay.strided_slice(scope.input(*self.shape), begin=[0], end=[kept], axes=[1]) for kept in self.kept]
        return relay.concatenate(slices, axis=1)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: zero operations; the kept channels are read and written once."""
        return 0.0, 2.0 * sum(self.kept) * math.prod(self.shape) / self.shape[1]


@dataclasses.dataclass(frozen=True)
class LayerScale(Point):
    """Tokens [size * size, channels] that become an image, multiplied by a weight per channel and added to another
    image.

    Attributes:
        blocked: whether the other image has its channels in blocks.
    """

    kind = "layer_scale"
    channels: int
    size: int
    blocked: bool

    def expression(self, scope: Scope) -> Node:
        """Return the reshaped and transposed tokens, multiplied by a weight [channels, 1, 1], plus the other image."""
        relay = scope.relay
        tokens = relay.reshape(scope.input(self.size**2, self.channels), (1, self.size, self.size, self.channels))
        image = relay.multiply(relay.transpose(tokens, (0, 3, 1, 2)), scope.weight(self.channels, 1, 1))
        if not self.blocked:
            return relay.add(image, scope.input(1, self.channels, self.size, self.size))
        block = scope.block(self.channels)
        other = scope.input(1, self.channels // block, self.size, self.size, block)
        return relay.add(relay.layout_transform(image, "NCHW", f"NCHW{block}c"), other)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: two operations per element; both inputs and the output move once."""
        elements = float(self.channels * self.size**2)
        return 2 * elements, 3 * elements


@dataclasses.dataclass(frozen=True)
class TurnedPositions(Point):
    """Rotary embeddings of positions (https://arxiv.org/abs/2104.09864): each pair of values of [1, heads, rows, width]
    is rotated by an angle of its row.

    Attributes:
        pairs: True: a pair is two neighbours, as in RoFormer; False: one value of each half, as in Llama.
        transposed: whether rows are the last axis of the result, as the matrix product that reads the result requires.
    """

    kind = "turned_positions"
    heads: int
    rows: int
    width: int
    pairs: bool
    transposed: bool

    def expression(self, scope: Scope) -> Node:
        """Return x * cosines + turned(x) * sines, without the batch axis; both tables are [1, 1, rows, width]."""
        relay, shape = scope.relay, (1, self.heads, self.rows, self.width)
        x = scope.input(*shape)
        cosines, sines = (scope.weight(1, 1, self.rows, self.width) for _ in range(2))
        if self.pairs:
            odd, even = (
                relay.strided_slice(x, begin=[first], end=[self.width], strides=[2], axes=[3]) for first in (1, 0)
            )
            turned = relay.reshape(relay.stack([relay.negative(odd), even], axis=-1), shape)
        else:
            half = self.width // 2
            first = relay.strided_slice(x, begin=[0], end=[half], axes=[3])
            second = relay.strided_slice(x, begin=[half], end=[self.width], axes=[3])
            turned = relay.concatenate([relay.negative(second), first], axis=3)
        x = relay.add(relay.multiply(x, cosines), relay.multiply(turned, sines))
        if self.transposed:
            return relay.reshape(relay.transpose(x, (0, 1, 3, 2)), (self.heads, self.width, self.rows))
        return relay.reshape(x, (self.heads, self.rows, self.width))

    def work(self) -> tuple[float, float]:
        """See `Point.work`: four operations and three moved values per element."""
        elements = float(self.heads * self.rows * self.width)
        return 4 * elements, 3 * elements


def _heads(rng: random.Random) -> Point:
    rows, heads, width = (
        sizes.rows(rng),
        rng.choice((1, 2, 4, 5, 6, 8, 12, 16)),
        rng.choice((16, 24, 32, 48, 64, 96, 128)),
    )
    added = rng.random() < 0.2
    if rng.random() < 0.3:
        shape, together = (heads, rows, width), (rows, heads * width)
        return Rearranged(shape, shape, (1, 0, 2), together, added=added)
    parts, turned = (rows, heads, width), rng.random() < 0.4
    result = (heads, width, rows) if turned else (heads, rows, width)
    return Rearranged((rows, heads * width), parts, (1, 2, 0) if turned else (1, 0, 2), result, added=added)


def _shuffled(rng: random.Random) -> Point:
    groups, size = rng.choice((2, 2, 3, 4, 8)), sizes.size(rng, 5, 64)
    channels = groups * sizes.log_uniform(rng, 8, 256, 2)
    image, parts = (1, channels, size, size), (1, groups, channels // groups, size, size)
    where = rng.choice(("", "", "from", "to"))
    block = sizes.channel_block(channels) if where else 0
    return Rearranged(image, parts, (0, 2, 1, 3, 4), image, block, from_blocked=where == "from")


def _windows(rng: random.Random) -> Point:
    window, count = rng.choice(_WINDOWS), rng.choice((2, 4, 7, 8, 14))
    channels, size = sizes.channels(rng, 16, 512), window * count
    parts = (count, window, count, window, channels)
    tokens, image = (count * count, window * window, channels), (1, size, size, channels)
    if rng.random() < 0.5:
        return Rearranged(image, parts, (0, 2, 1, 3, 4), tokens, added=rng.random() < 0.3)
    together = (count, count, window, window, channels)
    return Rearranged(tokens, together, (0, 2, 1, 3, 4), image, added=rng.random() < 0.3)


def _tokens(rng: random.Random) -> Point:
    """Draw an image that becomes tokens."""
    channels, size = sizes.channels(rng, 16, 768), sizes.size(rng, 4, 64)
    image, block = (1, channels, size, size), sizes.channel_block(channels) if rng.random() < 0.7 else 0
    flat = (1, channels, size * size)
    added = rng.random() < 0.3
    result = (size * size, channels)
    return Rearranged(image, flat, (0, 2, 1), result, block, from_blocked=block > 0, added=added)


def _image(rng: random.Random) -> Point:
    """Draw tokens that become an image."""
    channels, size = sizes.channels(rng, 16, 768), sizes.size(rng, 4, 64)
    block = sizes.channel_block(channels) if rng.random() < 0.7 else 0
    parts = (1, size * size, channels)
    return Rearranged((size * size, channels), parts, (0, 2, 1), (1, channels, size, size), block)


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
    return Transpose(shape, axes)


def _concatenate(rng: random.Random) -> Point:
    channels, size = sizes.channels(rng, 16, 256), sizes.size(rng)
    block = sizes.channel_block(channels)
    return Concatenate((sizes.batch(rng), channels // block, size, size, block), rng.choice((2, 2, 2, 3, 4)))


def _relayout(rng: random.Random) -> Point:
    channels, size = sizes.channels(rng, 8, 1024), sizes.size(rng, 4, 112)
    before, after = sizes.block_of(rng, channels), sizes.block_of(rng, channels)
    plain = rng.random()
    before, after = (0 if plain < 0.15 else before), (0 if plain > 0.85 else after)
    return Relayout(channels, size, before, after, relu=before == after or rng.random() < 0.15)


def _joined_slices(rng: random.Random) -> Point:
    channels, size = sizes.channels(rng, 32, 512), sizes.size(rng, 5, 64)
    block = sizes.channel_block(channels)
    shape = sizes.blocked(channels, size, block)
    most = max(shape[1], 1)
    return JoinedSlices(shape, tuple(rng.randint(1, most) for _ in range(rng.choice((2, 2, 3, 4)))))


def _turned_heads(rng: random.Random) -> Point:
    """Draw keys of attention, whose rows are last, or queries, with widths as in networks."""
    heads, width = rng.choice((1, 2, 3, 4, 5, 6, 8, 12, 16, 20, 24, 32)), rng.choice((32, 64, 64, 64, 80, 96, 128))
    rows = sizes.rows(rng)
    turned = rng.random() < 0.7
    result = (heads, width, rows) if turned else (heads, rows, width)
    return Rearranged((rows, heads * width), (1, rows, heads, width), (0, 2, 3, 1) if turned else (0, 2, 1, 3), result)


def _turned_positions(rng: random.Random) -> Point:
    heads, width = rng.choice((1, 2, 4, 8, 12, 16, 32)), rng.choice((32, 64, 64, 96, 128))
    return TurnedPositions(heads, sizes.rows(rng), width, rng.random() < 0.4, rng.random() < 0.5)


DRAWS: dict[str, Draw] = {
    "transpose": _transpose,
    "concatenate": _concatenate,
    "relayout": _relayout,
    "rearranged": lambda rng: rng.choice((_heads, _heads, _shuffled, _windows, _tokens, _image))(rng),
    "joined_slices": _joined_slices,
    "turned_heads": _turned_heads,
    "layer_scale": lambda rng: LayerScale(sizes.channels(rng, 32, 1024), sizes.size(rng, 7, 64), rng.random() < 0.5),
    "turned_positions": _turned_positions,
}
