"""Compilers, which turn models into kernels: the contract of a compiler, and one folder for each compiler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.registry import DEFAULT_COMPILER, Entry, Registry

if TYPE_CHECKING:
    from op_profiler.compilers.compiler import Compiler

__all__ = ["COMPILERS", "DEFAULT_COMPILER"]

COMPILERS: Registry[Compiler] = Registry(
    "compilers",
    "compiler",
    "op_profiler.compilers.compiler:Compiler",
    {
        "relay": Entry(
            "op_profiler.compilers.relay.relay_compiler:RELAY", "Relay and AutoTVM's schedules, of TVM 0.8 to 0.19"
        ),
        "relax": Entry("op_profiler.compilers.relax.relax_compiler:RELAX", "Relax of TVM 0.27, installed next to it"),
    },
)
