"""Tracks the locations of calls in the user's model, such as their layers, through the compiler's passes.

Frontends write the location of a call into its span (the name of the span's source). Most of Relay's passes drop spans,
and the first one of every build (`ToBasicBlockNormalForm`) drops all. Every call therefore gets a number in place of
its span, and after every pass, calls without a number get the numbers of the calls that they replaced. Spans do not
affect a build: kernels, their hashes and workload keys are those of a module without spans.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from op_profiler.compilers.interrupts import stop_if_interrupted
from op_profiler.compilers.relay_rewriting import (
    calls_in,
    location_in_span,
    main_of,
    nodes_in,
    rebuilt,
    with_body,
    with_locations,
)
from op_profiler.compilers.successors import CallGraph, Names, successors
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Call, Function, IRModule, Named, Node


class Layers:
    """Locations of the calls of one module, tracked through the compiler's passes by numbers."""

    def __init__(self) -> None:
        self._names: list[Names] = []
        self._source = f"op_profiler.layers {uuid.uuid4().hex}"  # unique: another build numbers its functions too

    def marked(self, module: IRModule) -> IRModule:
        """Return the module with a number for every call of ``main``; unchanged if no span names a location."""
        tvm = load_tvm()
        graph = _graph(main_of(module), self._number)
        if graph is None:
            return module
        found = {place: locations_in_span(call) for place, call in enumerate(graph.calls)}
        if not any(found.values()):
            return module
        copy = tvm.IRModule(module.functions, module.type_definitions)
        self._give(copy, graph, found)
        return copy

    def named(self, module: IRModule) -> IRModule:
        """Return the module for another build: its spans contain the locations instead of numbers."""
        return with_locations(module, lambda call: _SEPARATOR.join(self.of(call)))

    def of(self, call: Call) -> Names:
        """Return the locations of a call; empty if unknown."""
        number = self._number(call)
        return () if number is None else self._names[number]

    def carrier(self) -> Any:
        """Return a pass instrument: if a pass replaces numbered calls, it gives numbers with the same locations to the
        new calls. It changes modules in place; if no call is numbered, it does nothing."""
        tvm = load_tvm()
        carry, names = self._carry, self._names
        before: list[Function | None] = []

        @tvm.ir.instrument.pass_instrument
        class Carrier:
            def run_before_pass(self, module: IRModule, info: Named) -> None:
                stop_if_interrupted()
                nothing = not names or info.name in _LEAVE_ALONE
                before.append(None if nothing else main_of(module))

            def run_after_pass(self, module: IRModule, info: Named) -> None:
                main = before.pop()
                if main is not None and main_of(module) is not None and not main.same_as(main_of(module)):
                    carry(main, module)

        return Carrier()

    def _carry(self, before: Function, module: IRModule) -> None:
        """Give numbers to the calls that a pass created."""
        main = main_of(module)
        if main is None or not self._misses_some(main):  # most passes keep all: a look is quicker than the graph
            return
        new = _graph(main, self._number)
        if new is None or None not in new.numbers:
            return
        old = _graph(before, self._number)
        if old is None or not any(number is not None for number in old.numbers):
            return
        names = [self._names[n] if n is not None else () for n in old.numbers]
        self._give(module, new, successors(old, new, names))

    def _misses_some(self, main: Function) -> bool:
        """Return whether a call has no number."""
        return any(location_in_span(call) != self._source for call in calls_in(main.body))

    def _number(self, call: Call) -> int | None:
        span = call.span
        return int(span.line) if span and span.source_name.name == self._source else None

    def _give(self, module: IRModule, graph: CallGraph, found: dict[int, Names]) -> None:
        """Give numbers to calls of ``main`` by their position in `graph`."""
        relay = load_tvm().relay
        spans: dict[Node, Any] = {}
        for place, names in found.items():
            number = len(self._names)
            self._names.append(names)
            spans[graph.calls[place]] = relay.Span(relay.SourceName(self._source), number, number, 0, 0)

        def numbered(call: Call, arguments: list[Node]) -> Node | None:
            if call not in spans:
                return None
            return relay.expr.CallWithFields(call, None, arguments, None, None, None, spans[call])

        with_body(module, rebuilt(module, numbered))


_LEAVE_ALONE = frozenset({"InferType", "sequential", "PlanDevices"})
"""Passes that change no call, and passes that consist of others."""


_SEPARATOR = "\n"  # between the locations of a call that replaced several calls


def locations_in_span(call: Call) -> Names:
    """Return the locations of a call that replaced several calls, as `Layers.named` writes them."""
    return tuple(name for name in location_in_span(call).split(_SEPARATOR) if name)


def _graph(main: Function | None, number_of: Callable[[Call], int | None]) -> CallGraph | None:
    """Return the calls of a function; None if the function is more than a graph of calls."""
    tvm = load_tvm()
    relay = tvm.relay
    if main is None:
        return None
    found = CallGraph([], [], [], [], frozenset())
    read: dict[int, frozenset[int | str]] = {}  # by address: TVM's own hashes and comparisons take most of the time

    def reads_of(nodes: Iterable[Any]) -> frozenset[int | str]:
        return frozenset().union(*(read[node.handle.value] for node in nodes))

    for node in nodes_in(main.body):
        if isinstance(node, tvm.ir.Op):
            continue
        reads: frozenset[int | str] = frozenset()
        if isinstance(node, relay.Call):
            found.reads.append(reads_of(node.args))
            reads = frozenset([len(found.calls)])
            found.calls.append(node)
            found.ops.append(str(getattr(node.op, "name", None) or node.op.name_hint))
            found.numbers.append(number_of(node))
        elif isinstance(node, relay.Tuple):
            reads = reads_of(node.fields)
        elif isinstance(node, relay.TupleGetItem):
            reads = reads_of([node.tuple_value])
        elif isinstance(node, relay.Var):
            reads = frozenset([str(node.name_hint)])
        elif not isinstance(node, relay.Constant):
            return None
        read[node.handle.value] = reads
    return dataclasses.replace(found, results=read[main.body.handle.value])
