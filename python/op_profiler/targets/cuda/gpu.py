"""A GPU of this machine, through the TVM with CUDA. Kernels are timed with the device's events."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.compilers.tvm_types import DeviceArray, RuntimeDevice, Target
from op_profiler.errors import MeasureError
from op_profiler.measure.in_place import BoundKernel, Runs
from op_profiler.measure.measurement import Cache, Device
from op_profiler.measure.rounds import Limits
from op_profiler.targets.cuda import tvm_build
from op_profiler.targets.cuda.alone import COLD_MECHANISM, emptying, spin_on
from op_profiler.targets.cuda.events import Events
from op_profiler.targets.cuda.launch_cost import LaunchCost, Spin, timeline_us, told
from op_profiler.targets.cuda.load import GpuMeter
from op_profiler.targets.cuda.management import NoNvml, Nvml
from op_profiler.targets.llvm.identity import host_fingerprint

_LAUNCHED_AHEAD = 100
"""Operators; an H100 takes 1,020 launches before the host has to wait, and an operator may be several."""
_MOST_TRIES = 12
_GAP_READINGS, _GAP_US = (3, 15), 2e4


class Graph(Protocol):
    """What a compiler loads, as far as a GPU needs it; nothing of it waits for what it launches."""

    kernels: tuple[Any, ...]

    @property
    def labels(self) -> list[str]: ...

    @property
    def whole(self) -> Runs:
        """Launches the whole model."""

    def repeat_kernel(self, index: int, calls: int) -> bool: ...

    def walk(self, cache: Cache, timed: Sequence[bool]) -> list[float]: ...

    def kernel_outputs(self) -> Iterator[np.ndarray]: ...

    def output_arrays(self) -> list[np.ndarray]: ...


class _Timed(NamedTuple):
    """Microseconds of the GPU, and of the host to launch it; NaN where it failed."""

    us: float
    launching_us: float


@dataclasses.dataclass(eq=False)
class GpuKernels:
    """A model on a GPU (a `LoadedModel`).

    A kernel's time is that of the GPU alone, from event to event without what the events take (`call_overhead_us`).
    The GPU is kept waiting or busy while kernels are launched, so no time holds the wait for a launch. How long the GPU
    waits for launches when the model runs as a whole is `launch_gap_us`.

    Attributes:
        launches: how many kernels each operator launches, in execution order.
        spin: tells the cost of launches; None where nothing does.
    """

    graph: Graph
    runtime: RuntimeDevice
    events: Events
    scratch: tuple[DeviceArray, DeviceArray]
    launches: tuple[int, ...]
    spin: Spin | None = None
    _hold_us: int = dataclasses.field(default=200, init=False)
    _cost: LaunchCost | None = dataclasses.field(default=None, init=False)
    _launching_us: list[float] = dataclasses.field(default_factory=list, init=False)

    @property
    def labels(self) -> list[str]:
        return self.graph.labels

    def run_model(self) -> None:
        ran = self.graph.whole.run()
        self.runtime.sync()
        if not ran:
            raise MeasureError("the model does not run on the GPU as a whole")

    def move_stack(self) -> None:
        """A GPU has none that the host places."""
        return

    def time_model(self) -> float:
        timed = self._timed(self.graph.whole.run)
        self._launching_us.append(timed.launching_us)
        return timed.us

    def _timed(self, launch: Callable[[], bool]) -> _Timed:
        """From before a launch on, by the GPU's clock and by the host's."""
        self.events.record(0)
        started = time.perf_counter_ns()
        ran = launch()
        stopped = time.perf_counter_ns()
        self.events.record(1)
        us = self.events.between_us(0, 1)
        return _Timed(us, (stopped - started) / 1e3) if ran else _Timed(float("nan"), float("nan"))

    def walk(self, cache: Cache, timed: list[bool]) -> list[float]:
        if cache == "model":
            return self._in_model(timed)
        times = []
        for kernel, wanted in zip(self.graph.kernels, timed):
            times.append(self._alone(kernel, cache) if wanted else self._untimed(kernel))
        return times

    def _in_model(self, timed: list[bool]) -> list[float]:
        """One behind the other, each part of them launched while the GPU waits.

        Raises:
            MeasureError: the host does not get to launch them in time.
        """
        for _ in range(_MOST_TRIES):
            times = self._walk_held()
            if times is not None:
                return [time if wanted else float("nan") for time, wanted in zip(times, timed, strict=True)]
            self._hold_us *= 2
        raise MeasureError("the host is too busy to launch kernels ahead of the GPU; leave it a core")

    def _walk_held(self) -> list[float] | None:
        """Times of all kernels; None where the GPU began before all of a part had been launched."""
        times: list[float] = []
        kernels = self.graph.kernels
        for first in range(0, len(kernels), _LAUNCHED_AHEAD):
            part = kernels[first : first + _LAUNCHED_AHEAD]
            self.events.hold(self._hold_us)
            self.events.record(0)
            ran = []
            for number, kernel in enumerate(part, start=1):
                ran.append(kernel.run())
                self.events.record(number)
            late = self.events.passed(0)
            self.runtime.sync()
            if late:
                return None
            times += [self.events.between_us(i, i + 1) if good else float("nan") for i, good in enumerate(ran)]
        return times

    def _alone(self, kernel: BoundKernel, cache: Cache) -> float:
        self.scratch[0].copyto(self.scratch[1])
        if cache == "hot":
            kernel.run()
        return self._timed(kernel.run).us

    def _untimed(self, kernel: BoundKernel) -> float:
        kernel.run()
        return float("nan")

    def repeat_kernel(self, index: int, calls: int) -> bool:
        ran = self.graph.repeat_kernel(index, calls)
        self.runtime.sync()
        return ran

    def moved(self) -> GpuKernels:
        return self

    def call_overhead_us(self) -> float | None:
        if self.spin is None:
            return None
        self._cost = told(self.spin, self.events, self.runtime)
        return self._cost.event_us

    def launch_gap_us(self) -> float | None:
        if self.spin is None:
            return None
        cost = self._cost or told(self.spin, self.events, self.runtime)  # of this window, where there is one
        wanted = [True] * len(self.graph.kernels)
        kernels_us = np.array(self._in_model(wanted)) - cost.event_us
        if not np.isfinite(kernels_us).all():
            return None  # a kernel fails
        launches, alone = [], []
        for number in range(int(np.clip(_GAP_US / max(kernels_us.sum(), 1.0), *_GAP_READINGS))):
            self.run_model()
            launches.append(self.graph.walk("model", wanted))  # of the host's clock: it waits for no kernel
            if number % 2:  # what comes before a time of the whole in a round
                self._timed(self.graph.whole.run)
            else:
                self._in_model(wanted)
            alone.append(self._timed(self.graph.kernels[-1].run))
        # The run that is the median as a whole: what interrupts one launch in twenty is in most runs, and in no median.
        launches_us = np.array(sorted(launches, key=sum)[len(launches) // 2])
        alone_us, alone_launching_us = np.median(alone, axis=0)
        # what a time of the whole holds before the first launch and behind the last kernel
        ends_us = alone_us - self._timeline_us(kernels_us[-1:], launches_us[-1:], self.launches[-1:], cost)
        if self._launching_us:  # the host is not always equally fast: as in the runs that were timed as a whole
            call_us = alone_launching_us - launches_us[-1]  # Python's part
            launches_us *= (np.nanmedian(self._launching_us) - call_us) / launches_us.sum()
            self._launching_us.clear()
        return self._timeline_us(kernels_us, launches_us, self.launches, cost) + ends_us - float(kernels_us.sum())

    @staticmethod
    def _timeline_us(us: np.ndarray, launches_us: np.ndarray, counts: Sequence[int], cost: LaunchCost) -> float:
        """`timeline_us` of operators; one of several kernels has as much of its time, and of its launches, in each."""
        each = np.maximum(counts, 1)
        kernels_us = np.repeat((us - (each - 1) * cost.turn_us) / each, each)
        return timeline_us(kernels_us, np.repeat(launches_us / each, each), cost.turn_us)

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
        return {"model": "in-graph", "hot": "repeat", "cold": COLD_MECHANISM}[cache]

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
        self._nvml = Nvml()
        described = describe_gpu(target, self.runtime, self._nvml)
        self.device = dataclasses.replace(described, machine_id=tvm_build.device_uuid())
        self.threads = NoThreads()
        self.limits = Limits()

    def load(self, compiled: CompiledModel, inputs: dict[str, np.ndarray], copies: int = 1) -> GpuKernels:
        graph = cast("Graph", compiler_in_use().load(compiled, self.runtime, inputs))
        launches = compiled.launch_counts(graph.labels)
        return GpuKernels(graph, self.runtime, Events(), emptying(self.runtime), launches, self._spin)

    @functools.cached_property
    def _spin(self) -> Spin | None:
        return spin_on(self.runtime)

    def running_seconds(self) -> None:
        return

    def steadiness_probe(self) -> None:
        return

    def meter(self, threads: int | None = None) -> GpuMeter:
        return self._nvml.meter()

    def conditions(self) -> dict[str, Any] | None:
        return self._nvml.conditions()

    def energy_mj(self) -> float | None:
        return self._nvml.energy_mj()

    def close(self) -> None:
        self._nvml.close()


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
