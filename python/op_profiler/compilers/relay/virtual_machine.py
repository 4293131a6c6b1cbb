"""Kernels of a model in the Relay virtual machine, which runs models with dynamic shapes.

The machine decides at run time which kernels it calls with which shapes. A walk is therefore one run under TVM's own
profiler, which times every kernel in place. The profiler slows the machine's bookkeeping down, not the kernels.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.compiled_model import CompiledModel, Occurrence
from op_profiler.compilers.relay.extract import describe
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.compilers.tvm_types import RuntimeDevice
from op_profiler.errors import MeasureError, ModelError
from op_profiler.measure.measurement import Cache
from op_profiler.operators.operator import Operator
from op_profiler.targets.machine import FixedModel

if TYPE_CHECKING:
    import numpy as np

_TENSOR = re.compile(r"(\w+)\[([^\]]*)\]")


class VmKernels(FixedModel):
    """A model in the virtual machine (a `TimedModel`); it supports only the cache state ``model``.

    The machine allocates the buffers and calls the kernels itself; its profiler reads the clock around each kernel.
    """

    def __init__(self, compiled: CompiledModel, device: RuntimeDevice, inputs: Sequence[np.ndarray]) -> None:
        tvm = load_tvm()
        from tvm.runtime import profiler_vm, vm

        arrays = [tvm.nd.array(value, device) for value in inputs]
        self._machine = vm.VirtualMachine(compiled.library, device)
        self._machine.set_input("main", *arrays)
        self._profiler = profiler_vm.VirtualMachineProfiler(compiled.library, device)
        self._profiler.set_input("main", *arrays)
        try:
            self.run_model()
            calls = self._calls()
        except tvm.TVMError as error:
            raise MeasureError(f"the model does not run: {last_line(error)}") from error
        self.labels = [label for label, _ in map(_identity, calls)]
        self.shapes = [shapes for _, shapes in map(_identity, calls)]

    def _calls(self) -> list[dict[str, Any]]:
        report = self._profiler.profile(func_name="main")
        return [c for c in report.calls if "Hash" in c and "shape_func" not in str(c["Name"])]

    def run_model(self) -> None:
        """Run the model once without the profiler."""
        self._machine.invoke_stateful("main")

    def output_arrays(self) -> list[np.ndarray]:
        """Return the model's outputs from a separate run; a nested output is flattened."""
        made = self._machine.invoke("main")
        return _leaves(made)

    def time_model(self) -> float:
        """Return the microseconds of one run without the profiler, including the overhead of the call from Python."""
        started = time.perf_counter_ns()
        self.run_model()
        return (time.perf_counter_ns() - started) / 1e3

    def walk(self, cache: Cache, timed: Sequence[bool]) -> list[float]:
        """Time the kernels as in `TimedModel`.

        Raises:
            MeasureError: the machine called other kernels than before, so the times cannot be attributed to operators.
        """
        calls = self._calls()
        if [_identity(call) for call in calls] != list(zip(self.labels, self.shapes)):
            raise MeasureError("the model calls other kernels from run to run; it cannot be profiled per operator")
        return [float(c["Duration (us)"].microseconds) if t else float("nan") for c, t in zip(calls, timed)]

    def repeat_kernel(self, index: int, calls: int) -> bool:
        """Return False: the virtual machine cannot call a kernel in isolation."""
        return False

    def kernel_error(self, index: int) -> str | None:
        """Return None: a kernel cannot be called in isolation, and so is not checked."""
        return None

    def cache_mechanism(self, cache: Cache) -> str:
        """Return the mechanism of the cache state ``model``; raise MeasureError for the others."""
        if cache != "model":
            raise MeasureError(f"--executor vm measures with --cache model only, not {cache}")
        return "in-graph (vm profiler)"


def _leaves(made: Any) -> list[np.ndarray]:
    return [made.numpy()] if hasattr(made, "numpy") else [leaf for field in made for leaf in _leaves(field)]


def _identity(call: Mapping[str, Any]) -> tuple[str, str]:
    """Return the compiler's hash of a kernel, and the shapes of the call."""
    return str(call["Hash"]), str(call["Argument Shapes"])


def operators_at_run_time(compiled: CompiledModel, kernels: VmKernels) -> list[Operator]:
    """Return the operator of each kernel, with the shapes of its actual call."""
    cache: dict[tuple[str, str], Operator] = {}
    operators = []
    for label, shapes in zip(kernels.labels, kernels.shapes):
        if (label, shapes) not in cache:
            cache[label, shapes] = _with_shapes(compiled.by_label[label], shapes)
        operators.append(cache[label, shapes])
    return operators


def _with_shapes(occurrence: Occurrence, shapes: str) -> Operator:
    """Return the operator of a function whose dynamic dimensions are replaced by those of one call."""
    operator = occurrence.operator
    if all(-1 not in t.shape for t in (*operator.inputs, *operator.params, *operator.outputs)):
        return operator
    tvm = load_tvm()
    relay = tvm.relay
    function = occurrence.function
    sizes = [[int(d) for d in m.group(2).split(",") if d.strip()] for m in _TENSOR.finditer(shapes)]
    variables = []
    for parameter, size in zip(function.params, sizes):
        if not isinstance(parameter.checked_type, relay.TensorType):
            return operator
        variables.append(relay.var(parameter.name_hint, shape=size, dtype=parameter.checked_type.dtype))
    body = relay.bind(function.body, dict(zip(function.params, variables)))
    module = tvm.IRModule.from_expr(relay.Function(variables, body))
    try:
        static = relay.transform.InferType()(module)["main"]
    except tvm.TVMError as error:
        raise ModelError(f"{operator.name} cannot be typed with {shapes}: {last_line(error)}") from error
    return describe(static, occurrence.constant)
