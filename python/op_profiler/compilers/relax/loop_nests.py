"""The loops of a kernel under its default schedule, before any code is generated."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.loop_nest import LoopNest
from op_profiler.compilers.loop_reader import Language, Reader
from op_profiler.compilers.relax.code import plain_loops
from op_profiler.compilers.relax.rules import schedule_function
from op_profiler.compilers.relax.vectors import vectors_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.compilers.tvm_types import Target
from op_profiler.errors import ModelError


def loop_nests(function: Any, target: Target) -> tuple[LoopNest, ...]:
    """The statements of a kernel in their order.

    Args:
        function: ``tvm.tirx.PrimFunc``, not scheduled.

    Raises:
        ModelError: TVM does not lower it, or it computes nothing.
    """
    tvm = load_tvm()
    made = (
        function
        if "tirx.is_scheduled" in (function.attrs or {})
        else schedule_function(function, vectors_of(target))[0]
    )
    try:
        with target:
            flat = _flattened(tvm)(tvm.IRModule({"main": made.with_attr("global_symbol", "main")}))["main"]
        nests = Reader(_language(tvm), flat).nests()
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"no loops: {last_line(error)}") from error
    if not nests:
        raise ModelError("it has no loops of its own")
    return nests


def _language(tvm: Any) -> Language:
    """A function declares the buffers of its arguments first; all others are allocated."""
    return Language(
        tvm.tirx,
        tvm.ir.Call,
        tvm.ir.TensorLoad,
        identify=lambda node: int(node.__chandle__()),
        tensor=lambda buffer: buffer,
        arguments=lambda made: [one.buffer for one in made.body.seq if isinstance(one, tvm.tirx.DeclBuffer)],
    )


def _flattened(tvm: Any) -> Any:
    """Passes until tensors are flat and loops still have their marks."""
    return tvm.transform.Sequential([plain_loops(), tvm.tirx.transform.FlattenBuffer()])
