"""TIR functions that read a file and set the thread count on a machine behind RPC, in a separate module because TVM's
parser reads their source."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.remote_model import PROBE_ARGUMENT_BYTES, PROBE_TEXT_BYTES
from op_profiler.compilers.tvm_build import load_tvm


def read() -> Any:
    """Return the TIR function ``op_profiler_read`` of `ProbeCode`, which reads the first bytes of a file."""
    load_tvm()
    from tvm.script import tirx as T

    @T.prim_func(private=True, s_tir=True)
    def read(path_handle: T.handle, text_handle: T.handle, count_handle: T.handle) -> None:
        path = T.match_buffer(path_handle, (PROBE_ARGUMENT_BYTES,), "uint8")
        text = T.match_buffer(text_handle, (PROBE_TEXT_BYTES,), "uint8")
        count = T.match_buffer(count_handle, (1,), "int32")
        file = T.bind(T.call_extern("int32", "open", T.address_of(path[0]), 0))
        count[0] = T.call_extern("int32", "read", file, T.address_of(text[0]), PROBE_TEXT_BYTES)
        T.evaluate(T.call_extern("int32", "close", file))

    return read.with_attr("global_symbol", "op_profiler_read")


def set_threads() -> Any:
    """Return the TIR function ``op_profiler_set`` of `ProbeCode`, which limits the threads of later thread pools."""
    load_tvm()
    from tvm.script import tirx as T

    @T.prim_func(private=True, s_tir=True)
    def set_threads(value_handle: T.handle, answer_handle: T.handle) -> None:
        value = T.match_buffer(value_handle, (PROBE_ARGUMENT_BYTES,), "uint8")
        answer = T.match_buffer(answer_handle, (1,), "int32")
        answer[0] = T.call_extern("int32", "setenv", "TVM_NUM_THREADS", T.address_of(value[0]), 1)

    return set_threads.with_attr("global_symbol", "op_profiler_set")
