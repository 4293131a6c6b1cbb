"""What recurrent cells and older networks have between their products."""

from __future__ import annotations

import dataclasses

from op_profiler.collection.sampling.point import Point, Scope
from op_profiler.compilers.tvm_types import Node

CELLS = ("lstm", "gru")


@dataclasses.dataclass(frozen=True)
class Gates(Point):
    """The gates of one step of a recurrent cell, behind its two products of [batch, gates * hidden]."""

    kind = "gates"
    cell: str
    batch: int
    hidden: int

    def expression(self, scope: Scope) -> Node:
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
        elements = float(self.batch * self.hidden)
        return 12 * elements, 10 * elements


@dataclasses.dataclass(frozen=True)
class LocalResponseNorm(Point):
    """Each value over a power of the squares of its neighbours among the channels, of [1, channels, size, size]."""

    kind = "lrn"
    channels: int
    size: int
    window: int

    def expression(self, scope: Scope) -> Node:
        x = scope.input(1, self.channels, self.size, self.size)
        return scope.relay.nn.lrn(x, size=self.window, axis=1, bias=1.0, alpha=1e-4, beta=0.75)

    def work(self) -> tuple[float, float]:
        elements = float(self.channels * self.size**2)
        return elements * (self.window + 20), 4 * elements  # the power takes as long as twenty operations
