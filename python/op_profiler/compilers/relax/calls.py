"""Calls of functions of TVM's FFI, and their times: what `op_profiler.measure.calls` is for the TVM with Relay.

The loop that makes the calls is a function that TVM compiles: it reads the clock, and calls ``TVMFFIFunctionCall`` row
by row of a table.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.measure.stack import More, StackPlaces

_INTEGER, _FLOAT, _TENSOR = 1, 3, 70  # TVM's type indices of arguments
_WORDS = 6  # of `Call.addresses`
_RUNS = 15
_EMPTY_KERNELS = 64


class _Any(ctypes.Structure):
    """``TVMFFIAny``: an argument or a result."""

    _fields_ = (("type_index", ctypes.c_int32), ("padding", ctypes.c_uint32), ("value", ctypes.c_int64))


@functools.cache
def _function_call() -> Any:
    load_tvm()
    import tvm_ffi

    call = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi()).TVMFFIFunctionCall
    call.restype = ctypes.c_int
    call.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Any), ctypes.c_int32, ctypes.POINTER(_Any)]
    return call


class Call:
    """A call of a function with its arguments bound; it returns nothing, and `run` answers False where it failed.

    Args:
        label: the compiler's name of the kernel that it is.
        function: ``tvm_ffi.Function``.
        arguments: tensors and numbers.
        name: of the function, where that is another.
    """

    def __init__(self, label: str, function: Any, arguments: Sequence[Any], name: str = "") -> None:
        self.name, self.label = name or label, label
        self.function = function
        self.arguments = tuple(arguments)  # keeps what the table points to
        self.arrays = [argument for argument in arguments if not isinstance(argument, (int, float))]
        self._values = (_Any * max(len(arguments), 1))()
        for value, argument in zip(self._values, arguments):
            if isinstance(argument, int):
                value.type_index, value.value = _INTEGER, argument
            elif isinstance(argument, float):
                value.type_index, value.value = _FLOAT, struct.unpack("q", struct.pack("d", argument))[0]
            else:
                value.type_index, value.value = _TENSOR, argument.__chandle__()
        self._result = _Any()
        self._call = _function_call()
        self._bound = (function.__chandle__(), self._values, len(arguments), ctypes.byref(self._result))

    @property
    def addresses(self) -> tuple[int, int, int, int, int, int]:
        """What ``TVMFFIFunctionCall`` takes, in the places of `BoundKernel.addresses`; arguments have their types."""
        values, result = ctypes.addressof(self._values), ctypes.addressof(self._result)
        return int(self.function.__chandle__()), values, 0, len(self.arguments), result, 0

    def run(self, more: More = ()) -> bool:
        """Call it once.

        Args:
            more: arguments that it does not take (`measure/stack.py`).
        """
        return bool(self._call(*self._bound, *more) == 0)

    def error(self) -> str | None:
        """Call it with TVM's checks: None, or what is wrong with it."""
        try:
            self.function(*self.arguments)
        except (RuntimeError, ValueError, TypeError) as error:
            return last_line(error)
        return None


class TimedCalls:
    """Calls that are made one right after the other, each timed where it stands."""

    def __init__(self, calls: Sequence[Call]) -> None:
        tensor = load_tvm().runtime.tensor
        self._calls = tuple(calls)
        self._clock = tensor(np.zeros((len(calls) + 1, 2), dtype=np.int64))
        self._failed = tensor(np.zeros(len(calls), dtype=np.int32))
        table = np.array([call.addresses for call in calls], dtype=np.int64).reshape(-1, _WORDS)
        self._walk = Call("walk", _native()["walk"], [self._failed, tensor(table), self._clock])

    def run(self, more: More = ()) -> np.ndarray:
        """Make every call once; microseconds of each, shape (calls,), NaN where it failed.

        Args:
            more: as in `Call.run`.
        """
        self._walk.run(more)
        read = self._clock.numpy()
        times = np.diff(read[:, 0] * 1_000_000_000 + read[:, 1]) / 1e3
        return np.where(self._failed.numpy() == 0, times, np.nan)


@functools.cache
def _native() -> Any:
    """The library with ``walk`` (calls what a table tells, reads the clock between) and ``stack`` (a kernel that
    writes where on the stack it is)."""
    tvm = load_tvm()
    from op_profiler.compilers.relax.walk import stack, walk

    module = tvm.IRModule({"walk": walk(), "stack": stack()})
    return tvm.tirx.build(module, target=tvm.target.Target("llvm"))


def call_overhead_us() -> float:
    """What a call of a kernel takes in `TimedCalls` beyond what it takes in the virtual machine, microseconds, now.

    The virtual machine also makes the kernel's output a tensor, so this is below zero. Told by a model of kernels that
    do nothing.
    """
    kernels, whole = _empty_model()
    both = np.array([(kernels.run().sum(), whole.run()[0]) for _ in range(_RUNS)])
    walked_us, run_us = both.min(axis=0)  # of a few microseconds an interruption is all that can differ
    return float(walked_us - run_us) / _EMPTY_KERNELS


@functools.cache
def stack_places() -> StackPlaces:
    """The places that kernels are called from in the virtual machine and in `TimedCalls`."""
    return StackPlaces(VmStackProbe())


class VmStackProbe:
    """A `StackProbe` of the virtual machine."""

    def __init__(self) -> None:
        tvm = load_tvm()
        from op_profiler.compilers.relax.walk import stack

        self._array = tvm.runtime.tensor(np.zeros(1, dtype=np.int64))
        self._kernel = TimedCalls([Call("stack", _native()["stack"], [self._array, self._array])])
        self._machine = tvm.relax.VirtualMachine(_chain(stack(), 1, "int64"), tvm.cpu())
        self._machine.save_function("main", "run", self._array, include_return=False)
        self._run = TimedCalls([Call("run", self._machine.module["run"], [])])

    def called(self, more: More = ()) -> int:
        self._kernel.run(more)
        return int(self._array.numpy()[0])

    def called_in_model(self, more: More = ()) -> int:
        self._run.run(more)
        return int(self._array.numpy()[0])


@functools.cache
def _empty_model() -> tuple[TimedCalls, TimedCalls]:
    """The kernels of a chain that computes nothing, and the virtual machine that runs them."""
    tvm = load_tvm()
    from op_profiler.compilers.relax.kernels import load_kernels
    from op_profiler.compilers.relax.walk import nothing

    executable = _chain(nothing(), _EMPTY_KERNELS, "float32")
    loaded = load_kernels(executable, tvm.cpu(), {"data": np.zeros(1, dtype="float32")})
    return TimedCalls(loaded.kernels), TimedCalls([loaded.whole])


def _chain(function: Any, length: int, dtype: str) -> Any:
    """A model that is built: each call of the kernel reads what the one before wrote, one number."""
    tvm = load_tvm()
    from op_profiler.compilers.relax.pipeline import finish

    relax = tvm.relax
    builder = relax.BlockBuilder()
    one = relax.TensorType((1,), dtype)
    data = value = relax.Var("data", one)
    kernel = builder.add_func(function, "kernel")
    with builder.function("main", [data]):
        with builder.dataflow():
            for _ in range(length):
                value = builder.emit(relax.call_tir(kernel, [value], one))
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    return finish(builder.get(), tvm.target.Target("llvm"))
