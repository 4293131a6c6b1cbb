"""One operator to measure, and what its kinds share when they are written in Relay."""

from __future__ import annotations

import abc
import dataclasses
import math
from types import ModuleType
from typing import ClassVar

from op_profiler.compilers.tvm_types import Node, Variable
from op_profiler.measure.measurement import Precision

EPILOGUES = ("none", "bias", "bias_relu", "bias_relu6", "bias_swish", "bias_gelu", "bias_tanh", "residual_relu")


class Scope:
    """The variables of the expressions that are being written.

    Attributes:
        inputs: activations; `weights`: what a model holds as constants.
        dtype: of variables and constants where nothing else is said.
        out_dtype: what ops that add up are to give, as converted models say it; empty where they follow their inputs.
    """

    def __init__(self, relay: ModuleType, dtype: str = "float32") -> None:
        self.relay = relay
        self.inputs: list[Variable] = []
        self.weights: list[Variable] = []
        self.dtype = dtype
        self.out_dtype = "" if dtype == "float32" else dtype

    def input(self, *shape: int, dtype: str = "") -> Variable:
        self.inputs.append(self.relay.var(f"x{len(self.inputs)}", shape=shape, dtype=dtype or self.dtype))
        return self.inputs[-1]

    def weight(self, *shape: int, dtype: str = "") -> Variable:
        self.weights.append(self.relay.var(f"w{len(self.weights)}", shape=shape, dtype=dtype or self.dtype))
        return self.weights[-1]

    def in_dtype(self, dtype: str) -> Scope:
        """The same variables; new ones are of another dtype."""
        found = Scope(self.relay, dtype)
        found.inputs, found.weights = self.inputs, self.weights
        return found

    def constant(self, value: float) -> Node:
        return self.relay.const(value, self.dtype)


@dataclasses.dataclass(frozen=True)
class Point(abc.ABC):
    """One operator to measure.

    Attributes:
        kind: name of the subclass.
        precision: of the networks that have such operators; those of a batch are of one.
    """

    kind: ClassVar[str]
    precision: ClassVar[Precision] = "float32"

    @abc.abstractmethod
    def expression(self, scope: Scope) -> Node:
        """The Relay expression, over variables made by `scope`."""

    @abc.abstractmethod
    def work(self) -> tuple[float, float]:
        """Operations (a multiply-add counts two) and elements moved, roughly: what limits on points refer to."""

    def identity(self) -> list[object]:
        """Plain JSON values that no other point has."""
        return [type(self).__name__, dataclasses.asdict(self)]


def epilogue(
    scope: Scope, x: Node, shape: tuple[int, ...], name: str, channel: int, *, channels_last: bool = False
) -> Node:
    """What follows a heavy op and is fused into it.

    Args:
        name: one of `EPILOGUES`.
        channel: length of the axis that a bias belongs to: the second one.
        channels_last: the bias belongs to the last axis in place of that.
    """
    relay = scope.relay
    if name == "none":
        return x
    spatial = len(shape) - 2
    if channels_last:
        bias = scope.weight(*[1] * (len(shape) - 1), channel)  # as constants have it once they are folded
    else:
        first = () if spatial > 1 else (1,)  # of what is no image, folded constants keep the batch's axis
        bias = scope.weight(*first, channel, *[1] * spatial)
    x = relay.add(x, bias)
    activation = name.partition("_")[2]
    if name == "residual_relu":
        return relay.nn.relu(relay.add(x, scope.input(*shape)))
    return activate(scope, x, activation) if activation else x


def activate(scope: Scope, x: Node, name: str) -> Node:
    """An activation function."""
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
        gate = relay.divide(relay.clip(relay.add(x, scope.constant(3.0)), 0.0, 6.0), scope.constant(6.0))
        return relay.multiply(x, gate)
    if name == "swish":
        return relay.multiply(x, relay.sigmoid(x))
    if name == "relu6":
        return relay.clip(x, 0.0, 6.0)
    simple = {"relu": relay.nn.relu, "sigmoid": relay.sigmoid, "tanh": relay.tanh, "sqrt": relay.sqrt, "exp": relay.exp}
    return simple[name](x)
