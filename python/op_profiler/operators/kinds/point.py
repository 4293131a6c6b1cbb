"""The contract of a point (one operator to sample), and parts of Relay expressions that several kinds use."""

from __future__ import annotations

import abc
import dataclasses
import math
import random
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

from op_profiler.operators.kinds.sizes import LARGEST_BLOCK, largest_divisor

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Node, Variable
    from op_profiler.measure.measurement import Precision

EPILOGUES = ("none", "bias", "bias_relu", "bias_relu6", "bias_swish", "bias_gelu", "bias_tanh", "residual_relu")


class Scope:
    """Creates variables and constants for Relay expressions, and collects the variables.

    Attributes:
        relay: ``tvm.relay``, or a stand-in whose functions return descriptions of operators (`described.py`).
        inputs: variables for activations; `weights`: variables for constants of a model.
        dtype: dtype of variables and constants by default.
        out_dtype: dtype of the results of ops that compute sums, such as dense, in models that were converted to
            another precision; empty if it follows from the dtypes of the inputs.
        lanes: largest number of channels in a block, for kinds with blocked channels.
    """

    def __init__(self, relay: ModuleType, dtype: str = "float32", lanes: int = LARGEST_BLOCK) -> None:
        self.relay = relay
        self.lanes = lanes
        self.inputs: list[Variable] = []
        self.weights: list[Variable] = []
        self.dtype = dtype
        self.out_dtype = "" if dtype == "float32" else dtype

    def input(self, *shape: int, dtype: str = "") -> Variable:
        """Create a variable for an activation of this shape, append it to `inputs` and return it.

        Args:
            dtype: dtype of the variable; empty for the scope's `dtype`.
        """
        self.inputs.append(self.relay.var(f"x{len(self.inputs)}", shape=shape, dtype=dtype or self.dtype))
        return self.inputs[-1]

    def weight(self, *shape: int, dtype: str = "") -> Variable:
        """Create a variable for a weight of this shape, append it to `weights` and return it.

        Args:
            dtype: dtype of the variable; empty for the scope's `dtype`.
        """
        self.weights.append(self.relay.var(f"w{len(self.weights)}", shape=shape, dtype=dtype or self.dtype))
        return self.weights[-1]

    def in_dtype(self, dtype: str, out_dtype: str | None = None) -> Scope:
        """Return a scope whose variables have another dtype and are appended to the same lists as those of this scope.

        Args:
            out_dtype: `out_dtype` of the new scope; None if it follows from `dtype`.
        """
        found = Scope(self.relay, dtype, self.lanes)
        found.inputs, found.weights = self.inputs, self.weights
        found.out_dtype = found.out_dtype if out_dtype is None else out_dtype
        return found

    def block(self, channels: int) -> int:
        """Return the number of channels in a block (innermost dimension) of a tensor with `channels` channels."""
        return largest_divisor(channels, self.lanes)

    def constant(self, value: float) -> Node:
        """Return a constant scalar of the scope's `dtype`."""
        return self.relay.const(value, self.dtype)


@dataclasses.dataclass(frozen=True)
class Point(abc.ABC):
    """One operator to measure.

    Attributes:
        kind: name of the subclass.
        precision: precision of the networks that have such operators; operators that are measured in one batch have the
            same precision.
        choices: for each field whose value is a name, the allowed names.
        described: whether `described.described` can return the operator of the point, without a compiler.
    """

    kind: ClassVar[str]
    described: ClassVar[bool] = False
    precision: ClassVar[Precision] = "float32"
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @abc.abstractmethod
    def expression(self, scope: Scope) -> Node:
        """Return the Relay expression over variables that `scope` creates."""

    @abc.abstractmethod
    def work(self) -> tuple[float, float]:
        """Return the approximate numbers of operations (a multiply-add counts two) and of moved elements, by which
        sampling rejects points that are too large or too small."""

    def problem(self) -> str | None:
        """Return why the sizes do not fit together; None if they do."""
        return None

    def identity(self) -> list[object]:
        """Return plain JSON values that identify the point."""
        return [type(self).__name__, dataclasses.asdict(self)]


Draw = Callable[[random.Random], Point]
"""Draws a random point."""


@dataclasses.dataclass(frozen=True)
class InFloat16(Point):
    """The operator of `point` with float16 tensors.

    `point` contains no ops that Relay's mixed precision keeps in float32 (exp, erf, softmax, means).
    """

    kind = "float16"
    precision = "float16"
    point: Point

    def expression(self, scope: Scope) -> Node:
        """Return the expression of `point`, over float16 variables and with float16 sums."""
        return self.point.expression(scope.in_dtype("float16"))

    def work(self) -> tuple[float, float]:
        """Return the work of `point`, which counts elements and not bytes and is therefore the same in float16."""
        return self.point.work()

    def identity(self) -> list[object]:
        """Return the name of this class followed by the identity of `point`."""
        return [type(self).__name__, *self.point.identity()]


def epilogue(scope: Scope, x: Node, shape: tuple[int, ...], name: str, *, channels_last: bool = False) -> Node:
    """Return `x` after an epilogue: ops that follow a heavy op and are fused into it.

    Args:
        shape: shape of `x`; its second axis has the channels, to which a bias belongs.
        name: one of `EPILOGUES`.
        channels_last: whether the last axis has the channels instead.
    """
    relay = scope.relay
    if name == "none":
        return x
    spatial = len(shape) - 2
    if channels_last:
        bias = scope.weight(*[1] * (len(shape) - 1), shape[-1])  # as constants have it once they are folded
    else:
        first = () if spatial > 1 else (1,)  # folded constants keep the batch axis, except for images
        bias = scope.weight(*first, shape[1], *[1] * spatial)
    x = relay.add(x, bias)
    activation = name.partition("_")[2]
    if name == "residual_relu":
        return relay.nn.relu(relay.add(x, scope.input(*shape)))
    return activate(scope, x, activation) if activation else x


def activate(scope: Scope, x: Node, name: str) -> Node:
    """Return an activation function of `x`."""
    relay = scope.relay
    if name == "gelu":
        half, root = scope.constant(0.5), scope.constant(math.sqrt(0.5))
        shifted = relay.add(relay.erf(relay.multiply(x, root)), scope.constant(1.0))
        return relay.multiply(relay.multiply(x, half), shifted)
    if name == "gelu_tanh":  # as GPT-2 has it (Hendrycks & Gimpel, Gaussian error linear units, 2016)
        cube = relay.multiply(relay.power(x, scope.constant(3.0)), scope.constant(0.044715))
        scaled = relay.multiply(relay.add(x, cube), scope.constant(math.sqrt(2 / math.pi)))
        half, shifted = relay.multiply(x, scope.constant(0.5)), relay.add(relay.tanh(scaled), scope.constant(1.0))
        return relay.multiply(half, shifted)
    if name == "hardswish":
        gate = relay.divide(relay.clip(relay.add(x, scope.constant(3.0)), a_min=0.0, a_max=6.0), scope.constant(6.0))
        return relay.multiply(x, gate)
    if name == "swish":
        return relay.multiply(x, relay.sigmoid(x))
    if name == "relu6":
        return relay.clip(x, a_min=0.0, a_max=6.0)
    simple = {"relu": relay.nn.relu, "sigmoid": relay.sigmoid, "tanh": relay.tanh, "sqrt": relay.sqrt, "exp": relay.exp}
    return simple[name](x)


_MULTIPLIER, _SHIFT = 1_434_324_096, -8
"""Scale from int32 sums to int8. Kernels take as long for other scales; TVM 0.19 does not compile powers of two."""


def requantized(scope: Scope, sums: Node) -> Node:
    """Return sums in int32 as int8, with the operations in the order of Relay's quantizer."""
    relay = scope.relay
    scaled = relay.fixed_point_multiply(relay.cast(relay.nn.relu(sums), "int64"), _MULTIPLIER, _SHIFT)
    return relay.cast(relay.clip(scaled, -127.0, 127.0), "int8")
