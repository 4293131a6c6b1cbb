"""The kernels of a built model, called one by one in graph order on the executor's own buffers.

An operator's time depends on where its tensors lie in the caches, and inside a model its neighbours decide that. So the
kernels are run here in the order of the graph, on the storage that the graph executor itself planned and allocated
(it hands out what it is told is an output), and each call is timed where it stands, by `TimedCalls`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.relay.executor_graph import computes
from op_profiler.compilers.runtime_types import DeviceArray, GraphExecutor, PackedFunction, RuntimeDevice
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.errors import MeasureError
from op_profiler.measure.calls import DLTENSOR_HANDLE, Call, Kernel, TimedCalls, array_address, call_overhead_us
from op_profiler.measure.measurement import Cache
from op_profiler.measure.placements import USUAL_COPIES, Placements


@dataclasses.dataclass(frozen=True)
class GraphKernels:
    """A model in the graph executor, and its kernels in order over the same buffers (a `LoadedModel`).

    Attributes:
        kernels: in execution order; nodes that compute nothing (reshapes) are not among them.
        run: the executor's own function that runs the whole model.
        flush: the call that flushes the tensors of a kernel from the caches; None where the build cannot.
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
    _walks: dict[tuple[Cache, tuple[bool, ...]], tuple[TimedCalls, list[int]]] = dataclasses.field(
        default_factory=dict, init=False, repr=False
    )

    @property
    def labels(self) -> list[str]:
        return [kernel.label for kernel in self.kernels]

    def set_inputs(self, inputs: dict[str, np.ndarray]) -> None:
        """Copy inputs of the model, by their names, to where it reads them."""
        for name, value in inputs.items():
            self.executor.set_input(name, value)

    def run_model(self) -> None:
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

    def kernel_outputs(self) -> Iterator[np.ndarray]:
        for kernel in self.kernels:
            kernel.run()
            yield np.asarray(kernel.arrays[-1].numpy())

    def output_arrays(self) -> list[np.ndarray]:
        return [np.asarray(output.numpy()) for output in self.outputs]

    @functools.cached_property
    def _whole(self) -> TimedCalls:
        return TimedCalls([Call("run", self.run, [], [])])

    def time_model(self) -> float:
        return float(self._whole.run()[0])

    def walk(self, cache: Cache, timed: Sequence[bool]) -> list[float]:
        """As in `LoadedModel`; kernels that are not timed run all the same, as others need their output."""
        wanted = tuple(map(bool, timed))
        if (cache, wanted) not in self._walks:
            self._walks[cache, wanted] = self._calls_of_walk(cache, wanted)
        calls, rows = self._walks[cache, wanted]
        times: list[float] = np.where(wanted, calls.run()[rows], np.nan).tolist()
        return times

    def repeat_kernel(self, index: int, calls: int) -> bool:
        return all(self.kernels[index].run() for _ in range(calls))

    def _calls_of_walk(self, cache: Cache, timed: tuple[bool, ...]) -> tuple[TimedCalls, list[int]]:
        """The calls of a walk with those that prepare the caches, and the numbers of the kernels' among them."""
        calls: list[Call] = []
        rows = []
        for kernel, wanted in zip(self.kernels, timed, strict=True):
            if wanted and cache == "hot":
                calls.append(kernel)
            elif wanted and cache == "cold" and self.flush is not None:
                calls.append(self.flush(kernel))
            rows.append(len(calls))
            calls.append(kernel)
        return TimedCalls(calls), rows

    def call_overhead_us(self) -> float:
        return call_overhead_us()

    def kernel_error(self, index: int) -> str | None:
        return self.kernels[index].error()

    def cache_mechanism(self, cache: Cache) -> str:
        """How `walk` brings the caches into that state.

        Raises:
            MeasureError: this build of TVM cannot.
        """
        if cache == "cold" and self.flush is None:
            raise MeasureError("--cache cold needs cache_flush_cpu_non_first_arg, which this build of TVM lacks")
        return {"model": "in-graph", "hot": "repeat", "cold": "clflush"}[cache]


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
        for name, label, arrays in kernel_calls(graph, buffers)
    )
    return GraphKernels(kernels, executor.module["run"], _flusher(), executor, outputs)


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


def kernel_calls(
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


def _flusher() -> Callable[[Kernel], Call] | None:
    tvm = load_tvm()
    flush = tvm.get_global_func("cache_flush_cpu_non_first_arg", allow_missing=True)
    if flush is None:
        return None
    first = tvm.nd.empty((1,), "float32")  # is left alone

    def call(kernel: Kernel) -> Call:
        addresses = [array_address(array) for array in (first, *kernel.arrays)]
        return Call("flush", flush, addresses, [DLTENSOR_HANDLE] * len(addresses))

    return call
