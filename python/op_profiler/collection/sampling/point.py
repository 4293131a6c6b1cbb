"""One operator to measure, and what its kinds share when they are written in Relay."""

from __future__ import annotations

import abc
import dataclasses
import math
from types import ModuleType
from typing import ClassVar

from op_profiler.compilers.tvm_types import Node, Variable


class Scope:
    """The variables of the expressions that are being written.

    Attributes:
        inputs: activations; `weights`: what a model holds as constants.
    """

    def __init__(self, relay: ModuleType) -> None:
        self.relay = relay
        self.inputs: list[Variable] = []
        self.weights: list[Variable] = []

    def input(self, *shape: int, dtype: str = "float32") -> Variable:
        self.inputs.append(self.relay.var(f"x{len(self.inputs)}", shape=shape, dtype=dtype))
        return self.inputs[-1]

    def weight(self, *shape: int) -> Variable:
        self.weights.append(self.relay.var(f"w{len(self.weights)}", shape=shape))
        return self.weights[-1]


@dataclasses.dataclass(frozen=True)
class Point(abc.ABC):
    """One operator to measure.

    Attributes:
        kind: name of the subclass.
    """

    kind: ClassVar[str]

    @abc.abstractmethod
    def expression(self, scope: Scope) -> Node:
        """The Relay expression, over variables made by `scope`."""

    @abc.abstractmethod
    def work(self) -> tuple[float, float]:
        """Operations (a multiply-add counts two) and elements moved, roughly: what limits on points refer to."""


def epilogue(scope: Scope, x: Node, shape: tuple[int, ...], name: str, channel: int) -> Node:
    """What follows a heavy op and is fused into it.

    Args:
        name: one of `EPILOGUES`.
        channel: length of the axis that a bias belongs to; the bias has that axis at the same place, counted from the
            last one.
    """
    relay = scope.relay
    if name == "none":
        return x
    spatial = len(shape) - 2
    x = relay.add(x, scope.weight(channel, *[1] * spatial) if spatial else scope.weight(1, channel))
    activation = name.partition("_")[2]
    if name == "residual_relu":
        return relay.nn.relu(relay.add(x, scope.input(*shape)))
    return activate(scope, x, activation) if activation else x


def activate(scope: Scope, x: Node, name: str) -> Node:
    """An activation function."""
    relay = scope.relay
    if name == "gelu":
        half, root = relay.const(0.5), relay.const(math.sqrt(0.5))
        return relay.multiply(relay.multiply(x, half), relay.add(relay.erf(relay.multiply(x, root)), relay.const(1.0)))
    if name == "swish":
        return relay.multiply(x, relay.sigmoid(x))
    if name == "relu6":
        return relay.clip(x, 0.0, 6.0)
    simple = {"relu": relay.nn.relu, "sigmoid": relay.sigmoid, "tanh": relay.tanh, "sqrt": relay.sqrt, "exp": relay.exp}
    return simple[name](x)
