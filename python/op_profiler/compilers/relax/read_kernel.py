"""Reads the loops of a kernel under its default schedule, and counts the instructions of its code."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.executed import executed
from op_profiler.compilers.loop_nest import Kernel
from op_profiler.compilers.loop_reader import Language, Reader
from op_profiler.compilers.relax.code import plain_loops
from op_profiler.compilers.relax.rules import schedule_function
from op_profiler.compilers.relax.vectors import vectors_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.compilers.tvm_types import Target
from op_profiler.errors import ModelError


def read_kernel(function: Any, target: Target, lanes: int) -> Kernel:
    """Build a function for a processor, and return its loops and instruction counts.

    Args:
        function: ``tvm.tirx.PrimFunc``, scheduled or not.
        lanes: number of 32-bit values in a vector register of the target.

    Raises:
        ModelError: TVM does not lower the function, or it computes nothing.
    """
    tvm = load_tvm()
    made = (
        function
        if "tirx.is_scheduled" in (function.attrs or {})
        else schedule_function(function, vectors_of(target))[0]
    )
    try:
        with target:
            module = tvm.IRModule({"main": made.with_attr("global_symbol", "main")})
            nests = Reader(_language(tvm), _flattened(tvm)(module)["main"]).nests()
            code = str(tvm.tirx.build(module, target=target).inspect_source("ll"))
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"no loops: {last_line(error)}") from error
    if not nests:
        raise ModelError("it has no loops")
    return Kernel(nests, executed(code, lanes))


def _language(tvm: Any) -> Language:
    """Return the names of this TVM's nodes; a function first declares its arguments' buffers, and allocates others."""
    return Language(
        tvm.tirx,
        tvm.ir.Call,
        tvm.ir.TensorLoad,
        identify=lambda node: int(node.__chandle__()),
        tensor=lambda buffer: buffer,
        arguments=lambda made: [one.buffer for one in made.body.seq if isinstance(one, tvm.tirx.DeclBuffer)],
    )


def _flattened(tvm: Any) -> Any:
    """Return the passes until tensors are flat and loops still have their annotations."""
    return tvm.transform.Sequential([plain_loops(), tvm.tirx.transform.FlattenBuffer()])
