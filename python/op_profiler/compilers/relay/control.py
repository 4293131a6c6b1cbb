"""Finds branches and loops of Relay that are decided only at run time; only the virtual machine supports them."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule


def open_control(module: IRModule) -> tuple[str, ...]:
    """Return ``loops`` if a module has a loop, otherwise ``branches`` if it has an ``If``; empty if it has neither. A
    loop is a function that an expression binds to a name (``let``)."""
    relay = load_tvm().relay
    found: set[str] = set()

    def note(one: Any) -> None:
        if isinstance(one, relay.If):
            found.add("branches")
        elif isinstance(one, relay.Let) and isinstance(one.value, relay.Function):
            found.add("loops")

    for function in module.functions.values():
        if isinstance(function, relay.Function):
            relay.analysis.post_order_visit(function, note)
    return ("loops",) if "loops" in found else tuple(found)  # a loop ends by a branch
