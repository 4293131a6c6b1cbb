"""Every function of one or two values that importers create, as a single operator: LLVM determines its cost."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING

from op_profiler.operators.kinds import sizes
from op_profiler.operators.kinds.point import Draw, Point, Scope

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Node

LIBRARY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "log", "log2", "log10", "sin"),
    *("sinh", "tan", "tanh", "sigmoid", "softplus", "mish", "elu"),
)
"""Functions that call the C math library for each value, or approximate it."""
LIGHT = (
    *("abs", "ceil", "floor", "isfinite", "isinf", "isnan", "negative", "round", "rsqrt", "sign", "sqrt", "trunc"),
    *("nn.relu", "nn.leaky_relu", "softsign", "hardsigmoid", "clip"),
)
BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "floor_divide"),
    *("equal", "greater", "less", "less_equal", "not_equal"),
)
REMAINDERS = ("mod", "floor_mod")
WHOLE = ("add", "multiply", "maximum", "divide", "mod", "left_shift", "bitwise_and")
"""Functions that are sampled on int32 tensors."""
LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")
EXPONENTS = (0.25, 0.5, 1.7, 2.0, 3.0, 4.0, -1.0, -1.5)
SECOND = ("tensor", "channels", "constant")
"""Kinds of the second operand: of the same shape, one value for each position of the last axis, or one number."""
_WHOLE_NUMBER = 3
_FORMULAS = frozenset({"softplus", "mish", "elu", "softsign", "hardsigmoid"})


@dataclasses.dataclass(frozen=True)
class AppliedFunction(Point):
    """An element-wise function, applied to a tensor and, if `second` is set, a second operand.

    Attributes:
        second: one of `SECOND`; empty for a function of one value.
        exponent: exponent of ``power`` if `second` is ``constant``.
    """

    kind = "functions"
    op: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    second: str = ""
    exponent: float = 0.0

    def expression(self, scope: Scope) -> Node:
        """Return `op` of an input of `shape` and, if `second` is set, of a second operand as `SECOND` describes it."""
        relay = scope.relay
        x = scope.input(*self.shape, dtype=self.dtype)
        if self.op == "where":
            condition = relay.greater(x, scope.constant(0.0))
            return relay.where(condition, scope.input(*self.shape), scope.input(*self.shape))
        if self.second:
            return _function(relay, self.op)(x, self._operand(scope))
        if self.op in _FORMULAS:
            return self._formula(scope, x)
        arguments = {"clip": {"a_min": -0.5, "a_max": 0.5}, "nn.leaky_relu": {"alpha": 0.1}}
        return _function(relay, self.op)(x, **arguments.get(self.op, {}))

    def _operand(self, scope: Scope) -> Node:
        if self.second == "constant":
            value = self.exponent or (_WHOLE_NUMBER if self.dtype == "int32" else 0.3)
            return scope.relay.const(value, self.dtype)
        shape = self.shape if self.second == "tensor" else self.shape[-1:]
        return scope.input(*shape, dtype=self.dtype)

    def _formula(self, scope: Scope, x: Node) -> Node:
        """Return the formula as importers of ONNX write it."""
        relay, one = scope.relay, scope.constant(1.0)
        if self.op == "softsign":
            return relay.divide(x, relay.add(one, relay.abs(x)))
        if self.op == "hardsigmoid":
            line = relay.add(relay.multiply(x, scope.constant(0.2)), scope.constant(0.5))
            return relay.clip(line, a_min=0.0, a_max=1.0)
        if self.op == "elu":
            below = relay.nn.relu(relay.subtract(one, relay.exp(x)))
            return relay.add(relay.multiply(scope.constant(-0.5), below), relay.nn.relu(x))
        softplus = relay.log(relay.add(relay.exp(x), one))
        return softplus if self.op == "softplus" else relay.multiply(x, relay.tanh(softplus))

    def work(self) -> tuple[float, float]:
        """See `Point.work`: one operation per element; every tensor of `shape` moves once."""
        elements = float(math.prod(self.shape))
        operands = 3.0 if self.second == "tensor" else 4.0 if self.op == "where" else 2.0
        return elements, operands * elements


def _function(relay: ModuleType, name: str) -> Callable[..., Node]:
    """Return a function of Relay by name."""
    found: Callable[..., Node] = attrgetter(name)(relay)
    return found


def _functions(rng: random.Random) -> Point:
    """Draw a function; half of the drawn ones call the C math library for each value."""
    elements, batch = 10.0 ** rng.uniform(2.0, 6.5), rng.choice((1, 8, 32))
    last = max(min(sizes.log_uniform(rng, 2, 2048), round(elements / batch)), 2)
    shape = (batch, max(round(elements / batch / last), 1), last)
    form = rng.choices(tuple(_SHARES), tuple(_SHARES.values()))[0]
    if form in ("library", "light"):
        return AppliedFunction(rng.choice(LIBRARY if form == "library" else LIGHT), shape)
    if form == "where":
        return AppliedFunction("where", shape)
    if form == "power":
        if rng.random() < 0.3:
            return AppliedFunction("power", shape, second=rng.choice(("tensor", "channels")))
        return AppliedFunction("power", shape, second="constant", exponent=rng.choice(EXPONENTS))
    second = rng.choice(SECOND)
    if form == "whole":  # other divisors might be zero
        op = rng.choice(WHOLE)
        return AppliedFunction(op, shape, "int32", "constant" if op in ("divide", "mod") else second)
    if form == "logical":
        op = rng.choice(LOGICAL)
        return AppliedFunction(op, shape, "bool", "" if op == "logical_not" else rng.choice(("tensor", "channels")))
    return AppliedFunction(rng.choice(REMAINDERS if form == "remainder" else BINARY), shape, second=second)


_SHARES = {
    **{"library": 0.37, "power": 0.12, "remainder": 0.05, "light": 0.16},
    **{"binary": 0.16, "whole": 0.07, "logical": 0.04, "where": 0.03},
}

DRAWS: dict[str, Draw] = {"functions": _functions}
