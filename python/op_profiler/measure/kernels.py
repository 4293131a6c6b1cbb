"""The kernels of a built model, called one by one in graph order on the executor's own buffers.

An operator's time depends on where its tensors lie in the caches, and inside a model its neighbours decide that. So the
kernels are run here in the order of the graph, on the storage that the graph executor itself planned and allocated
(it hands out what it is told is an output), and each call is timed where it stands, by `TimedCalls`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray, GraphExecutor, PackedFunction
from op_profiler.measure.calls import (
    DLTENSOR_HANDLE,
    Call,
    Kernel,
    TimedCalls,
    array_address,
    call_overhead_us,
    stack_places,
)
from op_profiler.measure.in_place import InPlaceKernels, Walk
from op_profiler.measure.measurement import Cache
from op_profiler.measure.placements import Placements
from op_profiler.measure.stack import StackPlaces


@dataclasses.dataclass(eq=False)
class GraphKernels(InPlaceKernels[Kernel]):
    """A model in the graph executor, and its kernels in order over the same buffers (a `LoadedModel`).

    Attributes (beside those of `InPlaceKernels`):
        run: the executor's own function that runs the whole model.
        executor: the graph executor that owns the buffers.
        outputs: the model's outputs.
        placements: what `moved` takes copies from; None where this is the only one.
    """

    kernels: tuple[Kernel, ...]
    run: PackedFunction
    flush: Callable[[Kernel], Call] | None
    executor: GraphExecutor
    outputs: tuple[DeviceArray, ...] = ()
    placements: Placements | None = None
    stack_turn: int = dataclasses.field(default=0, init=False)
    _walks: dict[tuple[Cache, tuple[bool, ...]], Walk] = dataclasses.field(default_factory=dict, init=False, repr=False)

    def set_inputs(self, inputs: dict[str, np.ndarray]) -> None:
        """Copy inputs of the model, by their names, to where it reads them."""
        for name, value in inputs.items():
            self.executor.set_input(name, value)

    def _run(self) -> None:
        self.run()

    def moved(self) -> GraphKernels:
        return self.placements.next() if self.placements is not None else self

    def memory_bytes(self) -> int:
        """What the tensors of the kernels take; those that share memory count once."""
        sizes: dict[int, int] = {}
        for array in (array for kernel in self.kernels for array in kernel.arrays):
            address = int(array.handle.contents.data or 0)
            sizes[address] = max(sizes.get(address, 0), math.prod(array.shape) * np.dtype(array.dtype).itemsize)
        return sum(sizes.values())

    def output_arrays(self) -> list[np.ndarray]:
        return [np.asarray(output.numpy()) for output in self.outputs]

    @functools.cached_property
    def whole(self) -> Call:
        """The call that runs the whole model; on a GPU, launches it."""
        return Call("run", self.run, [], [])

    @functools.cached_property
    def _whole(self) -> TimedCalls:
        return TimedCalls([self.whole])

    def _timed(self, calls: Sequence[object]) -> TimedCalls:
        return TimedCalls(cast("Sequence[Call]", calls))

    @property
    def _places(self) -> StackPlaces:
        return stack_places()

    def call_overhead_us(self) -> float:
        return call_overhead_us()


def flusher() -> Callable[[Kernel], Call] | None:
    """What makes the call that flushes the tensors of a kernel from the caches; None where this build of TVM cannot."""
    tvm = load_tvm()
    flush = tvm.get_global_func("cache_flush_cpu_non_first_arg", allow_missing=True)
    if flush is None:
        return None
    first = tvm.nd.empty((1,), "float32")  # is left alone

    def call(kernel: Kernel) -> Call:
        addresses = [array_address(array) for array in (first, *kernel.arrays)]
        return Call("flush", flush, addresses, [DLTENSOR_HANDLE] * len(addresses))

    return call
