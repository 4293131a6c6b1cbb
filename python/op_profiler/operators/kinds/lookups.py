"""Operators that read computed positions of their input: resizing of images, and look-ups of rows."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import TYPE_CHECKING

from op_profiler.operators.kinds import sizes
from op_profiler.operators.kinds.point import Draw, Point, Scope

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Node

METHODS = ("nearest_neighbor", "linear", "cubic")
COORDINATES = ("half_pixel", "align_corners", "asymmetric")
ROUNDINGS = ("round", "floor", "")
_SCALES = (0.5, 2.0, 2.0, 3.0, 1.7)
_TAPS = {"nearest_neighbor": 1, "linear": 2, "cubic": 4}


@dataclasses.dataclass(frozen=True)
class Resize(Point):
    """Resize of images to the size `result`: [batch, channels, size, size], or [batch, channels, size] if `axes` is 1.

    Attributes:
        method: one of `METHODS`; `coordinates`: one of `COORDINATES`; `rounding`: one of `ROUNDINGS`.
    """

    kind = "resize"
    batch: int
    channels: int
    size: int
    result: int
    method: str
    coordinates: str
    rounding: str = ""
    axes: int = 2

    def expression(self, scope: Scope) -> Node:
        """Return the resized images."""
        image = scope.relay.image
        resize, layout = (image.resize1d, "NCW") if self.axes == 1 else (image.resize2d, "NCHW")
        return resize(
            scope.input(self.batch, self.channels, *[self.size] * self.axes),
            size=[self.result] * self.axes,
            roi=[0.0] * 2 * self.axes,
            layout=layout,
            method=self.method,
            coordinate_transformation_mode=self.coordinates,
            rounding_method=self.rounding,
            cubic_alpha=-0.75,
        )

    def work(self) -> tuple[float, float]:
        """See `Point.work`: ten operations per element that is read for a result; input and output move once."""
        images = float(self.batch * self.channels)
        results = images * self.result**self.axes
        taps: float = _TAPS[self.method] ** self.axes
        return 10.0 * results * taps, results + images * self.size**self.axes


@dataclasses.dataclass(frozen=True)
class Gather(Point):
    """Look-up of `count` entries along an axis of [batch, rows, columns] by their positions.

    Attributes:
        each: True: each element of the result has a separate position (``gather``); False: each of the `count`
            positions selects a whole slice (``take``).
    """

    kind = "gather"
    shape: tuple[int, int, int]
    axis: int
    count: int
    each: bool = False

    def expression(self, scope: Scope) -> Node:
        """Return the entries of the tensor at positions of type int64."""
        relay, data = scope.relay, scope.input(*self.shape)
        if self.each:
            return relay.gather(data, self.axis, scope.input(*self._result, dtype="int64"))
        return relay.take(data, scope.input(self.count, dtype="int64"), axis=self.axis, mode="clip")

    @property
    def _result(self) -> tuple[int, ...]:
        return tuple(self.count if at == self.axis else size for at, size in enumerate(self.shape))

    def work(self) -> tuple[float, float]:
        """See `Point.work`: zero operations; each result is read once and written once; with `each`, its int64 position
        counts as two more moved elements."""
        results = float(math.prod(self._result))
        return 0.0, results * (4.0 if self.each else 2.0)


def _resize(rng: random.Random) -> Point:
    batch, channels, axes = rng.choice((1, 8, 32)), sizes.log_uniform(rng, 1, 256), 1 if rng.random() < 0.15 else 2
    size = sizes.log_uniform(rng, 4, 160) if axes == 2 else sizes.log_uniform(rng, 16, 8192)
    result = max(round(size * rng.choice(_SCALES)), 1)
    method = rng.choice(METHODS)
    rounding = rng.choice(ROUNDINGS[:2]) if method == "nearest_neighbor" else ""
    return Resize(batch, channels, size, result, method, rng.choice(COORDINATES), rounding, axes)


def _gather(rng: random.Random) -> Point:
    columns = rng.choice((1, 2, 3, 8, 16, 64, 77, 197, 768)) if rng.random() < 0.7 else sizes.log_uniform(rng, 1, 4096)
    shape = (rng.choice((1, 8, 32)), sizes.log_uniform(rng, 2, 4096), columns)
    axis = rng.randrange(3)
    each = rng.random() < 0.3
    count = min(sizes.log_uniform(rng, 1, 1024), shape[axis]) if each else sizes.log_uniform(rng, 1, 1024)
    return Gather(shape, axis, count, each)


DRAWS: dict[str, Draw] = {"resize": _resize, "gather": _gather}
