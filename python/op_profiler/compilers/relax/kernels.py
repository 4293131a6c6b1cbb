"""The kernels of a built model, called one by one in order on the buffers of the virtual machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from op_profiler.compilers.bound_kernel import BoundKernel
from op_profiler.compilers.calls import flusher
from op_profiler.compilers.relax import walk
from op_profiler.compilers.relax.calls import FfiCall
from op_profiler.compilers.relax.pipeline import finish
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import RuntimeDevice
from op_profiler.measure.in_place import InPlaceKernels

_BUILTIN = "vm.builtin"
_MAIN = "main"
_RUN = "op_profiler_run"


@dataclasses.dataclass(eq=False)
class RelaxKernels(InPlaceKernels):
    """A model in the virtual machine, and its kernels in order, bound to the buffers of one run (a `LoadedModel`).

    The machine allocates the buffers, so there is no copy at other addresses.

    Attributes (beside those of `InPlaceKernels`):
        machine: ``relax.VirtualMachine``.
    """

    machine: Any

    def output_arrays(self) -> list[np.ndarray]:
        """Run the model once and return its outputs on the host."""
        outputs = self.machine[_RUN]()
        return [np.asarray(output.numpy()) for output in ([outputs] if hasattr(outputs, "numpy") else outputs)]


def load_kernels(executable: Any, device: RuntimeDevice, inputs: Mapping[str, np.ndarray]) -> RelaxKernels:
    """Run a model once and record every call of a kernel with its buffers.

    Args:
        executable: ``relax.VMExecutable``.
        device: ``tvm.runtime.Device``.
        inputs: one array per input of ``main``, in order.
    """
    tensors = [load_tvm().runtime.tensor(value, device) for value in inputs.values()]
    return kernels_of_run(executable, device, _MAIN, (tensors, tensors), [])


def kernels_of_run(
    executable: Any,
    device: RuntimeDevice,
    function: str,
    arguments: tuple[list[Any], list[Any]],
    kept: list[BoundKernel],
) -> RelaxKernels:
    """Run a function of the virtual machine once and record every call of a kernel with its buffers.

    Args:
        arguments: arguments of this run, and of the runs that are timed as a whole.
        kept: list to which the calls are added; arguments such as a KV cache may add their own calls to it.
    """
    tvm = load_tvm()
    noted, timed = arguments

    def note(kernel: Any, symbol: str, before: bool, _result: Any, *given: Any) -> int:
        if before and not str(symbol).startswith(_BUILTIN) and str(symbol) != _MAIN:
            call = FfiCall(str(symbol), str(symbol), kernel, given)
            kept.extend([call] if call.arrays else [])  # a call without tensors computes a size
        return 0

    machine = tvm.relax.VirtualMachine(executable, device)
    machine.set_instrument(note)
    machine[function](*noted)
    running = tvm.relax.VirtualMachine(executable, device)  # an instrument stays, and would slow the whole model down
    running.save_function(function, _RUN, *timed)
    running.save_function(function, f"{_RUN}_timed", *timed, include_return=False)
    whole = FfiCall("run", "", running.module[f"{_RUN}_timed"])
    return RelaxKernels(tuple(kept), whole, flusher(), running)


def chain(kernel: str, length: int, dtype: str) -> tuple[tuple[BoundKernel, ...], BoundKernel]:
    """See `RuntimeContract.chain`."""
    tvm = load_tvm()
    relax = tvm.relax
    builder = relax.BlockBuilder()
    one = relax.TensorType((1,), dtype)
    data = value = relax.Var("data", one)
    function = builder.add_func(getattr(walk, kernel)(), "kernel")
    with builder.function("main", [data]):
        with builder.dataflow():
            for _ in range(length):
                value = builder.emit(relax.call_tir(function, [value], one))
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    executable = finish(builder.get(), tvm.target.Target("llvm"))
    loaded = load_kernels(executable, tvm.cpu(), {"data": np.zeros(1, dtype=dtype)})
    return loaded.kernels, loaded.whole
