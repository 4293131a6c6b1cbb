"""What transformers of images and of text have around their products: norms, scales of layers, turned positions."""

from __future__ import annotations

import dataclasses

from op_profiler.collection.sampling.kinds.around import channel_block
from op_profiler.collection.sampling.point import Point, Scope
from op_profiler.compilers.tvm_types import Node

NORMS = ("group", "channels_last")


@dataclasses.dataclass(frozen=True)
class ImageNorm(Point):
    """Of an image [1, channels, size, size] in groups of channels, or of [1, size, size, channels] over its channels,
    which come before the image then, as in ConvNeXt.

    Attributes:
        norm: one of `NORMS`.
        groups: of channels, whose number they divide; 1 for ``channels_last``.
    """

    kind = "image_norm"
    norm: str
    channels: int
    size: int
    groups: int = 1

    def expression(self, scope: Scope) -> Node:
        relay, scale, shift = scope.relay, scope.weight(self.channels), scope.weight(self.channels)
        if self.norm == "group":
            x = scope.input(1, self.channels, self.size, self.size)
            return relay.nn.group_norm(x, scale, shift, self.groups, axis=1, epsilon=1e-5)
        x = scope.input(1, self.size, self.size, self.channels)
        return relay.transpose(relay.nn.layer_norm(x, scale, shift, epsilon=1e-6), (0, 3, 1, 2))

    def work(self) -> tuple[float, float]:
        elements = float(self.channels * self.size**2)
        return 8 * elements, 4 * elements


@dataclasses.dataclass(frozen=True)
class LayerScale(Point):
    """Tokens [size * size, channels] become an image, times a weight a channel, added to another image.

    Attributes:
        blocked: whether that image has its channels in blocks.
    """

    kind = "layer_scale"
    channels: int
    size: int
    blocked: bool

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        tokens = relay.reshape(scope.input(self.size**2, self.channels), (1, self.size, self.size, self.channels))
        image = relay.multiply(relay.transpose(tokens, (0, 3, 1, 2)), scope.weight(self.channels, 1, 1))
        if not self.blocked:
            return relay.add(image, scope.input(1, self.channels, self.size, self.size))
        block = channel_block(self.channels)
        other = scope.input(1, self.channels // block, self.size, self.size, block)
        return relay.add(relay.layout_transform(image, "NCHW", f"NCHW{block}c"), other)

    def work(self) -> tuple[float, float]:
        elements = float(self.channels * self.size**2)
        return 2 * elements, 3 * elements


@dataclasses.dataclass(frozen=True)
class TurnedPositions(Point):
    """Rotary embeddings of positions (https://arxiv.org/abs/2104.09864): each pair of values of [1, heads, rows, width]
    turns by an angle of its row.

    Attributes:
        pairs: whether a pair is two neighbours, as in RoFormer, and not one value of each half, as in Llama.
        transposed: whether rows come last then, as a product with them wants it.
    """

    kind = "turned_positions"
    heads: int
    rows: int
    width: int
    pairs: bool
    transposed: bool

    def expression(self, scope: Scope) -> Node:
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
        elements = float(self.heads * self.rows * self.width)
        return 4 * elements, 3 * elements
