"""Relay models on a machine behind RPC, and functions that read a file and set the thread count there."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.executor_graph import expose_every_tensor
from op_profiler.compilers.remote_model import PROBE_ARGUMENT_BYTES, PROBE_TEXT_BYTES, RemoteKernel, RemoteMachine
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import RemoteSession, RuntimeModule, Target
from op_profiler.errors import MeasureError

if TYPE_CHECKING:
    import numpy as np


class RemoteGraph:
    """A graph executor on a remote machine (a `RemoteModel`); the debug executor if the machine has one."""

    def __init__(self, compiled: CompiledModel, machine: RemoteMachine, inputs: dict[str, np.ndarray]) -> None:
        tvm = load_tvm()
        factory = compiled.library
        graph = json.loads(factory.get_graph_json())
        expose_every_tensor(graph)
        self._device = machine.device
        self.library = machine.upload(factory.get_lib())
        self._module = self._create(machine.session, json.dumps(graph))
        self._executor = tvm.contrib.graph_executor.GraphModule(self._module)
        self._executor.set_input(**factory.get_params())
        for name, value in inputs.items():
            self._executor.set_input(name, tvm.nd.array(value, machine.device))
        self._run = self._module["run"]
        buffers = [self._executor.get_output(number) for number in range(len(compiled.tensors))]
        self.buffers = buffers
        self.outputs = [buffers[number] for number in compiled.outputs]
        self.kernels = [
            RemoteKernel(c.name, c.label, [buffers[n] for n in (*c.reads, *c.writes)]) for c in compiled.calls
        ]

    def _create(self, session: RemoteSession, graph: str) -> RuntimeModule:
        device = self._device.device_type % 128, self._device.device_id
        for name, has_profiler in (("tvm.graph_executor_debug.create", True), ("tvm.graph_executor.create", False)):
            try:
                create = session.get_function(name)
            except (AttributeError, RuntimeError):
                continue
            self.has_profiler = has_profiler
            return create(graph, self.library, *device)
        raise MeasureError("its runtime has no graph executor")

    def set_input(self, name: str, value: np.ndarray) -> None:
        """Copy an input of the model to the graph executor."""
        self._executor.set_input(name, value)

    def run(self) -> None:
        """Run the model once in the graph executor."""
        self._run()

    @property
    def timed_run(self) -> Callable[[], float]:
        """Return a function that times one run with the remote time evaluator, in microseconds."""
        evaluator = self._module.time_evaluator("run", self._device, number=1, repeat=1)
        return lambda: float(evaluator().results[0]) * 1e6

    def profile(self) -> list[tuple[str, float]]:
        """Run the model once in the debug executor; return name and microseconds of each call."""
        report = json.loads(self._module["profile_rpc"]())
        return [(call["Name"]["string"], float(call["Duration (us)"]["microseconds"])) for call in report["calls"]]

    def release(self, *, session_lost: bool) -> None:
        """Drop all references; if the session is lost, mark the arrays as views first, so that TVM frees none."""
        for array in self.buffers if session_lost else ():
            array.is_view = True  # TVM frees no views, and would print an error for every array
        del self.buffers, self.kernels, self.outputs
        del self._run, self._executor, self._module, self.library


def probe_code(target: Target) -> Any:
    """Return a `ProbeCode` for a target."""
    tvm = load_tvm()
    module = tvm.lower(*_reader(tvm), name="op_profiler_read")
    module.update(tvm.lower(*_setter(tvm), name="op_profiler_set"))
    return tvm.build(module, target=target)


def _reader(tvm: Any) -> tuple[Any, list[Any]]:
    te, tir = tvm.te, tvm.tir
    path = te.placeholder((PROBE_ARGUMENT_BYTES,), "uint8", "path")

    def body(inputs: Sequence[Any], outputs: Sequence[Any]) -> object:
        builder = tir.ir_builder.create()
        count = builder.buffer_ptr(outputs[1])
        file = builder.let("file", tir.call_extern("int32", "open", inputs[0].access_ptr("r"), 0))
        text = outputs[0].access_ptr("w")
        count[0] = tir.call_extern("int32", "read", file, text, tir.const(PROBE_TEXT_BYTES, "int32"))
        builder.emit(tir.call_extern("int32", "close", file))
        return builder.get()

    text, count = te.extern([(PROBE_TEXT_BYTES,), (1,)], [path], body, dtype=["uint8", "int32"], name="read")
    return te.create_schedule(text.op), [path, text, count]


def _setter(tvm: Any) -> tuple[Any, list[Any]]:
    te, tir = tvm.te, tvm.tir
    value = te.placeholder((PROBE_ARGUMENT_BYTES,), "uint8", "value")

    def body(inputs: Sequence[Any], outputs: Sequence[Any]) -> object:
        builder = tir.ir_builder.create()
        name = tir.StringImm("TVM_NUM_THREADS")
        answer = builder.buffer_ptr(outputs[0])
        answer[0] = tir.call_extern("int32", "setenv", name, inputs[0].access_ptr("r"), 1)
        return builder.get()

    answer = te.extern([(1,)], [value], body, dtype=["int32"], name="set")
    return te.create_schedule(answer.op), [value, answer]
