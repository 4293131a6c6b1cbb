"""Calls of functions of TVM's FFI, and the loop that times them (`op_profiler.compilers.calls`)."""

from __future__ import annotations

import ctypes
import functools
import struct
from typing import Any

from op_profiler.compilers.bound_kernel import BoundKernel
from op_profiler.compilers.relax import walk
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import RuntimeModule

_INTEGER, _FLOAT, _TENSOR = 1, 3, 70  # TVM's type indices of arguments


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


class FfiCall(BoundKernel):
    """A call by ``TVMFFIFunctionCall`` that returns nothing; its arguments are tensors and numbers."""

    def _bind(self) -> tuple[Any, tuple[Any, ...]]:
        count = len(self.arguments)
        self._values = (_Any * max(count, 1))()
        for value, argument in zip(self._values, self.arguments):
            if isinstance(argument, int):
                value.type_index, value.value = _INTEGER, argument
            elif isinstance(argument, float):
                value.type_index, value.value = _FLOAT, struct.unpack("q", struct.pack("d", argument))[0]
            else:
                value.type_index, value.value = _TENSOR, argument.__chandle__()
        self._result = _Any()
        return _function_call(), (self.function.__chandle__(), self._values, count, ctypes.byref(self._result))

    @property
    def addresses(self) -> tuple[int, int, int, int, int, int]:
        """See `BoundKernel.addresses`; the addresses of type codes are 0, because each value contains its type."""
        values, result = ctypes.addressof(self._values), ctypes.addressof(self._result)
        return int(self.function.__chandle__()), values, 0, len(self.arguments), result, 0


@functools.cache
def call_library() -> RuntimeModule:
    """See `RuntimeContract.call_library`."""
    tvm = load_tvm()
    module = tvm.IRModule({"walk": walk.walk(), "stack": walk.stack()})
    library: RuntimeModule = tvm.tirx.build(module, target=tvm.target.Target("llvm"))
    return library
