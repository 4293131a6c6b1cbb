"""A model in TVM's graph executor, whose kernels are called one by one on the executor's own buffers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.compilers.calls import flusher
from op_profiler.compilers.executor_graph import expose_every_tensor
from op_profiler.compilers.relay.calls import PackedCall
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.errors import MeasureError
from op_profiler.measure.kernels import GraphKernels
from op_profiler.measure.placements import USUAL_COPIES, Placements

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.tvm_types import DeviceArray, RuntimeDevice


def load_graph(compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray]) -> GraphKernels:
    """Load a model and its inputs on the device, and bind every kernel to its buffers.

    Args:
        compiled: built for the graph executor.
        device: `tvm.runtime.Device`.
        inputs: one array per input of the model.

    Raises:
        MeasureError: the model does not run as a whole, or `GraphKernels` cannot be created from it.
    """
    return _ran(bind_graph(compiled, device, inputs))


def load_in_turns(
    compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray], copies: int = USUAL_COPIES
) -> GraphKernels:
    """Load like `load_graph`, on a processor; `GraphKernels.moved` then returns up to `copies` copies at other
    addresses, in turn."""
    first = load_graph(compiled, device, inputs)

    def copy() -> GraphKernels:
        weights = {name: array.copyto(device) for name, array in compiled.library.get_params().items()}
        return _ran(bind_graph(compiled, device, inputs, weights=weights))

    return dataclasses.replace(first, placements=Placements(first, copy, first.memory_bytes(), copies))


def _ran(loaded: GraphKernels) -> GraphKernels:
    try:
        loaded.run()
    except load_tvm().TVMError as error:
        raise MeasureError(f"the model does not run: {last_line(error)}") from error
    return loaded


def bind_graph(
    compiled: CompiledModel,
    device: RuntimeDevice,
    inputs: dict[str, np.ndarray],
    *,
    weights: dict[str, DeviceArray] | None = None,
    blocks: Sequence[int] | None = None,
) -> GraphKernels:
    """Load like `load_graph`, without running the model.

    On a processor, weights stay where `compiled` has them, so a model that is loaded several times has one copy of its
    weights.

    Args:
        weights: weights on the device, by name; None: the weights of the build.
        blocks: number of the memory block of every tensor; None for the compiler's storage plan.
    """
    tvm = load_tvm()
    graph_executor = tvm.contrib.graph_executor
    factory = compiled.library
    graph = json.loads(factory.get_graph_json())
    if blocks is not None:
        graph["attrs"]["storage_id"][1] = list(blocks)
    weights = weights or factory.get_params()
    where_they_are = compiled.only_read(weights) if device.device_type == tvm.cpu().device_type else {}
    expose_every_tensor(graph)
    library = factory.get_lib()
    executor = graph_executor.create(json.dumps(graph), library, device)
    executor.set_input(**{name: array for name, array in weights.items() if name not in where_they_are})
    for name, value in inputs.items():
        executor.set_input(name, tvm.nd.array(value, device))
    buffers = [executor.get_output(number) for number in range(len(compiled.tensors))]
    for name, number in where_they_are.items():
        executor.module["set_input_zero_copy"](name, weights[name])
        buffers[number] = weights[name]
    kernels = tuple(
        PackedCall(c.name, c.label, library.get_function(c.name, True), [buffers[n] for n in (*c.reads, *c.writes)])
        for c in compiled.calls
    )
    outputs = tuple(buffers[number] for number in compiled.outputs)
    whole = PackedCall("run", "", executor.module["run"])
    return GraphKernels(kernels, whole, flusher(), executor, outputs)
