"""Softmax, norms and reductions."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import TYPE_CHECKING

from op_profiler.operators.kinds import sizes
from op_profiler.operators.kinds.point import Draw, Point, Scope

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Node

REDUCTIONS = ("sum", "max", "mean")
NORMS = ("group", "channels_last")


@dataclasses.dataclass(frozen=True)
class Softmax(Point):
    """Softmax over the last axis of [outer, rows, columns]."""

    kind = "softmax"
    described = True
    outer: int
    rows: int
    columns: int

    def expression(self, scope: Scope) -> Node:
        """Return ``nn.softmax`` over the last axis of one input."""
        return scope.relay.nn.softmax(scope.input(self.outer, self.rows, self.columns), axis=-1)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: five operations per element; input and output move once."""
        elements = float(self.outer * self.rows * self.columns)
        return 5 * elements, 2 * elements


@dataclasses.dataclass(frozen=True)
class LayerNorm(Point):
    """Layer norm over the last axis of [1, rows, columns]; it becomes several operators."""

    kind = "layer_norm"
    rows: int
    columns: int

    def expression(self, scope: Scope) -> Node:
        """Return ``nn.layer_norm`` with a scale and a shift per column as weights, and epsilon 1e-5."""
        x = scope.input(1, self.rows, self.columns)
        return scope.relay.nn.layer_norm(x, scope.weight(self.columns), scope.weight(self.columns), epsilon=1e-5)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: eight operations and four moved values per element."""
        elements = float(self.rows * self.columns)
        return 8 * elements, 4 * elements


@dataclasses.dataclass(frozen=True)
class ImageNorm(Point):
    """Norm of an image [1, channels, size, size] over groups of channels, or of [1, size, size, channels] over its
    channels, followed by a transposition to channels first, as in ConvNeXt.

    Attributes:
        norm: one of `NORMS`.
        groups: number of groups, which divides the number of channels; 1 for ``channels_last``.
    """

    kind = "image_norm"
    norm: str
    channels: int
    size: int
    groups: int = 1

    def expression(self, scope: Scope) -> Node:
        """Return ``nn.group_norm``; or ``nn.layer_norm`` with channels last, transposed to channels first."""
        relay, scale, shift = scope.relay, scope.weight(self.channels), scope.weight(self.channels)
        if self.norm == "group":
            x = scope.input(1, self.channels, self.size, self.size)
            return relay.nn.group_norm(x, scale, shift, self.groups, axis=1, epsilon=1e-5)
        x = scope.input(1, self.size, self.size, self.channels)
        return relay.transpose(relay.nn.layer_norm(x, scale, shift, epsilon=1e-6), (0, 3, 1, 2))

    def work(self) -> tuple[float, float]:
        """See `Point.work`: eight operations and four moved values per element."""
        elements = float(self.channels * self.size**2)
        return 8 * elements, 4 * elements


@dataclasses.dataclass(frozen=True)
class LocalResponseNorm(Point):
    """Local response norm of [1, channels, size, size]: each value is divided by a power of a sum over the squares in
    the `window` channels around it."""

    kind = "lrn"
    channels: int
    size: int
    window: int

    def expression(self, scope: Scope) -> Node:
        """Return ``nn.lrn`` over the channels with bias 1, alpha 1e-4 and beta 0.75."""
        x = scope.input(1, self.channels, self.size, self.size)
        return scope.relay.nn.lrn(x, size=self.window, axis=1, bias=1.0, alpha=1e-4, beta=0.75)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: per element, one operation for each value of the window plus twenty for the power, and four
        moved values."""
        elements = float(self.channels * self.size**2)
        return elements * (self.window + 20), 4 * elements  # the power takes as long as twenty operations


@dataclasses.dataclass(frozen=True)
class Mean(Point):
    """Mean over the last axis of [rows, columns]."""

    kind = "mean"
    rows: int
    columns: int

    def expression(self, scope: Scope) -> Node:
        """Return ``mean`` over the last axis of [1, rows, columns]; the result has shape [1, rows, 1]."""
        return scope.relay.mean(scope.input(1, self.rows, self.columns), axis=-1, keepdims=True)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: one operation and one moved value per element of the input."""
        return float(self.rows * self.columns), float(self.rows * self.columns)


@dataclasses.dataclass(frozen=True)
class Reduction(Point):
    """One of `REDUCTIONS` over the axes `axes` of a tensor; in the result, these axes have length 1."""

    kind = "reduction"
    op: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        """Return `op` over `axes` of one input of `shape`."""
        return getattr(scope.relay, self.op)(scope.input(*self.shape), axis=list(self.axes), keepdims=True)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: one operation and one moved value per element of the input."""
        elements = float(math.prod(self.shape))
        return elements, elements


def _softmax(rng: random.Random) -> Point:
    if rng.random() < 0.25:
        return Softmax(1, sizes.batch(rng), sizes.log_uniform(rng, 10, 50000))
    sequence = sizes.sequence(rng)
    return Softmax(rng.choice((1, 2, 3, 4, 6, 8, 12, 16)), sequence, sequence)


def _image_norm(rng: random.Random) -> Point:
    channels, size = sizes.channels(rng, 32, 1024), sizes.size(rng, 7, 64)
    norm = rng.choice(NORMS)
    groups = rng.choice([n for n in (1, 1, 8, 16, 32) if channels % n == 0]) if norm == "group" else 1
    return ImageNorm(norm, channels, size, groups)


def _lrn(rng: random.Random) -> Point:
    return LocalResponseNorm(sizes.channels(rng, 16, 256), sizes.size(rng, 6, 64), rng.choice((3, 5, 5, 9)))


def _reduction(rng: random.Random) -> Point:
    """Draw a reduction over rows, columns, both, or channels, of sequences and of images in any layout."""
    channels, size = sizes.channels(rng, 16, 1024), sizes.size(rng, 5, 112)
    block, rows = sizes.channel_block(channels), sizes.log_uniform(rng, 1, 512)
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
    return Reduction(rng.choice(REDUCTIONS), shape, axes)


DRAWS: dict[str, Draw] = {
    "softmax": _softmax,
    "layer_norm": lambda rng: LayerNorm(sizes.sequence(rng), sizes.log_uniform(rng, 64, 2048, 32)),
    "image_norm": _image_norm,
    "lrn": _lrn,
    "mean": lambda rng: Mean(sizes.sequence(rng), sizes.log_uniform(rng, 64, 2048, 32)),
    "reduction": _reduction,
}
