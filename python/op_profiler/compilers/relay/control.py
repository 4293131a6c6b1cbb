"""Finds branches and loops of Relay that are decided only at run time; only the virtual machine supports them."""

from __future__ import annotations

from op_profiler.compilers.relay_rewriting import functions_of, nodes_in
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule


def open_control(module: IRModule) -> tuple[str, ...]:
    """Return ``loops`` if a module has a loop, otherwise ``branches`` if it has an ``If``; empty if it has neither. A
    loop is a function that an expression binds to a name (``let``)."""
    relay = load_tvm().relay
    nodes = [node for function in functions_of(module) for node in nodes_in(function)]
    if any(isinstance(node, relay.Let) and isinstance(node.value, relay.Function) for node in nodes):
        return ("loops",)  # which end by a branch
    return ("branches",) if any(isinstance(node, relay.If) for node in nodes) else ()
