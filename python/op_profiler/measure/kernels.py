"""The kernels of a built model, called one by one in graph order on the executor's own buffers.

An operator's time depends on where its tensors lie in the caches, and inside a model its neighbours decide that. So the
kernels are run here in the order of the graph, on the storage that the graph executor itself planned and allocated
(it hands out what it is told is an output), and each call is timed where it stands. Calls go through `TVMFuncCall`
with arguments that were packed beforehand: what is left of Python in a sample is a few tenths of a microsecond, about
what the executor itself spends between two kernels. It is reported (`call_overhead_us`) and not subtracted.
"""

from __future__ import annotations

import ctypes
import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from op_profiler.compiler import load_tvm
from op_profiler.errors import MeasureError
from op_profiler.measure._base import Cache
from op_profiler.operators.lower import CompiledModel, last_line

DLTENSOR_HANDLE = 7
"""TVM's type code of a tensor as an argument."""
_OVERHEAD_CALLS = 2000


class Call:
    """A call of a packed function with its arguments bound; `run` raises nothing and answers False where it failed.

    Args:
        values: one an argument, as the 64 bits of a ``TVMValue``.
        codes: TVM's type codes of the arguments.
    """

    def __init__(self, name: str, function: Any, values: Sequence[int], codes: Sequence[int]) -> None:
        from tvm._ffi.base import _LIB  # TVM is loaded by whoever made the function

        self.name = name
        self.function = function
        count = len(values)
        self._values = (ctypes.c_int64 * max(count, 1))(*values)
        self._codes = (ctypes.c_int * max(count, 1))(*codes)
        self._result = ctypes.c_int64()
        self._result_code = ctypes.c_int()
        self._call = _LIB.TVMFuncCall
        self._arguments = (
            function.handle,
            ctypes.cast(self._values, ctypes.c_void_p),
            ctypes.cast(self._codes, ctypes.c_void_p),
            ctypes.c_int(count),
            ctypes.byref(self._result),
            ctypes.byref(self._result_code),
        )

    @property
    def addresses(self) -> tuple[int, int, int, int, int, int]:
        """What ``TVMFuncCall`` takes, as numbers that hold as long as this object: function, values, codes, count,
        result and its code."""
        return (
            int(ctypes.cast(self.function.handle, ctypes.c_void_p).value or 0),
            ctypes.addressof(self._values),
            ctypes.addressof(self._codes),
            int(self._arguments[3].value),
            ctypes.addressof(self._result),
            ctypes.addressof(self._result_code),
        )

    def run(self) -> bool:
        """Call it once."""
        return self._call(*self._arguments) == 0

    def timed(self) -> float:
        """Microseconds of one call, Python's part included; NaN where the call failed."""
        started = time.perf_counter_ns()
        failed = self._call(*self._arguments)
        stopped = time.perf_counter_ns()
        return float("nan") if failed else (stopped - started) / 1e3


class Kernel(Call):
    """A call of a kernel.

    Args:
        label: the compiler's hash of it.
        arrays: its inputs and outputs.
    """

    def __init__(self, name: str, label: str, function: Any, arrays: Sequence[Any]) -> None:
        super().__init__(name, function, [array_address(a) for a in arrays], [DLTENSOR_HANDLE] * len(arrays))
        self.label = label
        self.arrays = list(arrays)

    def error(self) -> str | None:
        """Call the kernel through TVM's checked interface: None, or what it says is wrong."""
        try:
            self.function(*self.arrays)
        except load_tvm().TVMError as error:
            return last_line(error)
        return None


def array_address(array: Any) -> int:
    """Address of an array's DLTensor, with either of TVM's two Python bindings (Cython, ctypes)."""
    if hasattr(array, "_tvm_handle"):
        return int(array._tvm_handle)
    return int(ctypes.cast(array.handle, ctypes.c_void_p).value or 0)


@dataclasses.dataclass(frozen=True)
class GraphKernels:
    """A model in the graph executor, and its kernels in order over the same buffers (a `LoadedModel`).

    Attributes:
        kernels: in execution order; nodes that compute nothing (reshapes) are not among them.
        run: the executor's own function that runs the whole model.
        flush: flushes the tensors of a kernel from the caches; None where the build cannot.
        executor: the graph executor that owns the buffers.
        outputs: the model's outputs.
    """

    kernels: tuple[Kernel, ...]
    run: Callable[[], None]
    flush: Callable[[Kernel], None] | None
    executor: Any
    outputs: tuple[Any, ...] = ()

    @property
    def labels(self) -> list[str]:
        return [kernel.label for kernel in self.kernels]

    def set_inputs(self, inputs: dict[str, np.ndarray]) -> None:
        """Copy inputs of the model, by their names, to where it reads them."""
        for name, value in inputs.items():
            self.executor.set_input(name, value)

    def run_model(self) -> None:
        self.run()

    def kernel_outputs(self) -> Iterator[np.ndarray]:
        for kernel in self.kernels:
            kernel.run()
            yield np.asarray(kernel.arrays[-1].numpy())

    def output_arrays(self) -> list[np.ndarray]:
        return [np.asarray(output.numpy()) for output in self.outputs]

    def time_model(self) -> float:
        started = time.perf_counter_ns()
        self.run()
        return (time.perf_counter_ns() - started) / 1e3

    def walk(self, cache: Cache, timed: Sequence[bool]) -> list[float]:
        """As in `LoadedModel`; kernels that are not timed run all the same, as others need their output."""
        times = []
        for kernel, wanted in zip(self.kernels, timed):
            if not wanted:
                kernel.run()
                times.append(float("nan"))
                continue
            if cache == "hot":
                kernel.run()
            elif cache == "cold" and self.flush is not None:
                self.flush(kernel)
            times.append(kernel.timed())
        return times

    def repeat_kernel(self, index: int, calls: int) -> bool:
        return all(self.kernels[index].run() for _ in range(calls))

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


def load_graph(compiled: CompiledModel, device: Any, inputs: dict[str, np.ndarray]) -> GraphKernels:
    """Put a model and its inputs on the device and bind every kernel to its buffers.

    Args:
        compiled: built for the graph executor.
        device: `tvm.runtime.Device`.
        inputs: one array per input of the model.

    Raises:
        MeasureError: the model does not run as a whole; `GraphKernels` cannot be made from it.
    """
    loaded = bind_graph(compiled, json.loads(compiled.library.get_graph_json()), device, inputs)
    try:
        loaded.run()
    except load_tvm().TVMError as error:
        raise MeasureError(f"the model does not run: {last_line(error)}") from error
    return loaded


def bind_graph(
    compiled: CompiledModel, graph: dict[str, Any], device: Any, inputs: dict[str, np.ndarray]
) -> GraphKernels:
    """As `load_graph`, with the executor's graph given, and without running it.

    Args:
        graph: parsed JSON of the model's graph, perhaps with a storage plan of its own; its heads are changed.

    On a processor weights stay where `compiled` has them: a model that is loaded several times reads one copy of them.
    """
    tvm = load_tvm()
    from tvm.contrib import graph_executor

    factory = compiled.library
    heads = [(int(node), int(output)) for node, output, *_ in graph["heads"]]
    weights = factory.get_params()
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


def kernel_calls(graph: dict[str, Any], buffers: dict[tuple[int, int], Any]) -> Iterator[tuple[str, str, list[Any]]]:
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


def computes(node: dict[str, Any]) -> bool:
    """Whether a node of a graph executor's graph is the call of a kernel; inputs and reshapes are none."""
    return node["op"] == "tvm_op" and node.get("attrs", {}).get("func_name", "__nop") != "__nop"


def _flusher() -> Callable[[Kernel], None] | None:
    tvm = load_tvm()
    flush = tvm.get_global_func("cache_flush_cpu_non_first_arg", allow_missing=True)
    if flush is None:
        return None
    dummy = tvm.nd.empty((1,), "float32")
    return lambda kernel: flush(dummy, *kernel.arrays)


def call_overhead_us() -> float:
    """Median time of a call that does nothing, in microseconds: what a sample holds besides the kernel."""
    tvm = load_tvm()
    nothing = tvm.get_global_func("runtime.NumThreads")
    call = Call("nothing", nothing, [], [])
    return float(np.median([call.timed() for _ in range(_OVERHEAD_CALLS)]))
