"""A GPU of this machine, through the TVM with CUDA. Kernels are timed with the device's events."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Protocol, cast

import numpy as np

from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.compilers.tvm_types import DeviceArray, RuntimeDevice, Target
from op_profiler.errors import MeasureError
from op_profiler.measure.in_place import BoundKernel
from op_profiler.measure.measurement import Cache, Device
from op_profiler.measure.rounds import Limits
from op_profiler.measure.threads import available_cores
from op_profiler.targets.cuda import tvm_build
from op_profiler.targets.cuda.load import GpuMeter
from op_profiler.targets.llvm.identity import host_fingerprint

_FLUSH_FACTOR = 4  # times the L2, so that nothing of what was in it is left


class Events:
    """CUDA events, by number. TVM's executor launches on the default stream."""

    def __init__(self) -> None:
        self._runtime = ctypes.CDLL(compiler_in_use().cuda_runtime)
        self._made: list[ctypes.c_void_p] = []

    def _check(self, code: int, what: str) -> None:
        if code:
            raise MeasureError(f"CUDA cannot {what}: error {code}")

    def record(self, number: int, stream: int | None = None) -> None:
        """Put event `number` behind what was launched so far on a stream; None is the default one."""
        while len(self._made) <= number:
            event = ctypes.c_void_p()
            self._check(self._runtime.cudaEventCreate(ctypes.byref(event)), "create an event")
            self._made.append(event)
        self._check(self._runtime.cudaEventRecord(self._made[number], stream), "record an event")

    def wait(self, number: int, stream: int) -> None:
        """Let what is launched on a stream from now on wait for event `number`, as it was recorded last."""
        self._check(self._runtime.cudaStreamWaitEvent(stream, self._made[number], 0), "wait for an event")

    def between_us(self, first: int, last: int) -> float:
        """Microseconds from one event to another; waits for the later one."""
        self._check(self._runtime.cudaEventSynchronize(self._made[last]), "run what was launched")
        milliseconds = ctypes.c_float()
        code = self._runtime.cudaEventElapsedTime(ctypes.byref(milliseconds), self._made[first], self._made[last])
        self._check(code, "read an event")
        return milliseconds.value * 1e3


class Graph(Protocol):
    """What a compiler loads, as far as a GPU needs it; nothing of it waits for what it launches."""

    kernels: tuple[Any, ...]

    @property
    def labels(self) -> list[str]: ...

    @property
    def run(self) -> Callable[[], object]:
        """Launches the whole model."""

    def repeat_kernel(self, index: int, calls: int) -> bool: ...

    def kernel_outputs(self) -> Iterator[np.ndarray]: ...

    def output_arrays(self) -> list[np.ndarray]: ...


@dataclasses.dataclass(frozen=True)
class GpuKernels:
    """A model on a GPU (a `LoadedModel`).

    In the state ``model`` kernels are launched one behind the other as the executor does, and an event stands between
    any two: the time of a kernel holds the wait for its launch, if there is one. In ``hot`` and ``cold`` the GPU is
    busy with a copy while the kernel is being launched, so the time is that of the kernel alone.
    """

    graph: Graph
    runtime: RuntimeDevice
    events: Events
    scratch: tuple[DeviceArray, DeviceArray]

    @property
    def labels(self) -> list[str]:
        return self.graph.labels

    def run_model(self) -> None:
        self.graph.run()
        self.runtime.sync()

    def move_stack(self) -> None:
        """A GPU has none that the host places."""
        return

    def time_model(self) -> float:
        self.events.record(0)
        self.graph.run()
        self.events.record(1)
        return self.events.between_us(0, 1)

    def walk(self, cache: Cache, timed: list[bool]) -> list[float]:
        if cache == "model":
            return self._in_model(timed)
        times = []
        for kernel, wanted in zip(self.graph.kernels, timed):
            times.append(self._alone(kernel, cache) if wanted else self._untimed(kernel))
        return times

    def _in_model(self, timed: list[bool]) -> list[float]:
        failed = set()
        self.events.record(0)
        for index, kernel in enumerate(self.graph.kernels):
            if not kernel.run():
                failed.add(index)
            self.events.record(index + 1)
        self.runtime.sync()
        return [
            self.events.between_us(i, i + 1) if wanted and i not in failed else float("nan")
            for i, wanted in enumerate(timed)
        ]

    def _alone(self, kernel: BoundKernel, cache: Cache) -> float:
        self.scratch[0].copyto(self.scratch[1])
        if cache == "hot":
            kernel.run()
        self.events.record(0)
        ran = kernel.run()
        self.events.record(1)
        time = self.events.between_us(0, 1)
        return time if ran else float("nan")

    def _untimed(self, kernel: BoundKernel) -> float:
        kernel.run()
        return float("nan")

    def repeat_kernel(self, index: int, calls: int) -> bool:
        ran = self.graph.repeat_kernel(index, calls)
        self.runtime.sync()
        return ran

    def moved(self) -> GpuKernels:
        return self

    def call_overhead_us(self) -> None:
        """The events are on the device: what they hold of a launch is the wait for it, whose cost is not known."""
        return

    def kernel_error(self, index: int) -> str | None:
        error = self.graph.kernels[index].error()
        if error is None:
            try:
                self.runtime.sync()
            except RuntimeError as failure:  # which TVM's own error is
                from op_profiler.compilers.tvm_errors import last_line

                return last_line(failure)
        return error

    def cache_mechanism(self, cache: Cache) -> str:
        return {"model": "in-graph", "hot": "repeat", "cold": f"copy of {_FLUSH_FACTOR} times the L2"}[cache]

    def kernel_outputs(self) -> Iterator[np.ndarray]:
        return self.graph.kernel_outputs()

    def output_arrays(self) -> list[np.ndarray]:
        return self.graph.output_arrays()


class NoThreads:
    """A GPU's kernels have blocks and threads of their own, which the schedule decides (`launch` in the dataset)."""

    def use(self, threads: int) -> None:
        return

    def effective_threads(self) -> None:
        return

    def core_set(self, threads: int | None = None) -> tuple[int, ...]:
        return ()

    def effective_core_set(self) -> tuple[int, ...]:
        return ()


class Gpu:
    """A `Machine`: GPU 0 of those that this process sees (``CUDA_VISIBLE_DEVICES`` chooses)."""

    def __init__(self, target: Target) -> None:
        self.runtime = runtime_device(target)
        self._nvml = _Nvml()
        described = describe_gpu(target, self.runtime, self._nvml)
        self.device = dataclasses.replace(described, machine_id=tvm_build.device_uuid())
        self.threads = NoThreads()
        self.limits = Limits()

    def load(self, compiled: CompiledModel, inputs: dict[str, np.ndarray], copies: int = 1) -> GpuKernels:
        graph = cast("Graph", compiler_in_use().load(compiled, self.runtime, inputs))
        count = _FLUSH_FACTOR * (self.device.l2_bytes or 1 << 25) // 4
        first, second = (compiler_in_use().array_on(np.zeros(count, "float32"), self.runtime) for _ in range(2))
        return GpuKernels(graph, self.runtime, Events(), (first, second))

    def running_seconds(self) -> None:
        return

    def steadiness_probe(self) -> None:
        return

    def meter(self, threads: int | None = None) -> GpuMeter:
        return self._nvml.meter()

    def energy_mj(self) -> float | None:
        return self._nvml.energy_mj()

    def close(self) -> None:
        self._nvml.close()


class NoNvml:
    """Knows nothing; for a GPU of another machine."""

    def clock_mhz(self, which: str, *, maximum: bool = False) -> float | None:
        return None

    def driver(self) -> str | None:
        return None

    def energy_mj(self) -> float | None:
        return None


class _Nvml(NoNvml):
    """NVIDIA's management library, as far as it answers; clouds often forbid parts of it."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._library: Any = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(_bus_id())
            self._library = pynvml
        except Exception:  # noqa: BLE001 - not installed, no permission, no such device: all mean "unknown"
            self._handle = None

    def ask(self, question: str, *arguments: Any) -> Any | None:
        """The answer of ``nvmlDeviceGet<question>``, None where there is none."""
        if self._handle is None:
            return None
        try:
            return getattr(self._library, f"nvmlDeviceGet{question}")(self._handle, *arguments)
        except self._library.NVMLError:
            return None

    def clock_mhz(self, which: str, *, maximum: bool = False) -> float | None:
        """Clock of ``SM`` or ``MEM``."""
        if self._handle is None:
            return None
        clock = getattr(self._library, f"NVML_CLOCK_{which}")
        return self.ask("MaxClockInfo" if maximum else "ClockInfo", clock)

    def driver(self) -> str | None:
        return None if self._handle is None else str(self._library.nvmlSystemGetDriverVersion())

    def energy_mj(self) -> float | None:
        answer = self.ask("TotalEnergyConsumption")
        return None if answer is None else float(answer)

    def meter(self) -> GpuMeter:
        """Of the load that others put on it."""
        return GpuMeter(self._library, self._handle, available_cores())

    def close(self) -> None:
        if self._handle is not None:
            self._library.nvmlShutdown()
            self._handle = None


def _bus_id() -> bytes:
    """Of the first GPU that this process sees."""
    text = ctypes.create_string_buffer(32)
    if ctypes.CDLL(compiler_in_use().cuda_runtime).cudaDeviceGetPCIBusId(text, 32, 0):
        raise MeasureError("CUDA does not tell the bus address of the GPU")
    return text.value


def describe_gpu(target: Target, runtime: RuntimeDevice, nvml: NoNvml) -> Device:
    """What the GPU is; the host that drives it is part of the fingerprint, since it launches the kernels."""
    return Device(
        kind="cuda",
        target=str(target),
        processor=str(runtime.device_name),
        cores=int(runtime.multi_processor_count),
        clock_mhz=float(runtime.max_clock_rate) / 1e3,
        l2_bytes=getattr(runtime, "l2_cache_size_bytes", None) or None,
        memory_bytes=getattr(runtime, "total_global_memory", None) or None,
        driver=nvml.driver(),
        compiler=compiler_in_use().name,
        tvm_version=str(load_tvm().__version__),
        llvm_version=None,
        host_fingerprint=host_fingerprint(),
        core_type="SM",
        properties={
            "compute_capability": str(runtime.compute_version),
            "sm_count": int(runtime.multi_processor_count),
            "warp_size": int(runtime.warp_size),
            "max_threads_per_block": int(runtime.max_threads_per_block),
            "max_shared_memory_per_block_bytes": int(runtime.max_shared_memory_per_block),
            "sm_clock_mhz": nvml.clock_mhz("SM"),
            "sm_clock_max_mhz": nvml.clock_mhz("SM", maximum=True),
            "memory_clock_mhz": nvml.clock_mhz("MEM"),
            "memory_clock_max_mhz": nvml.clock_mhz("MEM", maximum=True),
            "energy": "NVML" if nvml.energy_mj() is not None else "NVML gives no energy counter here",
        },
    )


def describe_remote_gpu(target: Target, runtime: RuntimeDevice, address: str) -> Device:
    """The same of a GPU behind a session."""
    device = describe_gpu(target, runtime, NoNvml())
    where = f"{device.processor} at {address}"  # TVM's runtime does not tell the UUID
    return dataclasses.replace(device, machine_id=where, properties=device.properties | {"address": address})
