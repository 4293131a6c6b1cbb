"""The kernels of a built model, called one by one in graph order on the executor's own buffers.

An operator's time depends on where its tensors lie in the caches, and inside a model its neighbours decide that. So the
kernels are run here in the order of the graph, on the storage that the graph executor itself planned and allocated
(it hands out what it is told is an output), and each call is timed where it stands, by `TimedCalls`.
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
    """A model in the graph executor, and its kernels in order over the same buffers (a `LoadedModel`).

    Attributes (beside those of `InPlaceKernels`):
        executor: the graph executor that owns the buffers.
        outputs: the model's outputs.
        placements: what `moved` takes copies from; None where this is the only one.
    """

    executor: GraphExecutor
    outputs: tuple[DeviceArray, ...] = ()
    placements: Placements[GraphKernels] | None = None

    def set_inputs(self, inputs: dict[str, np.ndarray]) -> None:
        """Copy inputs of the model, by their names, to where it reads them."""
        for name, value in inputs.items():
            self.executor.set_input(name, value)

    def moved(self) -> GraphKernels:
        """Return the next copy of the model in other memory, or this one where there are no copies."""
        return self.placements.next() if self.placements is not None else self

    def memory_bytes(self) -> int:
        """Return the bytes of all tensors of the kernels; tensors that share memory count once."""
        sizes: dict[int, int] = {}
        for array in (array for kernel in self.kernels for array in kernel.arrays):
            address = int(array.handle.contents.data or 0)
            sizes[address] = max(sizes.get(address, 0), math.prod(array.shape) * np.dtype(array.dtype).itemsize)
        return sum(sizes.values())

    def output_arrays(self) -> list[np.ndarray]:
        """Return the model's outputs after the last run."""
        return [np.asarray(output.numpy()) for output in self.outputs]
