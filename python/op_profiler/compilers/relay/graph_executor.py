"""TVM's graph executor: which nodes of its graph are kernels, who reads whose output, and a model in it whose kernels
are called one by one on its own buffers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.compiled_model import KernelCall
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.errors import MeasureError
from op_profiler.measure.calls import Kernel
from op_profiler.measure.kernels import GraphKernels, flusher
from op_profiler.measure.placements import USUAL_COPIES, Placements

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.runtime_types import DeviceArray, RuntimeDevice

Entry = tuple[int, int]
"""A tensor of the graph: node and output."""


def computes(node: dict[str, Any]) -> bool:
    """Whether a node of a graph executor's graph is the call of a kernel; inputs and reshapes are none."""
    return node["op"] == "tvm_op" and node.get("attrs", {}).get("func_name", "__nop") != "__nop"


def kernel_calls(graph: dict[str, Any]) -> Iterator[KernelCall]:
    """Every call of a kernel in a graph executor's graph, in execution order; nodes that compute nothing (reshapes) are
    seen through."""
    producers: dict[int, set[int]] = {}
    count = 0
    for index, node in enumerate(graph["nodes"]):
        inputs = set().union(*(producers.get(source, set()) for source, *_ in node["inputs"]))
        if computes(node):
            name = node["attrs"]["func_name"]
            yield KernelCall(name, str(node["attrs"].get("hash", name)), tuple(sorted(inputs)))
            inputs = {count}
            count += 1
        producers[index] = inputs


def load_graph(compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray]) -> GraphKernels:
    """Put a model and its inputs on the device and bind every kernel to its buffers.

    Args:
        compiled: built for the graph executor.
        device: `tvm.runtime.Device`.
        inputs: one array per input of the model.

    Raises:
        MeasureError: the model does not run as a whole; `GraphKernels` cannot be made from it.
    """
    return _ran(bind_graph(compiled, json.loads(compiled.library.get_graph_json()), device, inputs))


def load_in_turns(
    compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray], copies: int = USUAL_COPIES
) -> GraphKernels:
    """As `load_graph`, on a processor; `GraphKernels.moved` gives up to so many copies in other memory, in turn."""
    first = load_graph(compiled, device, inputs)

    def copy() -> GraphKernels:
        weights = {name: array.copyto(device) for name, array in compiled.library.get_params().items()}
        graph = json.loads(compiled.library.get_graph_json())
        return _ran(bind_graph(compiled, graph, device, inputs, weights))

    return dataclasses.replace(first, placements=Placements(first, copy, copies))


def _ran(loaded: GraphKernels) -> GraphKernels:
    try:
        loaded.run()
    except load_tvm().TVMError as error:
        raise MeasureError(f"the model does not run: {last_line(error)}") from error
    return loaded


def bind_graph(
    compiled: CompiledModel,
    graph: dict[str, Any],
    device: RuntimeDevice,
    inputs: dict[str, np.ndarray],
    weights: dict[str, DeviceArray] | None = None,
) -> GraphKernels:
    """As `load_graph`, with the executor's graph given, and without running it.

    Args:
        graph: parsed JSON of the model's graph, perhaps with a storage plan of its own; its heads are changed.
        weights: on the device, by name; None: those of the build.

    On a processor weights stay where `compiled` has them: a model that is loaded several times reads one copy of them.
    """
    tvm = load_tvm()
    from tvm.contrib import graph_executor

    factory = compiled.library
    heads = [(int(node), int(output)) for node, output, *_ in graph["heads"]]
    weights = weights or factory.get_params()
    where_they_are = only_read(graph, weights) if device.device_type == tvm.cpu().device_type else {}
    entries = expose_every_entry(graph)
    executor = graph_executor.create(json.dumps(graph), factory.get_lib(), device)
    executor.set_input(**{name: array for name, array in weights.items() if name not in where_they_are})
    for name, value in inputs.items():
        executor.set_input(name, tvm.nd.array(value, device))
    buffers = {entry: executor.get_output(index) for index, entry in enumerate(entries)}
    for name, entry in where_they_are.items():
        executor.module["set_input_zero_copy"](name, weights[name])
        buffers[entry] = weights[name]
    outputs = tuple(buffers[head] for head in heads)
    library = factory.get_lib()
    kernels = tuple(
        Kernel(name, label, library.get_function(name, True), arrays)
        for name, label, arrays in bound_calls(graph, buffers)
    )
    return GraphKernels(kernels, executor.module["run"], flusher(), executor, outputs)


def only_read(graph: dict[str, Any], weights: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Weights that only kernels read, with their entries; reshapes and outputs are views of the executor's memory."""
    viewed = {int(node) for node, *_ in graph["heads"]}
    for node in graph["nodes"]:
        if not computes(node):
            viewed.update(int(source) for source, *_ in node["inputs"])
    names = set(weights)
    return {
        node["name"]: (index, 0)
        for index, node in enumerate(graph["nodes"])
        if node["op"] == "null" and node["name"] in names and index not in viewed
    }


def expose_every_entry(graph: dict[str, Any]) -> list[tuple[int, int]]:
    """Declare every tensor of the graph an output, so that the executor hands out its own buffers.

    The storage plan is part of the graph's attributes and stays as it is: tensors that share memory go on sharing it.
    """
    entries = [
        (index, output)
        for index, node in enumerate(graph["nodes"])
        for output in range(int(node.get("attrs", {}).get("num_outputs", 1)))
    ]
    graph["heads"] = [[index, output, 0] for index, output in entries]
    return entries


def bound_calls(
    graph: dict[str, Any], buffers: dict[tuple[int, int], DeviceArray]
) -> Iterator[tuple[str, str, list[DeviceArray]]]:
    """Every call of a kernel in execution order: its name, the compiler's hash of it, and its arrays.

    Args:
        buffers: the executor's own, by node and output.
    """
    for index, node in enumerate(graph["nodes"]):
        if not computes(node):
            continue
        attrs = node["attrs"]
        name = attrs["func_name"]
        arrays = [buffers[source, output] for source, output, *_ in node["inputs"]]
        arrays += [buffers[index, output] for output in range(int(attrs.get("num_outputs", 1)))]
        yield name, attrs.get("hash", name), arrays
