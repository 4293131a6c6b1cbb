"""Convolutions: over series, images and videos, dilated, transposed, in groups, with channels first or last."""

from __future__ import annotations

import dataclasses
import math

from op_profiler.collection.sampling.point import Point, Scope, epilogue
from op_profiler.compilers.tvm_types import Node


@dataclasses.dataclass(frozen=True)
class Conv2d(Point):
    """Convolution with padding that keeps the size at stride 1; depthwise where groups = in_channels = out_channels."""

    kind = "conv2d"
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
    def out_size(self) -> tuple[int, int]:
        padding = 2 * (self.kernel // 2) - self.kernel
        return (self.height + padding) // self.stride + 1, (self.width + padding) // self.stride + 1

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        x = relay.nn.conv2d(
            scope.input(self.batch, self.in_channels, self.height, self.width),
            scope.weight(self.out_channels, self.in_channels // self.groups, self.kernel, self.kernel),
            strides=(self.stride, self.stride),
            padding=(self.kernel // 2, self.kernel // 2),
            groups=self.groups,
            channels=self.out_channels,
            kernel_size=(self.kernel, self.kernel),
            out_dtype=scope.out_dtype,
        )
        return epilogue(scope, x, (self.batch, self.out_channels, *self.out_size), self.epilogue, self.out_channels)

    def work(self) -> tuple[float, float]:
        rows, columns = self.out_size
        out = float(self.batch * self.out_channels * rows * columns)
        per_group = self.in_channels // self.groups
        moved = self.batch * self.in_channels * self.height * self.width + out
        return 2 * out * per_group * self.kernel**2, moved + self.out_channels * per_group * self.kernel**2


@dataclasses.dataclass(frozen=True)
class Conv2dDilated(Point):
    """Convolution whose window has gaps: it reads every `dilation`-th row and column. The size stays."""

    kind = "conv2d_dilated"
    in_channels: int
    size: int
    out_channels: int
    dilation: int
    kernel: int = 3
    epilogue: str = "none"

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        padding = self.dilation * (self.kernel // 2)
        x = relay.nn.conv2d(
            scope.input(1, self.in_channels, self.size, self.size),
            scope.weight(self.out_channels, self.in_channels, self.kernel, self.kernel),
            padding=(padding, padding),
            dilation=(self.dilation, self.dilation),
            channels=self.out_channels,
            kernel_size=(self.kernel, self.kernel),
            out_dtype=scope.out_dtype,
        )
        return epilogue(scope, x, (1, self.out_channels, self.size, self.size), self.epilogue, self.out_channels)

    def work(self) -> tuple[float, float]:
        weights = float(self.in_channels * self.out_channels * self.kernel**2)
        return 2 * weights * self.size**2, weights + (self.in_channels + self.out_channels) * self.size**2


@dataclasses.dataclass(frozen=True)
class Conv1d(Point):
    """Convolution over [1, in_channels, length], of speech and of series; padding as of `Conv2d`."""

    kind = "conv1d"
    in_channels: int
    length: int
    out_channels: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    epilogue: str = "none"

    @property
    def out_length(self) -> int:
        window = self.dilation * (self.kernel - 1) + 1
        return (self.length + 2 * (window // 2) - window) // self.stride + 1

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        x = relay.nn.conv1d(
            scope.input(1, self.in_channels, self.length),
            scope.weight(self.out_channels, self.in_channels // self.groups, self.kernel),
            strides=self.stride,
            padding=(self.dilation * (self.kernel - 1) + 1) // 2,
            dilation=self.dilation,
            groups=self.groups,
            channels=self.out_channels,
            kernel_size=self.kernel,
            out_dtype=scope.out_dtype,
        )
        return epilogue(scope, x, (1, self.out_channels, self.out_length), self.epilogue, self.out_channels)

    def work(self) -> tuple[float, float]:
        out = float(self.out_channels * self.out_length)
        per_group = self.in_channels // self.groups
        moved = self.in_channels * self.length + out + self.out_channels * per_group * self.kernel
        return 2 * out * per_group * self.kernel, moved


@dataclasses.dataclass(frozen=True)
class Conv3d(Point):
    """Convolution over [1, in_channels, depth, size, size], as video networks have it; padding as of `Conv2d`."""

    kind = "conv3d"
    in_channels: int
    depth: int
    size: int
    out_channels: int
    kernel: int
    stride: int
    epilogue: str = "none"

    @property
    def out_sizes(self) -> tuple[int, int, int]:
        padding = 2 * (self.kernel // 2) - self.kernel
        depth, size = ((n + padding) // self.stride + 1 for n in (self.depth, self.size))
        return depth, size, size

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        x = relay.nn.conv3d(
            scope.input(1, self.in_channels, self.depth, self.size, self.size),
            scope.weight(self.out_channels, self.in_channels, *[self.kernel] * 3),
            strides=[self.stride] * 3,
            padding=[self.kernel // 2] * 3,
            channels=self.out_channels,
            kernel_size=[self.kernel] * 3,
            out_dtype=scope.out_dtype,
        )
        return epilogue(scope, x, (1, self.out_channels, *self.out_sizes), self.epilogue, self.out_channels)

    def work(self) -> tuple[float, float]:
        out = float(self.out_channels * math.prod(self.out_sizes))
        weights = self.in_channels * self.out_channels * self.kernel**3
        moved = self.in_channels * self.depth * self.size**2 + out + weights
        return 2 * out * self.in_channels * self.kernel**3, moved


@dataclasses.dataclass(frozen=True)
class Conv2dTranspose(Point):
    """Transposed convolution with stride 2, which doubles height and width."""

    kind = "conv2d_transpose"
    in_channels: int
    size: int
    out_channels: int
    kernel: int = 4

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        x = relay.nn.conv2d_transpose(
            scope.input(1, self.in_channels, self.size, self.size),
            scope.weight(self.in_channels, self.out_channels, self.kernel, self.kernel),
            strides=(2, 2),
            padding=(self.kernel // 2 - 1, self.kernel // 2 - 1),
            channels=self.out_channels,
            kernel_size=(self.kernel, self.kernel),
            out_dtype=scope.out_dtype,
        )
        return relay.nn.relu(x)

    def work(self) -> tuple[float, float]:
        inputs, weights = self.in_channels * self.size**2, self.in_channels * self.out_channels * self.kernel**2
        return 2.0 * weights * self.size**2, float(inputs + weights + 4 * self.out_channels * self.size**2)


@dataclasses.dataclass(frozen=True)
class Conv2dNHWC(Point):
    """Convolution over [1, size, size, in_channels], as TensorFlow and TFLite have it; padding as of `Conv2d`.

    TVM changes no layout of these on processors, so they have schedules of their own. Depthwise where `depthwise` is
    set; there are then as many output as input channels.
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
    def out_size(self) -> int:
        return (self.size + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1

    def expression(self, scope: Scope) -> Node:
        inner = (self.in_channels, 1) if self.depthwise else (self.in_channels, self.out_channels)
        x = scope.relay.nn.conv2d(
            scope.input(1, self.size, self.size, self.in_channels),
            scope.weight(self.kernel, self.kernel, *inner),
            strides=(self.stride, self.stride),
            padding=(self.kernel // 2, self.kernel // 2),
            groups=self.in_channels if self.depthwise else 1,
            channels=self.out_channels,
            kernel_size=(self.kernel, self.kernel),
            data_layout="NHWC",
            kernel_layout="HWOI" if self.depthwise else "HWIO",
            out_dtype=scope.out_dtype,
        )
        shape = (1, self.out_size, self.out_size, self.out_channels)
        return epilogue(scope, x, shape, self.epilogue, self.out_channels, channels_last=True)

    def work(self) -> tuple[float, float]:
        out = float(self.out_channels * self.out_size**2)
        each = (1 if self.depthwise else self.in_channels) * self.kernel**2
        return 2 * out * each, self.in_channels * self.size**2 + out + self.out_channels * each
