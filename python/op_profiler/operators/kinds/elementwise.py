"""Element-wise operators: activations, sums, per-channel scales and shifts, gates of recurrent cells."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import TYPE_CHECKING

from op_profiler.operators.kinds import sizes
from op_profiler.operators.kinds.point import Draw, Point, Scope, activate, requantized

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Node

UNARY = ("relu", "sigmoid", "tanh", "gelu", "relu6", "sqrt", "exp", "swish")
ACTIVATIONS = ("gelu_tanh", "hardswish")
"""Further activations with one operand, which are drawn only if their kind is named."""
BINARY = ("add", "multiply", "subtract", "add_relu")
INT8_ELEMENTWISE = ("quantize", "dequantize", "add")
BROADCASTS = ("scale_shift", "scale_shift_relu", "table", "scaled_table", "gate", "divide", "sum", "sum_relu")
CELLS = ("lstm", "gru")
_TABLES = (16, 49, 64, 96, 196, 197, 256)
"""Rows and columns of tensors that attention adds to its scores; most are not multiples of a vector."""


@dataclasses.dataclass(frozen=True)
class Elementwise(Point):
    """Element-wise function of one tensor of `shape`, or of two such tensors."""

    kind = "elementwise"
    described = True
    choices = {"op": (*UNARY, *ACTIVATIONS, *BINARY)}
    op: str
    shape: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        """Return `op` applied to one or two inputs of `shape`; `activate` composes activation functions of basic
        ops."""
        relay = scope.relay
        x = scope.input(*self.shape)
        if self.op in (*UNARY, *ACTIVATIONS):
            return activate(scope, x, self.op)
        y = scope.input(*self.shape)
        if self.op == "add_relu":
            return relay.nn.relu(relay.add(x, y))
        return getattr(relay, self.op)(x, y)

    def work(self) -> tuple[float, float]:
        """See `Point.work`: one operation per element; every operand and the result move once."""
        elements = float(math.prod(self.shape))
        return elements, (3 if self.op in BINARY else 2) * elements


@dataclasses.dataclass(frozen=True)
class Int8Elementwise(Point):
    """One of `INT8_ELEMENTWISE`: a conversion from float32 to int8, the conversion back, or the sum of two int8 tensors
    computed in int32."""

    kind = "elementwise_int8"
    precision = "int8"
    op: str
    shape: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        """Return, by `op`: a multiplication, rounding, clip and cast; a cast and multiplication; or a sum in int32 that
        is converted to int8."""
        relay = scope.relay
        if self.op == "quantize":
            scaled = relay.round(relay.multiply(scope.input(*self.shape), relay.const(16.0)))
            return relay.cast(relay.clip(scaled, -127.0, 127.0), "int8")
        left = scope.input(*self.shape, dtype="int8")
        if self.op == "dequantize":
            return relay.multiply(relay.cast(left, "float32"), relay.const(1 / 16))
        right = scope.input(*self.shape, dtype="int8")
        return requantized(scope, relay.add(relay.cast(left, "int32"), relay.cast(right, "int32")))

    def work(self) -> tuple[float, float]:
        """See `Point.work`: four operations per element; every operand and the result move once."""
        elements = float(math.prod(self.shape))
        return 4 * elements, (3 if self.op == "add" else 2) * elements


@dataclasses.dataclass(frozen=True)
class Broadcast(Point):
    """One of `BROADCASTS`, such as a scale and a shift per channel, applied to an activation of `shape`.

    Attributes:
        channels: shape of the tensor that has one value per channel: as many axes as `shape`, of size 1 except the
            axis of channels.
    """

    kind = "broadcast"
    op: str
    shape: tuple[int, ...]
    channels: tuple[int, ...]

    def expression(self, scope: Scope) -> Node:
        """Return `op` of an input of `shape` and of weights, inputs or a constant that are broadcast to it."""
        relay = scope.relay
        x = scope.input(*self.shape)
        if self.op.startswith("scale_shift"):
            x = relay.add(relay.multiply(x, scope.weight(*self.channels)), scope.weight(*self.channels))
        elif self.op == "table":
            x = relay.add(x, scope.weight(*self.shape))
        elif self.op == "scaled_table":
            x = relay.add(relay.multiply(x, scope.constant(0.125)), scope.weight(*self.shape))
        elif self.op == "gate":
            x = relay.multiply(x, relay.sigmoid(scope.input(*self.channels)))
        elif self.op == "divide":
            x = relay.divide(x, scope.constant(8.0))
        else:
            x = relay.add(relay.add(x, scope.input(*self.shape)), scope.input(*self.shape))
        return relay.nn.relu(x) if self.op.endswith("relu") else x

    def work(self) -> tuple[float, float]:
        """See `Point.work`: two operations per element; tensors of `shape` move once, smaller tensors do not count."""
        tensors = {"table": 3, "scaled_table": 3, "sum": 4, "sum_relu": 4}.get(self.op, 2)
        return 2.0 * math.prod(self.shape), float(tensors * math.prod(self.shape))


@dataclasses.dataclass(frozen=True)
class Gates(Point):
    """Element-wise gates of one step of a recurrent cell. The inputs are the results of the step's two matrix products,
    each of shape [batch, gates * hidden], and the previous state."""

    kind = "gates"
    cell: str
    batch: int
    hidden: int

    def expression(self, scope: Scope) -> Node:
        """Return the next hidden state from the sums of both products and the previous state, for an LSTM or a GRU
        cell."""
        relay = scope.relay
        count = 4 if self.cell == "lstm" else 3
        ofs = [relay.split(scope.input(self.batch, count * self.hidden), count, axis=1) for _ in range(2)]
        before = scope.input(self.batch, self.hidden)
        gates = [relay.add(ofs[0][n], ofs[1][n]) for n in range(count)]
        if self.cell == "lstm":
            taken, forgotten, given = (relay.sigmoid(gates[n]) for n in (0, 1, 3))
            state = relay.add(relay.multiply(forgotten, before), relay.multiply(taken, relay.tanh(gates[2])))
            return relay.multiply(given, relay.tanh(state))
        reset, kept = relay.sigmoid(gates[0]), relay.sigmoid(gates[1])
        new = relay.tanh(relay.add(ofs[0][2], relay.multiply(reset, ofs[1][2])))
        return relay.add(relay.multiply(relay.subtract(scope.constant(1.0), kept), new), relay.multiply(kept, before))

    def work(self) -> tuple[float, float]:
        """See `Point.work`: twelve operations and ten moved values per element of the hidden state, for either cell."""
        elements = float(self.batch * self.hidden)
        return 12 * elements, 10 * elements


def _activation(rng: random.Random) -> Point:
    """Draw an activation over the features of a sequence or the channels of an image."""
    op = rng.choice((*ACTIVATIONS, *ACTIVATIONS, "gelu", "swish", "tanh", "sigmoid"))
    sequence = (1, sizes.sequence(rng), sizes.features(rng, 32))
    return Elementwise(op, sequence if rng.random() < 0.5 else sizes.activation_shape(rng))


def _broadcast(rng: random.Random) -> Point:
    """Draw a broadcast over images with blocked or plain channels, sequences, or scores of attention."""
    op = rng.choice(BROADCASTS)
    form = rng.choice(("image", "image", "sequence", "scores"))
    if op.endswith("table") or (form == "scores" and op in ("divide", "sum")):
        rows = rng.choice(_TABLES) if rng.random() < 0.6 else sizes.log_uniform(rng, 4, 512)
        columns = rows if rng.random() < 0.6 else rng.choice(_TABLES)
        heads = rng.choice((1, 2, 4, 5, 8, 12, 16))
        return Broadcast(op, (heads, rows, columns), (1, 1, 1))
    if form == "image":
        channels, size = sizes.channels(rng, 8, 1024), sizes.size(rng, 4, 112)
        block = sizes.block_of(rng, channels) if rng.random() < 0.7 else 0
        shape = sizes.blocked(channels, size, block)
        return Broadcast(op, shape, (*shape[:2], 1, 1, *shape[4:]))
    shape = (1, sizes.rows(rng), sizes.log_uniform(rng, 32, 3072, 32))
    return Broadcast(op, shape, (1, 1, shape[2]))


DRAWS: dict[str, Draw] = {
    "elementwise": lambda rng: Elementwise(rng.choice((*UNARY, *BINARY, *BINARY)), sizes.activation_shape(rng)),
    "activation": _activation,
    "broadcast": _broadcast,
    "gates": lambda rng: Gates(rng.choice(CELLS), rng.choice((1, 1, 1, 4, 16)), sizes.log_uniform(rng, 16, 1024, 4)),
}
