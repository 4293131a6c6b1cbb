"""The kernels of a built model, called one by one in order on the buffers that the virtual machine gave them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from op_profiler.compilers.relax.calls import Call, TimedCalls, call_overhead_us, stack_places
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import RuntimeDevice
from op_profiler.measure.in_place import InPlaceKernels, Walk
from op_profiler.measure.measurement import Cache
from op_profiler.measure.stack import StackPlaces

_BUILTIN = "vm.builtin"
_MAIN = "main"
_RUN = "op_profiler_run"


@dataclasses.dataclass(eq=False)
class VmKernels(InPlaceKernels[Call]):
    """A model in the virtual machine, and its kernels in order over buffers of one of its runs (a `LoadedModel`).

    Attributes (beside those of `InPlaceKernels`):
        whole: the call that runs the model.
        machine: ``relax.VirtualMachine``.
    """

    kernels: tuple[Call, ...]
    whole: Call
    flush: Callable[[Call], Call] | None
    machine: Any
    _walks: dict[tuple[Cache, tuple[bool, ...]], Walk] = dataclasses.field(default_factory=dict, init=False, repr=False)

    def moved(self) -> VmKernels:
        return self

    def run(self) -> None:
        """Run the whole model; on a GPU, launch it."""
        self.whole.run()

    def _run(self) -> None:
        self.run()

    @functools.cached_property
    def _whole(self) -> TimedCalls:
        return TimedCalls([self.whole])

    @property
    def _places(self) -> StackPlaces:
        return stack_places()

    def _timed(self, calls: Sequence[object]) -> TimedCalls:
        return TimedCalls(cast("Sequence[Call]", calls))

    def call_overhead_us(self) -> float:
        return call_overhead_us()

    def output_arrays(self) -> list[np.ndarray]:
        outputs = self.machine[_RUN]()
        return [np.asarray(output.numpy()) for output in ([outputs] if hasattr(outputs, "numpy") else outputs)]


def load_kernels(executable: Any, device: RuntimeDevice, inputs: Mapping[str, np.ndarray]) -> VmKernels:
    """Run a model once and keep every call of a kernel with its buffers.

    Args:
        executable: ``relax.VMExecutable``.
        device: ``tvm.runtime.Device``.
        inputs: one array per input of ``main``, in order.
    """
    tensors = [load_tvm().runtime.tensor(value, device) for value in inputs.values()]
    return kernels_of_run(executable, device, _MAIN, (tensors, tensors), [])


def kernels_of_run(
    executable: Any, device: RuntimeDevice, function: str, arguments: tuple[list[Any], list[Any]], kept: list[Call]
) -> VmKernels:
    """Run a function of the virtual machine once and keep every call of a kernel with its buffers.

    Args:
        arguments: of that run, and of those that are timed as a whole.
        kept: where the calls go, beside those that the function's own arguments note there.
    """
    tvm = load_tvm()
    noted, timed = arguments

    def note(kernel: Any, symbol: str, before: bool, _result: Any, *given: Any) -> int:
        if before and not str(symbol).startswith(_BUILTIN) and str(symbol) != _MAIN:
            call = Call(str(symbol), kernel, given)
            kept.extend([call] if call.arrays else [])  # a number is computed by a function too
        return 0

    machine = tvm.relax.VirtualMachine(executable, device)
    machine.set_instrument(note)
    machine[function](*noted)
    running = tvm.relax.VirtualMachine(executable, device)  # an instrument stays, and would slow the whole model down
    running.save_function(function, _RUN, *timed)
    running.save_function(function, f"{_RUN}_timed", *timed, include_return=False)
    whole = Call("run", running.module[f"{_RUN}_timed"], [])
    return VmKernels(tuple(kept), whole, _flusher(), running)


def _flusher() -> Callable[[Call], Call] | None:
    tvm = load_tvm()
    flush = tvm.get_global_func("cache_flush_cpu_non_first_arg", allow_missing=True)
    if flush is None:
        return None
    first = tvm.runtime.empty((1,), "float32")  # is left alone
    return lambda kernel: Call("flush", flush, [first, *kernel.arrays])
