"""Calls of packed functions, and their times.

What is timed in its place among others is timed by a loop in native code: one reading of the clock and one call after
the other, and nothing of Python between two kernels, which pushed their data and code out of the caches. The loop is a
function that TVM compiles for this processor, so it takes no C compiler.
"""

from __future__ import annotations

import ctypes
import functools
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.compilers.tvm_types import DeviceArray, Function, PackedFunction, RuntimeModule
from op_profiler.measure.stack import More, StackPlaces

DLTENSOR_HANDLE = 7
"""TVM's type code of a tensor as an argument."""
_WORDS = 6  # of `Call.addresses`
_EMPTY_KERNELS = 64
_EMPTY_RUNS = 15


class Call:
    """A call of a packed function with its arguments bound; `run` raises nothing and answers False where it failed.

    Args:
        values: one an argument, as the 64 bits of a ``TVMValue``.
        codes: TVM's type codes of the arguments.
    """

    def __init__(self, name: str, function: PackedFunction, values: Sequence[int], codes: Sequence[int]) -> None:
        from tvm._ffi.base import _LIB  # TVM is loaded by whoever made the function

        self.name = name
        self.function = function
        count = len(values)
        self._values = (ctypes.c_int64 * max(count, 1))(*values)
        self._codes = (ctypes.c_int * max(count, 1))(*codes)
        self._result = ctypes.c_int64()
        self._result_code = ctypes.c_int()
        self._call = _LIB.TVMFuncCall
        self._arguments = (
            function.handle,
            ctypes.cast(self._values, ctypes.c_void_p),
            ctypes.cast(self._codes, ctypes.c_void_p),
            ctypes.c_int(count),
            ctypes.byref(self._result),
            ctypes.byref(self._result_code),
        )

    @property
    def addresses(self) -> tuple[int, int, int, int, int, int]:
        """What ``TVMFuncCall`` takes, as numbers that hold as long as this object: function, values, codes, count,
        result and its code."""
        return (
            int(ctypes.cast(self.function.handle, ctypes.c_void_p).value or 0),
            ctypes.addressof(self._values),
            ctypes.addressof(self._codes),
            int(self._arguments[3].value),
            ctypes.addressof(self._result),
            ctypes.addressof(self._result_code),
        )

    def run(self, more: More = ()) -> bool:
        """Call it once.

        Args:
            more: arguments that it does not take (`measure/stack.py`).
        """
        return self._call(*self._arguments, *more) == 0


class Kernel(Call):
    """A call of a kernel.

    Args:
        label: the compiler's hash of it.
        arrays: its inputs and outputs.
    """

    def __init__(self, name: str, label: str, function: PackedFunction, arrays: Sequence[DeviceArray]) -> None:
        super().__init__(name, function, [array_address(a) for a in arrays], [DLTENSOR_HANDLE] * len(arrays))
        self.label = label
        self.arrays = list(arrays)

    def error(self) -> str | None:
        """Call the kernel through TVM's checked interface: None, or what it says is wrong."""
        try:
            self.function(*self.arrays)
        except load_tvm().TVMError as error:
            return last_line(error)
        return None


def array_address(array: DeviceArray) -> int:
    """Address of an array's DLTensor, with either of TVM's two Python bindings (Cython, ctypes)."""
    if hasattr(array, "_tvm_handle"):
        return int(array._tvm_handle)
    return int(ctypes.cast(array.handle, ctypes.c_void_p).value or 0)


class TimedCalls:
    """Calls that are made one right after the other, each timed where it stands."""

    def __init__(self, calls: Sequence[Call]) -> None:
        tvm = load_tvm()
        self._calls = tuple(calls)  # keeps what the table points to
        table = np.array([call.addresses for call in calls], dtype=np.int64).reshape(-1, _WORDS)
        self._clock = tvm.nd.array(np.zeros((len(calls) + 1, 2), dtype=np.int64))
        self._failed = tvm.nd.array(np.zeros(len(calls), dtype=np.int32))
        walk = _native()["walk"]
        self._walk = Kernel("walk", "", walk, [self._failed, tvm.nd.array(table), self._clock])

    def run(self, more: More = ()) -> np.ndarray:
        """Make every call once; microseconds of each, shape (calls,), NaN where it failed.

        A time runs from one reading of the clock to the next: it holds the call (`call_overhead_us`).

        Args:
            more: as in `Call.run`.
        """
        self._walk.run(more)
        read = self._clock.numpy()
        times = np.diff(read[:, 0] * 1_000_000_000 + read[:, 1]) / 1e3
        return np.where(self._failed.numpy() == 0, times, np.nan)


def call_overhead_us() -> float:
    """What a call of a kernel takes in `TimedCalls` beyond what it takes in the graph executor, microseconds, now.

    Told by a model of kernels that do nothing: both ways call the same kernels over the same arrays, so what the
    kernel's own checks of its arguments and the executor's step to the next kernel take is left in a time. Sums of
    times without the overhead are therefore times of whole models.
    """
    kernels, whole = _empty_model()
    both = np.array([(kernels.run().sum(), whole.run()[0]) for _ in range(_EMPTY_RUNS)])
    walked_us, run_us = both.min(axis=0)  # of a few microseconds an interruption is all that can differ
    return float(walked_us - run_us) / _EMPTY_KERNELS


@functools.cache
def stack_places() -> StackPlaces:
    """The places that kernels are called from in the graph executor and in `TimedCalls`."""
    return StackPlaces(ExecutorStackProbe())


class ExecutorStackProbe:
    """A `StackProbe` of the graph executor."""

    def __init__(self) -> None:
        tvm = load_tvm()
        from tvm.contrib import graph_executor

        library = _native()
        self._array = tvm.nd.array(np.zeros(1, dtype=np.int64))
        self._kernel = TimedCalls([Kernel("stack", "", library["stack"], [self._array, self._array])])
        self._executor = graph_executor.create(_chain("stack", 1, "int64"), library, tvm.cpu())
        self._run = TimedCalls([Call("run", self._executor.module["run"], [], [])])

    def called(self, more: More = ()) -> int:
        self._kernel.run(more)
        return int(self._array.numpy()[0])

    def called_in_model(self, more: More = ()) -> int:
        self._run.run(more)
        return int(self._executor.get_output(0).numpy()[0])


@functools.cache
def _empty_model() -> tuple[TimedCalls, TimedCalls]:
    """The kernels of a chain of nodes that compute nothing, and the graph executor that runs them."""
    tvm = load_tvm()
    from tvm.contrib import graph_executor

    library = _native()
    executor = graph_executor.create(_chain("nothing", _EMPTY_KERNELS), library, tvm.cpu())
    array = executor.get_output(0)
    kernels = [Kernel("nothing", "", library["nothing"], [array, array])] * _EMPTY_KERNELS
    return TimedCalls(kernels), TimedCalls([Call("run", executor.module["run"], [], [])])


def _chain(function: str, length: int, dtype: str = "float32") -> str:
    """A graph for the executor: each node calls `function` with what the one before wrote, one number."""
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
def _native() -> RuntimeModule:
    """The library with ``walk`` (calls what a table tells, reads the clock between), and two kernels: ``nothing``,
    and ``stack``, which writes where on the stack it is."""
    tvm = load_tvm()
    functions = {"walk": _walk(), "nothing": _nothing(), "stack": _stack()}
    library: RuntimeModule = tvm.build(tvm.IRModule(functions), target="llvm")
    return library


def _walk() -> Function:
    tir = load_tvm().tir
    rows = tir.Var("rows", "int32")
    failed = tir.decl_buffer((rows,), "int32", "failed")
    calls = tir.decl_buffer((rows, _WORDS), "int64", "calls")
    clock = tir.decl_buffer((rows + 1, 2), "int64", "clock")
    builder = tir.ir_builder.create()

    def read_clock(row: object) -> None:
        where = tir.address_of(clock.vload([row, 0]))  # a timespec: two 64-bit words
        builder.emit(tir.call_extern("int32", "clock_gettime", tir.const(time.CLOCK_MONOTONIC, "int32"), where))

    read_clock(0)
    with builder.for_range(0, rows, name="row") as row:
        function, values, codes, count, result, code = (calls.vload([row, word]) for word in range(_WORDS))
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
    return _function("stack", arrays, arrays[1].vstore([0], number))


def _function(name: str, buffers: Sequence[Any], body: object) -> Function:
    tir = load_tvm().tir
    handles = [tir.Var(f"{buffer.name}_handle", "handle") for buffer in buffers]
    function = tir.PrimFunc(handles, body, buffer_map=dict(zip(handles, buffers)))
    named: Function = function.with_attr("global_symbol", name).with_attr("tir.noalias", True)
    return named
