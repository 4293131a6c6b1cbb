"""Calls of packed functions of the TVM with Relay, and the loop that times them (`op_profiler.compilers.calls`)."""

from __future__ import annotations

import ctypes
import functools
import json
import time
from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.bound_kernel import WORDS, BoundKernel
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray, Function, RuntimeModule

_DLTENSOR_HANDLE = 7
"""TVM's type code of a tensor as an argument."""


class PackedCall(BoundKernel):
    """A call by ``TVMFuncCall``; its arguments are tensors."""

    def _bind(self) -> tuple[Any, tuple[Any, ...]]:
        library = load_tvm()._ffi.base._LIB
        count = len(self.arguments)
        self._values = (ctypes.c_int64 * max(count, 1))(*map(array_address, self.arguments))
        self._codes = (ctypes.c_int * max(count, 1))(*[_DLTENSOR_HANDLE] * count)
        self._result, self._result_code = ctypes.c_int64(), ctypes.c_int()
        return library.TVMFuncCall, (
            self.function.handle,
            ctypes.cast(self._values, ctypes.c_void_p),
            ctypes.cast(self._codes, ctypes.c_void_p),
            ctypes.c_int(count),
            ctypes.byref(self._result),
            ctypes.byref(self._result_code),
        )

    @property
    def addresses(self) -> tuple[int, int, int, int, int, int]:
        """See `BoundKernel.addresses`; this interface uses all six values."""
        function = int(ctypes.cast(self.function.handle, ctypes.c_void_p).value or 0)
        values, codes = ctypes.addressof(self._values), ctypes.addressof(self._codes)
        result, code = ctypes.addressof(self._result), ctypes.addressof(self._result_code)
        return function, values, codes, len(self.arguments), result, code


def array_address(array: DeviceArray) -> int:
    """Return the address of an array's DLTensor, with either of TVM's two Python bindings (Cython, ctypes)."""
    if hasattr(array, "_tvm_handle"):
        return int(array._tvm_handle)
    return int(ctypes.cast(array.handle, ctypes.c_void_p).value or 0)


def chain(kernel: str, length: int, dtype: str) -> tuple[list[BoundKernel], BoundKernel]:
    """See `RuntimeContract.chain`."""
    tvm = load_tvm()
    graph_executor = tvm.contrib.graph_executor
    library = call_library()
    executor = graph_executor.create(_graph(kernel, length, dtype), library, tvm.cpu())
    arrays = [executor.get_input(0), executor.get_output(0)]
    return [PackedCall(kernel, "", library[kernel], arrays)] * length, PackedCall("run", "", executor.module["run"])


def _graph(function: str, length: int, dtype: str) -> str:
    """Return the JSON for the graph executor: each node calls `function` with the output of the previous one, one
    number."""
    nodes: list[dict[str, Any]] = [{"op": "null", "name": "data", "inputs": []}]
    for index in range(length):
        attrs = {"func_name": function, "num_inputs": "1", "num_outputs": "1", "flatten_data": "0"}
        nodes.append({"op": "tvm_op", "name": f"call{index}", "attrs": attrs, "inputs": [[index, 0, 0]]})
    entries = length + 1
    plan = {
        "dltype": ["list_str", [dtype] * entries],
        "shape": ["list_shape", [[1]] * entries],
        "storage_id": ["list_int", [index % 2 for index in range(entries)]],
    }
    pointers = list(range(entries + 1))
    graph = {"nodes": nodes, "arg_nodes": [0], "heads": [[length, 0, 0]], "node_row_ptr": pointers, "attrs": plan}
    return json.dumps(graph)


@functools.cache
def call_library() -> RuntimeModule:
    """See `RuntimeContract.call_library`."""
    tvm = load_tvm()
    functions = {"walk": _walk(), "nothing": _nothing(), "stack": _stack()}
    library: RuntimeModule = tvm.build(tvm.IRModule(functions), target="llvm")
    return library


def _walk() -> Function:
    tir = load_tvm().tir
    rows = tir.Var("rows", "int32")
    failed = tir.decl_buffer((rows,), "int32", "failed")
    calls = tir.decl_buffer((rows, WORDS), "int64", "calls")
    clock = tir.decl_buffer((rows + 1, 2), "int64", "clock")
    builder = tir.ir_builder.create()

    def read_clock(row: object) -> None:
        where = tir.address_of(clock.vload([row, 0]))  # a timespec: two 64-bit words
        builder.emit(tir.call_extern("int32", "clock_gettime", tir.const(time.CLOCK_MONOTONIC, "int32"), where))

    read_clock(0)
    with builder.for_range(0, rows, name="row") as row:
        function, values, codes, count, result, code = (calls.vload([row, word]) for word in range(WORDS))
        count = tir.Cast("int32", count)
        called = tir.call_extern("int32", "TVMFuncCall", function, values, codes, count, result, code)
        builder.emit(failed.vstore([row], called))
        read_clock(row + 1)
    return _function("walk", [failed, calls, clock], builder.get())


def _nothing() -> Function:
    tir = load_tvm().tir
    arrays = [tir.decl_buffer((1,), "float32", name) for name in ("data", "output")]
    return _function("nothing", arrays, tir.Evaluate(tir.const(0, "int32")))


def _stack() -> Function:
    tir = load_tvm().tir
    arrays = [tir.decl_buffer((1,), "int64", name) for name in ("data", "output")]
    one_signature, own_frame = tir.const(1, "uint32"), tir.const(0, "int32")
    frame = tir.call_llvm_intrin("handle", "llvm.frameaddress.p0", one_signature, own_frame)
    number = tir.call_extern("int64", "labs", frame)  # TIR casts no pointer to a number; an address is above zero
    return _function("stack", arrays, arrays[0].vstore([0], number))


def _function(name: str, buffers: Sequence[Any], body: object) -> Function:
    tir = load_tvm().tir
    handles = [tir.Var(f"{buffer.name}_handle", "handle") for buffer in buffers]
    function = tir.PrimFunc(handles, body, buffer_map=dict(zip(handles, buffers)))
    named: Function = function.with_attr("global_symbol", name).with_attr("tir.noalias", True)
    return named
