"""A GPU of this machine, through the TVM with CUDA. Kernels are timed with the device's events."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

import numpy as np

from op_profiler.compilers.bound_kernel import BoundKernel
from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.compilers.tvm_types import RuntimeDevice, Target
from op_profiler.errors import MeasureError
from op_profiler.measure.in_place import Runs
from op_profiler.measure.limits import Limits
from op_profiler.measure.measurement import KERNEL_UNCERTAINTY, Cache, Device
from op_profiler.targets.cuda import tvm_build
from op_profiler.targets.cuda.alone import alone_us
from op_profiler.targets.cuda.events import Events, HeldStream
from op_profiler.targets.cuda.launch_cost import LaunchCost, launch_cost, timeline_us, warm_launch_cost
from op_profiler.targets.cuda.load import GpuMeter
from op_profiler.targets.cuda.management import NoNvml, Nvml
from op_profiler.targets.cuda.own_kernels import Flush, Spin, flush_mechanism, own_kernels
from op_profiler.targets.llvm.identity import host_fingerprint
from op_profiler.targets.machine import FixedModel

_LAUNCHED_AHEAD = 100
"""Number of operators. The queue of an H100 accepts 1,020 launches before the host has to wait, and an operator may be
several launches."""
_GAP_READINGS, _GAP_US = (3, 15), 2e4


class LaunchedGraph(Protocol):
    """A model as a compiler loads it for a GPU; its methods do not wait for what they launch."""

    kernels: tuple[Any, ...]

    @property
    def labels(self) -> list[str]:
        """Return the compiler's hash of each kernel, in execution order."""

    @property
    def whole(self) -> Runs:
        """The call that launches the whole model."""

    def repeat_kernel(self, index: int, calls: int) -> bool:
        """Launch one kernel `calls` times; return False if a launch failed."""

    def walk(self, cache: Cache, timed: Sequence[bool]) -> list[float]:
        """Launch every kernel; return the host's microseconds per launch, NaN for kernels that are not timed."""

    def kernel_outputs(self) -> Iterator[np.ndarray]:
        """Run the kernels in order and yield the output of each on the host."""

    def output_arrays(self) -> list[np.ndarray]:
        """Return the outputs of the last run, on the host."""


@dataclasses.dataclass(eq=False)
class GpuKernels(FixedModel):
    """A model on a GPU (a `LoadedModel`). CUDA's allocator places the tensors, and kernels have no stack on the host.

    A kernel's time is that of the GPU alone, from event to event without the time of the events (`call_overhead_us`).
    The GPU waits or is busy while kernels are launched, so no time includes the wait for a launch. `launch_gap_us` is
    the time for which the GPU waits for launches in a run of the whole model.

    Attributes:
        launches: number of kernels that each operator launches, in execution order.
        spin: measures the cost of launches; None if it cannot be measured.
    """

    graph: LaunchedGraph
    runtime: RuntimeDevice
    events: Events
    flush: Flush
    launches: tuple[int, ...]
    spin: Spin | None = None
    _cost: LaunchCost | None = dataclasses.field(default=None, init=False)

    def __post_init__(self) -> None:
        self._held = HeldStream(self.events)

    @property
    def labels(self) -> list[str]:
        """Return the hashes of the graph's kernels."""
        return self.graph.labels

    def run_model(self) -> None:
        """Launch the model and wait for the GPU.

        Raises:
            MeasureError: a launch failed.
        """
        ran = self.graph.whole.run()
        self.runtime.sync()
        if not ran:
            raise MeasureError("the model does not run on the GPU as a whole")

    def time_model(self) -> float:
        """Return the microseconds between an event before and an event after the launch; NaN if the launch failed."""
        return self._timed(self.graph.whole.run)

    def _timed(self, launch: Callable[[], bool]) -> float:
        """Return the microseconds between an event before and an event after a launch; NaN if the launch failed."""
        self.events.record(0)
        ran = launch()
        self.events.record(1)
        us = self.events.between_us(0, 1)
        return us if ran else float("nan")

    def walk(self, cache: Cache, timed: list[bool]) -> list[float]:
        """Time kernels in place (``model``), or one at a time with hot or flushed caches; in microseconds.

        Raises:
            MeasureError: the host does not launch the kernels while the GPU is held.
        """
        if cache == "model":
            return self._in_model(timed)
        times = []
        for kernel, wanted in zip(self.graph.kernels, timed):
            alone = alone_us(self._held, self.flush, kernel.run, cache) if wanted else self._untimed(kernel)
            times.append(alone)
        return times

    def _in_model(self, timed: list[bool]) -> list[float]:
        """Time the kernels one after the other; the GPU waits while each part of them is launched.

        Raises:
            MeasureError: the host cannot launch them in time.
        """
        times = self._held.repeated(self._walk_held)
        return [time if wanted else float("nan") for time, wanted in zip(times, timed, strict=True)]

    def _walk_held(self) -> list[float] | None:
        """Return the times of all kernels; None if the GPU began before all kernels of a part had been launched."""
        times: list[float] = []
        kernels = self.graph.kernels
        for first in range(0, len(kernels), _LAUNCHED_AHEAD):
            part = self._held.once([kernel.run for kernel in kernels[first : first + _LAUNCHED_AHEAD]])
            if part is None:
                return None
            times += part
        return times

    def _untimed(self, kernel: BoundKernel) -> float:
        kernel.run()
        return float("nan")

    def repeat_kernel(self, index: int, calls: int) -> bool:
        """Launch one kernel `calls` times and wait for the GPU."""
        ran = self.graph.repeat_kernel(index, calls)
        self.runtime.sync()
        return ran

    def call_overhead_us(self) -> float | None:
        """Measure what the events around a kernel add to its time, microseconds; None without NVRTC."""
        if self.spin is None:
            return None
        self._cost = launch_cost(self.spin, self.events)
        return self._cost.event_us

    def launch_gap_us(self) -> float | None:
        """Return the microseconds per run for which the GPU waits for launches, computed by `launch_cost.timeline_us`
        from separately timed kernels and launches.

        None without NVRTC, and if a kernel fails.
        """
        if self.spin is None:
            return None
        cost = self._cost or launch_cost(self.spin, self.events)  # of this window, where there is one
        wanted = [True] * len(self.graph.kernels)
        kernels_us = np.array(self._in_model(wanted)) - cost.event_us
        if not np.isfinite(kernels_us).all():
            return None  # a kernel fails
        launches, alone_us = [], []
        for number in range(int(np.clip(_GAP_US / max(kernels_us.sum(), 1.0), *_GAP_READINGS))):
            self.run_model()
            launches.append(self.graph.walk("model", wanted))  # of the host's clock: it waits for no kernel
            if number % 2:  # as before a timed run of the model in a round
                self._timed(self.graph.whole.run)
            else:
                self._in_model(wanted)
            alone_us.append(self._timed(self.graph.kernels[-1].run))
        # The run that is the median as a whole: what interrupts one launch in twenty is in most runs, and in no median.
        launches_us = np.array(sorted(launches, key=sum)[len(launches) // 2])
        # what a time of the whole holds before the first launch and behind the last kernel
        ends_us = float(np.median(alone_us)) - self._timeline_us(
            kernels_us[-1:], launches_us[-1:], self.launches[-1:], cost
        )
        return self._timeline_us(kernels_us, launches_us, self.launches, cost) + ends_us - float(kernels_us.sum())

    @staticmethod
    def _timeline_us(us: np.ndarray, launches_us: np.ndarray, counts: Sequence[int], cost: LaunchCost) -> float:
        """Return `timeline_us` of operators; the time and the launches of an operator are divided evenly among its
        kernels."""
        each = np.maximum(counts, 1)
        kernels_us = np.repeat((us - (each - 1) * cost.turn_us) / each, each)
        return timeline_us(kernels_us, np.repeat(launches_us / each, each), cost.turn_us)

    def kernel_error(self, index: int) -> str | None:
        """Run one kernel with checks and wait, so that errors on the GPU are reported too."""
        error = self.graph.kernels[index].error()
        if error is None:
            try:
                self.runtime.sync()
            except RuntimeError as failure:  # which TVM's own error is
                return last_line(failure)
        return error

    def cache_mechanism(self, cache: Cache) -> str:
        """Return ``in-graph``, ``repeat`` or how the L2 cache is flushed."""
        return {"model": "in-graph", "hot": "repeat", "cold": flush_mechanism()}[cache]

    def kernel_outputs(self) -> Iterator[np.ndarray]:
        """Run the graph's kernels in order and yield their outputs."""
        return self.graph.kernel_outputs()

    def output_arrays(self) -> list[np.ndarray]:
        """Return the graph's outputs of the last run."""
        return self.graph.output_arrays()


class NoThreads:
    """Stands in for `Threads`: the schedule decides the blocks and threads of a GPU's kernels (`launch` in the
    dataset)."""

    def use(self, threads: int) -> None:
        """Do nothing; the thread count is ignored."""
        return

    def effective_threads(self) -> None:
        """Return None: threads of the host do not run kernels."""
        return

    def core_set(self, threads: int | None = None) -> tuple[int, ...]:
        """Return an empty tuple."""
        return ()

    def effective_core_set(self) -> tuple[int, ...]:
        """Return an empty tuple."""
        return ()


class Gpu:
    """A `Machine`: GPU 0 of those that this process can use (``CUDA_VISIBLE_DEVICES`` selects them)."""

    def __init__(self, target: Target) -> None:
        lacking = tvm_build.missing_gpu(compiler_in_use().cuda_runtime)
        if lacking:
            raise MeasureError(f"target cuda: this machine lacks {'; '.join(lacking)}")
        self.runtime = runtime_device(target)
        self._nvml = Nvml()
        kernels = own_kernels(self.runtime)
        self._flush = Flush(self.runtime, kernels)
        self._spin = Spin(kernels) if kernels is not None else None
        described = describe_gpu(target, self.runtime, self._nvml)
        properties = described.properties | _timing_of(self._spin)
        self.device = dataclasses.replace(described, machine_id=tvm_build.device_uuid(), properties=properties)
        self.threads = NoThreads()
        self.limits = Limits()

    def load(self, compiled: CompiledModel, inputs: dict[str, np.ndarray], copies: int = 1) -> GpuKernels:
        """Load the model on the GPU; `copies` is ignored."""
        graph = cast("LaunchedGraph", compiler_in_use().load(compiled, self.runtime, inputs))
        launches = compiled.launch_counts(graph.labels)
        return GpuKernels(graph, self.runtime, Events(), self._flush, launches, self._spin)

    def running_seconds(self) -> None:
        """Return None: the running time is separated from the time to reach the machine only for boards."""
        return

    def steadiness_probe(self) -> None:
        """Return None: a GPU has no reference kernels."""
        return

    def meter(self, threads: int | None = None) -> GpuMeter:
        """Return a meter of the background load on the GPU and on the cores that launch; `threads` is ignored."""
        return self._nvml.meter()

    def conditions(self) -> dict[str, Any] | None:
        """Read clocks, temperature, power and throttling from NVML; None without NVML."""
        return self._nvml.conditions()

    def energy_mj(self) -> float | None:
        """Return NVML's energy counter, millijoules; None if the GPU has none."""
        return self._nvml.energy_mj()

    def close(self) -> None:
        """Shut NVML down."""
        self._nvml.close()


def _timing_of(spin: Spin | None) -> dict[str, Any]:
    """Return clocks and kernel uncertainty of a GPU for `Device.properties`; which times count as short depends on
    them."""
    if spin is None:
        return {KERNEL_UNCERTAINTY: None, "launch_cost": "not measured: there is no NVRTC"}
    cost = warm_launch_cost(spin, Events())
    rounded = {name: round(us, 3) for name, us in dataclasses.asdict(cost).items()}
    return {KERNEL_UNCERTAINTY: rounded.pop("uncertain_us"), "launch_cost": rounded}


def describe_gpu(target: Target, runtime: RuntimeDevice, nvml: NoNvml) -> Device:
    """Describe the GPU. The host is part of the fingerprint, because the host launches the kernels."""
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
    """Describe a GPU of a machine behind RPC, whose address is part of the description."""
    device = describe_gpu(target, runtime, NoNvml())
    where = f"{device.processor} at {address}"  # TVM's runtime does not tell the UUID
    return dataclasses.replace(device, machine_id=where, properties=device.properties | {"address": address})
