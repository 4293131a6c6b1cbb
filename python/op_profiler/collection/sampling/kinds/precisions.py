"""Operators of networks in float16 and int8, as Relay's passes leave them (`compilers.relay.precision`)."""

from __future__ import annotations

import dataclasses
import math

from op_profiler.collection.sampling.point import Point, Scope
from op_profiler.compilers.tvm_types import Node

INT8_ELEMENTWISE = ("quantize", "dequantize", "add")
_MULTIPLIER, _SHIFT = 1_434_324_096, -8
"""Of int32 sums to int8. Kernels take as long for other scales; those of powers of two TVM 0.19 does not compile."""


@dataclasses.dataclass(frozen=True)
class InFloat16(Point):
    """A point whose tensors are float16.

    Of ops that Relay's mixed precision keeps in float32 (exp, erf, softmax, means) there is none in it.
    """

    kind = "float16"
    precision = "float16"
    point: Point

    def expression(self, scope: Scope) -> Node:
        return self.point.expression(scope.in_dtype("float16"))

    def work(self) -> tuple[float, float]:
        return self.point.work()

    def identity(self) -> list[object]:
        return [type(self).__name__, *self.point.identity()]


@dataclasses.dataclass(frozen=True)
class Int8Conv2d(Point):
    """Convolution of int8 with sums in int32, a bias, relu, and back to int8; padding as of `Conv2d`."""

    kind = "conv2d_int8"
    precision = "int8"
    in_channels: int
    size: int
    out_channels: int
    kernel: int
    stride: int
    groups: int = 1

    @property
    def out_size(self) -> int:
        return (self.size + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        sums = relay.nn.conv2d(
            scope.input(1, self.in_channels, self.size, self.size, dtype="int8"),
            scope.weight(self.out_channels, self.in_channels // self.groups, self.kernel, self.kernel, dtype="int8"),
            strides=(self.stride, self.stride),
            padding=(self.kernel // 2, self.kernel // 2),
            groups=self.groups,
            channels=self.out_channels,
            kernel_size=(self.kernel, self.kernel),
            out_dtype="int32",
        )
        return _requantized(scope, relay.add(sums, scope.weight(self.out_channels, 1, 1, dtype="int32")))

    def work(self) -> tuple[float, float]:
        out = float(self.out_channels * self.out_size**2)
        each = self.in_channels // self.groups * self.kernel**2
        return 2 * out * each, self.in_channels * self.size**2 + out + self.out_channels * each


@dataclasses.dataclass(frozen=True)
class Int8Dense(Point):
    """Fully connected layer of int8 with sums in int32, a bias, relu, and back to int8."""

    kind = "dense_int8"
    precision = "int8"
    rows: int
    in_features: int
    out_features: int

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        data = scope.input(self.rows, self.in_features, dtype="int8")
        weight = scope.weight(self.out_features, self.in_features, dtype="int8")
        sums = relay.nn.dense(data, weight, out_dtype="int32")
        return _requantized(scope, relay.add(sums, scope.weight(1, self.out_features, dtype="int32")))

    def work(self) -> tuple[float, float]:
        m, k, n = self.rows, self.in_features, self.out_features
        return 2.0 * m * k * n, float(m * k + k * n + m * n)


@dataclasses.dataclass(frozen=True)
class Int8Elementwise(Point):
    """One of `INT8_ELEMENTWISE`: float32 to int8, back, or two int8 tensors added up in int32."""

    kind = "elementwise_int8"
    precision = "int8"
    op: str
    shape: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        if self.op == "quantize":
            scaled = relay.round(relay.multiply(scope.input(*self.shape), relay.const(16.0)))
            return relay.cast(relay.clip(scaled, -127.0, 127.0), "int8")
        left = scope.input(*self.shape, dtype="int8")
        if self.op == "dequantize":
            return relay.multiply(relay.cast(left, "float32"), relay.const(1 / 16))
        right = scope.input(*self.shape, dtype="int8")
        return _requantized(scope, relay.add(relay.cast(left, "int32"), relay.cast(right, "int32")))

    def work(self) -> tuple[float, float]:
        elements = float(math.prod(self.shape))
        return 4 * elements, (3 if self.op == "add" else 2) * elements


def _requantized(scope: Scope, sums: Node) -> Node:
    """Sums in int32 as int8, in the order in which Relay's quantizer does it."""
    relay = scope.relay
    scaled = relay.fixed_point_multiply(relay.cast(relay.nn.relu(sums), "int64"), _MULTIPLIER, _SHIFT)
    return relay.cast(relay.clip(scaled, -127.0, 127.0), "int8")
