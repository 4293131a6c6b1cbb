"""`GraphKernels`: calls the kernels of a built model one by one, in graph order, on the executor's own buffers.

An operator's time depends on which of its tensors are in the caches, which the preceding operators of the model
determine. The kernels are therefore called in the order of the graph, on the storage that the graph executor planned
and allocated (it gives access to every tensor that is declared an output), and `TimedCalls` times each call.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from op_profiler.compilers.tvm_types import DeviceArray, GraphExecutor
from op_profiler.measure.in_place import InPlaceKernels
from op_profiler.measure.placements import Placements


@dataclasses.dataclass(eq=False)
class GraphKernels(InPlaceKernels):
    """A model in the graph executor, whose kernels can also be called one by one on the same buffers (a `LoadedModel`).

    Attributes (in addition to those of `InPlaceKernels`):
        executor: the graph executor that owns the buffers.
        outputs: arrays that contain the model's outputs.
        placements: copies of the model, which `moved` returns one after the other; None if there is only one copy.
    """

    executor: GraphExecutor
    outputs: tuple[DeviceArray, ...] = ()
    placements: Placements[GraphKernels] | None = None

    def set_inputs(self, inputs: dict[str, np.ndarray]) -> None:
        """Copy inputs of the model, by name, into its input buffers."""
        for name, value in inputs.items():
            self.executor.set_input(name, value)

    def moved(self) -> GraphKernels:
        """Return the next copy of the model, with tensors at other addresses; this object if it is the only copy."""
        return self.placements.next() if self.placements is not None else self

    def memory_bytes(self) -> int:
        """Return the size of all tensors of the kernels in bytes; tensors at the same address count once."""
        sizes: dict[int, int] = {}
        for array in (array for kernel in self.kernels for array in kernel.arrays):
            address = int(array.handle.contents.data or 0)
            sizes[address] = max(sizes.get(address, 0), math.prod(array.shape) * np.dtype(array.dtype).itemsize)
        return sum(sizes.values())

    def output_arrays(self) -> list[np.ndarray]:
        """Return the model's outputs after the last run."""
        return [np.asarray(output.numpy()) for output in self.outputs]
