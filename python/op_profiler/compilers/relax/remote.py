"""Relax models behind RPC. RPC does not support the virtual machine's instrument, so kernels get separate tensors with
the shapes of the model."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from op_profiler.compilers.compiled_model import CompiledModel, PlannedTensor
from op_profiler.compilers.relax.decoder.library import DecoderLibrary
from op_profiler.compilers.relax.probe import read, set_threads
from op_profiler.compilers.remote_model import RemoteKernel, RemoteMachine
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray, Target
from op_profiler.errors import MeasureError

_MAIN = "main"
_LOADS_MACHINES = "ffi.Module.load_from_bytes.relax.VMExecutable"


class RemoteVm:
    """Kernels on the remote machine, and the virtual machine if the runtime has one (a `RemoteModel`).

    Each tensor of the model has memory of its own on the remote machine, and the virtual machine's code contains a
    second copy of the weights.
    """

    has_profiler = False

    def __init__(self, compiled: CompiledModel, machine: RemoteMachine, inputs: dict[str, np.ndarray]) -> None:
        if isinstance(compiled.library, DecoderLibrary):
            raise MeasureError(
                "steps of a decoder run on this machine only: their KV cache reports its kernels to this process"
            )
        (code,) = compiled.library.executable.mod.imports
        self._device = machine.device
        self.library = machine.upload(code)
        self._inputs = dict(inputs)
        self._planned = compiled.tensors
        values = dict(inputs) | {name: one.numpy() for name, one in compiled.library.weights.items()}
        self.buffers: list[DeviceArray] = []
        for tensor in compiled.tensors:
            self.buffers.append(self._tensor(tensor, values))
        self._answers = [self.buffers[number] for number in compiled.outputs]
        self.kernels = [
            RemoteKernel(c.name, c.label, [self.buffers[n] for n in (*c.reads, *c.writes)]) for c in compiled.calls
        ]
        self._functions = [self.library.get_function(call.name) for call in compiled.calls]
        for function, (_, _, arrays) in zip(self._functions, self.kernels):  # writes the indices that are read
            function(*arrays)
        self._vm = self._started(machine, compiled)

    def _tensor(self, planned: PlannedTensor, values: dict[str, np.ndarray]) -> Any:
        tvm = load_tvm()
        if planned.given:
            return tvm.runtime.tensor(values[planned.given], self._device)
        if planned.view_of is not None:
            return self.buffers[planned.view_of]._create_view(planned.shape, planned.dtype)  # type: ignore[attr-defined]
        return tvm.runtime.empty(planned.shape, planned.dtype, self._device)

    def _started(self, machine: RemoteMachine, compiled: CompiledModel) -> Any:
        """Return a ``relax.VirtualMachine`` on the remote machine that ran once; None if its runtime has none."""
        try:
            machine.session.get_function(_LOADS_MACHINES)
        except (AttributeError, RuntimeError):
            return None
        vm = load_tvm().relax.VirtualMachine(machine.upload(compiled.library.executable.mod), self._device)
        self._give(vm)
        vm.invoke_stateful(_MAIN)
        return vm

    def _give(self, vm: Any) -> None:
        tensor = load_tvm().runtime.tensor
        vm.set_input(_MAIN, *[tensor(value, self._device) for value in self._inputs.values()])

    @property
    def outputs(self) -> list[DeviceArray]:
        """Return the outputs of the last run: those of the virtual machine, or those of the kernels if the remote
        runtime has no virtual machine."""
        if self._vm is None:
            return self._answers
        found = self._vm.get_outputs(_MAIN)
        return [found] if hasattr(found, "numpy") else list(found)

    @property
    def timed_run(self) -> Callable[[], float] | None:
        """Return a function that times one run of the virtual machine on the remote machine, in microseconds; None if
        the remote runtime has no virtual machine."""
        if self._vm is None:
            return None
        evaluator = self._vm.time_evaluator("invoke_stateful", self._device, number=1, repeat=1)
        return lambda: float(evaluator(_MAIN).results[0]) * 1e6

    def set_input(self, name: str, value: np.ndarray) -> None:
        """Copy the values into the arrays of the kernels and into the virtual machine."""
        self._inputs[name] = value
        for planned, buffer in zip(self._planned, self.buffers):
            if planned.given == name:
                buffer.copyfrom(value)
        if self._vm is not None:
            self._give(self._vm)

    def run(self) -> None:
        """Run the virtual machine once; if the remote runtime has no virtual machine, call the kernels in order."""
        if self._vm is not None:
            self._vm.invoke_stateful(_MAIN)
            return
        for function, (_, _, arrays) in zip(self._functions, self.kernels):
            function(*arrays)

    def profile(self) -> list[tuple[str, float]]:
        """Raise MeasureError: the virtual machine of Relax has no profiler."""
        raise MeasureError("the virtual machine has no profiler")

    def release(self, *, session_lost: bool) -> None:
        """Drop all references to remote arrays and functions, which frees them."""
        del self.buffers, self.kernels, self._answers, self._functions, self._vm, self.library


def probe_code(target: Target) -> Any:
    """Return a `ProbeCode` for a target."""
    tvm = load_tvm()
    # TVM's parser keeps the frames of its callers, and with them the session: in a thread there are none of ours.
    with ThreadPoolExecutor(1) as elsewhere:
        functions = {"op_profiler_read": read, "op_profiler_set": set_threads}
        module = tvm.IRModule({name: elsewhere.submit(make).result() for name, make in functions.items()})
    return tvm.tirx.build(module, target=target)
