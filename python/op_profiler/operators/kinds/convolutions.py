"""Convolutions: over series, images and videos, dilated, transposed, in groups, with channels first or last."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

from op_profiler.operators.kinds import sizes
from op_profiler.operators.kinds.convolution import Convolution
from op_profiler.operators.kinds.point import EPILOGUES, Draw, Point, Scope, epilogue, requantized

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Node


class Convolving(Point):
    """Base class of convolutions to sample. The padding keeps the sizes at stride 1; the ops of the field `epilogue`
    are fused after the convolution."""

    in_channels: int
    out_channels: int
    kernel: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the input, one per axis: the field `length`, or the field `size` twice."""
        length: int | None = getattr(self, "length", None)
        return (getattr(self, "size", 0),) * 2 if length is None else (length,)

    @property
    def convolution(self) -> Convolution:
        """The convolution with all sizes; batch, stride, dilation and groups are 1 if the class has no such field."""
        batch, stride, dilation, groups = (getattr(self, name, 1) for name in ("batch", "stride", "dilation", "groups"))
        axes = len(self.sizes)
        return Convolution(
            batch=batch,
            in_channels=self.in_channels,
            sizes=self.sizes,
            out_channels=self.out_channels,
            kernel=(self.kernel,) * axes,
            stride=(stride,) * axes,
            padding=((dilation * (self.kernel - 1) + 1) // 2,) * 2 * axes,
            dilation=(dilation,) * axes,
            groups=groups,
        )

    def expression(self, scope: Scope) -> Node:
        """Return the convolution, and the ops of the field `epilogue` after it."""
        conv, name = self.convolution, getattr(self, "epilogue", "none")
        return epilogue(scope, conv.expression(scope), conv.out_shape, name, channels_last=conv.channels_last)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: the work of the convolution; the epilogue adds none."""
        return self.convolution.work()


@dataclasses.dataclass(frozen=True)
class Conv2d(Convolving):
    """Convolution over [batch, in_channels, height, width]; depthwise if groups = in_channels = out_channels."""

    kind = "conv2d"
    described = True
    choices = {"epilogue": EPILOGUES}
    batch: int
    in_channels: int
    height: int
    width: int
    out_channels: int
    kernel: int
    stride: int
    groups: int = 1
    epilogue: str = "none"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Height and width of the input."""
        return self.height, self.width

    def problem(self) -> str | None:
        """Return an error message if the groups do not divide the channels; otherwise None."""
        if self.in_channels % self.groups == self.out_channels % self.groups == 0:
            return None
        return f"groups {self.groups} do not divide in_channels {self.in_channels} and out_channels {self.out_channels}"


@dataclasses.dataclass(frozen=True)
class Conv2dDilated(Convolving):
    """Dilated convolution: it reads every `dilation`-th row and column. The output has the size of the input."""

    kind = "conv2d_dilated"
    in_channels: int
    size: int
    out_channels: int
    dilation: int
    kernel: int = 3
    epilogue: str = "none"


@dataclasses.dataclass(frozen=True)
class Conv1d(Convolving):
    """Convolution over [1, in_channels, length], as for speech and series."""

    kind = "conv1d"
    in_channels: int
    length: int
    out_channels: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    epilogue: str = "none"


@dataclasses.dataclass(frozen=True)
class Conv3d(Convolving):
    """Convolution over [1, in_channels, depth, size, size], as in video networks."""

    kind = "conv3d"
    in_channels: int
    depth: int
    size: int
    out_channels: int
    kernel: int
    stride: int
    epilogue: str = "none"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Depth, height and width of the input."""
        return self.depth, self.size, self.size


@dataclasses.dataclass(frozen=True)
class Conv2dTranspose(Convolving):
    """Transposed convolution with stride 2, which doubles height and width."""

    kind = "conv2d_transpose"
    in_channels: int
    size: int
    out_channels: int
    kernel: int = 4

    @property
    def convolution(self) -> Convolution:
        """The convolution, with stride 2 and a padding with which an even kernel doubles the size of the input."""
        padding = (self.kernel // 2 - 1,) * 4
        return dataclasses.replace(super().convolution, stride=(2, 2), padding=padding, transposed=True)

    def expression(self, scope: Scope) -> Node:
        """Return the transposed convolution, followed by relu."""
        return scope.relay.nn.relu(self.convolution.expression(scope))


@dataclasses.dataclass(frozen=True)
class Conv2dNHWC(Convolving):
    """Convolution over [1, size, size, in_channels], as in TensorFlow and TFLite.

    TVM does not change these layouts on processors, so convolutions in them have separate schedules. If `depthwise` is
    set, the convolution is depthwise, with as many output as input channels.
    """

    kind = "conv2d_nhwc"
    size: int
    in_channels: int
    out_channels: int
    kernel: int
    stride: int
    depthwise: bool = False
    epilogue: str = "none"

    @property
    def convolution(self) -> Convolution:
        """The convolution with channels last, and with as many groups as channels if `depthwise` is set."""
        groups = self.in_channels if self.depthwise else 1
        return dataclasses.replace(super().convolution, groups=groups, channels_last=True)


@dataclasses.dataclass(frozen=True)
class Int8Conv2d(Convolving):
    """Convolution of int8 with sums in int32, a bias, relu, and conversion to int8."""

    kind = "conv2d_int8"
    precision = "int8"
    in_channels: int
    size: int
    out_channels: int
    kernel: int
    stride: int
    groups: int = 1

    def expression(self, scope: Scope) -> Node:
        """Return the convolution with int32 sums, plus an int32 bias [out_channels, 1, 1], requantized to int8."""
        sums = self.convolution.expression(scope.in_dtype("int8", "int32"))
        return requantized(scope, scope.relay.add(sums, scope.weight(self.out_channels, 1, 1, dtype="int32")))


def _conv2d(rng: random.Random) -> Point:
    size = sizes.size(rng)
    stem = rng.random() < 0.04
    kernel = rng.choices((1, 3, 5, 7), (0.5, 0.4, 0.06, 0.04))[0]
    return Conv2d(
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
    return Conv2d(
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
    return Conv2dTranspose(channels, sizes.log_uniform(rng, 4, 64), out, rng.choice((2, 4, 4)))


def _conv2d_dilated(rng: random.Random) -> Point:
    return Conv2dDilated(
        in_channels=sizes.channels(rng, 16, 512),
        size=sizes.size(rng),
        out_channels=sizes.channels(rng, 16, 512),
        dilation=rng.choices((2, 4, 6, 12, 18), (4, 2, 1, 1, 1))[0],
        kernel=rng.choices((3, 5), (0.9, 0.1))[0],
        epilogue=rng.choice(("none", "bias", "bias_relu")),
    )


def _conv2d_grouped(rng: random.Random) -> Point:
    """Draw a convolution in groups of several channels, which TVM does not block, as in ResNeXt and ShuffleNet."""
    groups, size = rng.choice((2, 3, 4, 8, 32)), sizes.size(rng, 5, 64)
    return Conv2d(
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
    """Draw a convolution with more channels per group, of images (ShuffleNet) or of a row of tokens (SqueezeBERT)."""
    groups, size = rng.choice((2, 3, 4, 4, 8)), sizes.size(rng, 5, 64)
    sequence = rng.random() < 0.3
    channels = [groups * sizes.log_uniform(rng, 16, 768 if sequence else 256, 2) for _ in range(2)]
    return Conv2d(
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


def _conv2d_nhwc(rng: random.Random) -> Point:
    channels, depthwise = sizes.channels(rng, 8, 512), rng.random() < 0.4
    return Conv2dNHWC(
        size=sizes.size(rng, 5, 112),
        in_channels=3 if not depthwise and rng.random() < 0.1 else channels,
        out_channels=channels if depthwise else sizes.channels(rng, 8, 512),
        kernel=rng.choices((1, 3, 5), (0.1 if depthwise else 0.5, 0.4, 0.1))[0],
        stride=rng.choices((1, 2), (0.8, 0.2))[0],
        depthwise=depthwise,
        epilogue=rng.choice(("none", "bias", "bias_relu", "bias_relu6")),
    )


def _conv1d(rng: random.Random) -> Point:
    """Draw a layer of temporal and speech networks: dilated, with strides, or with one filter per channel."""
    channels, form = sizes.channels(rng, 8, 768), rng.choices(("plain", "dilated", "strided", "apart"), (4, 3, 2, 2))[0]
    return Conv1d(
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
    return Conv3d(
        in_channels=3 if rng.random() < 0.1 else sizes.channels(rng, 8, 256),
        depth=rng.choice((4, 8, 16, 32)) if rng.random() < 0.75 else sizes.log_uniform(rng, 2, 48),
        size=sizes.size(rng, 5, 112),
        out_channels=sizes.channels(rng, 8, 256),
        kernel=rng.choices((1, 3), (0.3, 0.7))[0],
        stride=rng.choices((1, 2), (0.8, 0.2))[0],
        epilogue=rng.choice(("none", "bias", "bias_relu")),
    )


DRAWS: dict[str, Draw] = {
    "conv2d": _conv2d,
    "depthwise": _depthwise,
    "conv2d_transpose": _conv2d_transpose,
    "conv2d_dilated": _conv2d_dilated,
    "conv2d_grouped": _conv2d_grouped,
    "conv2d_wide_groups": _conv2d_wide_groups,
    "conv2d_nhwc": _conv2d_nhwc,
    "conv1d": _conv1d,
    "conv3d": _conv3d,
}
