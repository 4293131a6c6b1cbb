"""Rewrites calls of a Relay module, without the recursion of TVM's own mutators, which deep models exceed. Also sets
and reads the spans of calls, which are the texts of their locations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Call, Function, IRModule, Node

Replace = Callable[[Call, list[Node]], Node | None]
"""Returns the replacement of a call, given the call and its new arguments; None to keep the call."""


def main_of(module: IRModule) -> Function | None:
    """Return the function ``main`` of a module; None if the module has no ``main`` that is a Relay function."""
    found = (function for variable, function in module.functions.items() if variable.name_hint == "main")
    main: Function | None = next(found, None)
    return main if isinstance(main, load_tvm().relay.Function) else None


def functions_of(module: IRModule) -> list[Any]:
    """Return the functions of a module that are Relay functions."""
    return [one for one in module.functions.values() if isinstance(one, load_tvm().relay.Function)]


def nodes_in(expression: Node) -> list[Any]:
    """Return all nodes of an expression, each after the nodes that it reads."""
    found: list[Any] = []
    load_tvm().relay.analysis.post_order_visit(expression, found.append)
    return found


def calls_in(expression: Node) -> list[Any]:
    """Return all calls in an expression, each after the calls that it reads."""
    return [node for node in nodes_in(expression) if isinstance(node, load_tvm().relay.Call)]


def rebuilt(module: IRModule, replace: Replace) -> Node | None:
    """Return the body of ``main`` after `replace` replaced calls; None if it replaced none, or if the body is not a
    plain graph of calls.

    Nodes that are not replaced keep their types.
    """
    tvm = load_tvm()
    relay = tvm.relay
    main = main_of(module)
    if main is None:
        return None
    new: dict[int, Node] = {}  # by address: TVM's own hashes and comparisons take most of the time

    def current(nodes: Iterable[Node]) -> tuple[list[Node], bool]:
        """Return the nodes after replacement, and whether any of them is new."""
        before = list(nodes)
        after = [new.get(node.handle.value, node) for node in before]
        return after, any(one is not other for one, other in zip(after, before))

    for node in nodes_in(main.body):
        if isinstance(node, relay.Call):
            arguments, changed = current(node.args)
            found = replace(node, arguments)
            if found is None and changed:
                found = relay.expr.CallWithFields(node, None, arguments, None, None, None, None)
            if found is not None:
                new[node.handle.value] = found
        elif isinstance(node, relay.Tuple):
            fields, changed = current(node.fields)
            if changed:
                new[node.handle.value] = relay.expr.TupleWithFields(node, fields, None, None)
        elif isinstance(node, relay.TupleGetItem):
            (value,), changed = current([node.tuple_value])
            if changed and isinstance(value, relay.Tuple):
                new[node.handle.value] = value.fields[node.index]
            elif changed:
                new[node.handle.value] = relay.expr.TupleGetItemWithFields(node, value, None, None, None)
        elif not isinstance(node, (relay.Var, relay.Constant, tvm.ir.Op)):
            return None
    return new.get(main.body.handle.value)


def with_locations(module: IRModule, location_of: Callable[[Call], str]) -> IRModule:
    """Return a module whose calls name their locations in their spans.

    Args:
        location_of: returns the text of the location of a call; empty if it is unknown.
    """
    tvm = load_tvm()
    relay = tvm.relay

    def named(call: Call, arguments: list[Node]) -> Node | None:
        location = location_of(call)
        if location == location_in_span(call):
            return None
        span = relay.Span(relay.SourceName(location), 0, 0, 0, 0)
        return relay.expr.CallWithFields(call, None, arguments, None, None, None, span)

    return with_body(tvm.IRModule(module.functions, module.type_definitions), rebuilt(module, named))


def location_in_span(call: Call) -> str:
    """Return the text of the location that a frontend stored in the span of a call; empty if the call has no span."""
    span = call.span
    return str(span.source_name.name) if span else ""


def with_body(module: IRModule, body: Node | None) -> IRModule:
    """Replace the body of ``main`` in place by one with the same types, if `body` is not None; return the module."""
    if body is not None:
        variable = module.get_global_var("main")
        change = load_tvm().relay.function.FunctionWithFields
        module.update_func(variable, change(module[variable], None, body, None, None, None, None, None))
    return module


def with_location_of(call: Call, made: Call) -> Call:
    """Return the new call `made` with the location of `call`, which it replaces."""
    span = call.span if location_in_span(call) else None
    return load_tvm().relay.expr.CallWithFields(made, None, None, None, None, None, span)


def fixed_shape(tensor: Node) -> tuple[int, ...]:
    """Return the shape of a tensor; empty if a size is known only at run time."""
    shape: Iterable[Any] = getattr(tensor.checked_type, "shape", ())
    found = tuple(getattr(size, "value", None) for size in shape)
    return () if None in found else tuple(int(size or 0) for size in found)
