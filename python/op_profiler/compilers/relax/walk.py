"""TIR functions that time calls, in a separate module because TVM's parser reads their source."""

from __future__ import annotations

import time
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm

_CLOCK = time.CLOCK_MONOTONIC
_WORDS = 6


def walk() -> Any:
    """Return the TIR function that makes the call described by each row of `calls`, and reads the clock between calls.
    Its arguments are the arrays failed (n,), calls (n, words) and clock (n + 1, 2)."""
    load_tvm()
    from tvm.script import tirx as T

    @T.prim_func(private=True, s_tir=True)
    def walk(failed_handle: T.handle, calls_handle: T.handle, clock_handle: T.handle) -> None:
        rows = T.int32()
        failed = T.match_buffer(failed_handle, (rows,), "int32")
        calls = T.match_buffer(calls_handle, (rows, _WORDS), "int64")
        clock = T.match_buffer(clock_handle, (rows + 1, 2), "int64")
        T.evaluate(T.call_extern("int32", "clock_gettime", _CLOCK, T.address_of(clock[0, 0])))
        for row in T.serial(rows):
            failed[row] = T.call_extern(
                "int32",
                "TVMFFIFunctionCall",
                calls[row, 0],
                calls[row, 1],
                T.Cast("int32", calls[row, 3]),
                calls[row, 4],
            )
            T.evaluate(T.call_extern("int32", "clock_gettime", _CLOCK, T.address_of(clock[row + 1, 0])))

    return walk.with_attr("global_symbol", "walk")


def nothing() -> Any:
    """Return the function that takes two tensors of one float32 and computes nothing."""
    load_tvm()
    from tvm.script import tirx as T

    @T.prim_func(private=True, s_tir=True)
    def nothing(data_handle: T.handle, output_handle: T.handle) -> None:
        data = T.match_buffer(data_handle, (1,), "float32")  # noqa: F841
        output = T.match_buffer(output_handle, (1,), "float32")  # noqa: F841
        T.evaluate(0)

    return nothing.with_attr("global_symbol", "nothing")


def stack() -> Any:
    """Return the function that takes two tensors of one int64 and writes the kernel's stack address into both."""
    load_tvm()
    from tvm.script import tirx as T

    @T.prim_func(private=True, s_tir=True)
    def stack(data_handle: T.handle, output_handle: T.handle) -> None:
        data = T.match_buffer(data_handle, (1,), "int64")
        output = T.match_buffer(output_handle, (1,), "int64")
        with T.sblock("address"):  # Relax's passes look for a block
            # TIR casts no pointer to a number; an address is above zero
            data[0] = T.call_extern("int64", "labs", T.call_llvm_intrin("handle", "llvm.frameaddress.p0", 0))
            output[0] = data[0]

    return stack.with_attr("global_symbol", "stack")
