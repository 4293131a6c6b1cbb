"""The worker whose candidates run on this machine's GPU."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_types import DeviceArray, RuntimeDevice
from op_profiler.targets.cuda.alone import COLD_MECHANISM, ColdCalls
from op_profiler.targets.machine import Threads
from op_profiler.tuning.candidate import TaskSpec
from op_profiler.tuning.reference import Reference
from op_profiler.tuning.task import BuiltPoint
from op_profiler.tuning.trials.device_clock import BuiltForDevice
from op_profiler.tuning.trials.worker import Built, BuiltByVendor, Worker


@dataclasses.dataclass
class BuiltCold(Built):
    """A candidate of which single calls are timed, as the collector times kernels alone.

    Attributes:
        clock: asked for when its turn on the GPU has come.
    """

    clock: Callable[[], ColdCalls]

    def timed(self, device: RuntimeDevice, calls: int, samples: int) -> tuple[float, ...]:
        assert self.kernel is not None
        clock = self.clock()
        return tuple(clock.us(self.kernel.run) for _ in range(samples))


class GpuWorker(Worker):
    """Times on this machine's GPU."""

    memory_is_limited = False  # CUDA maps far more than there is
    cold_mechanism = COLD_MECHANISM

    def _open(self) -> tuple[RuntimeDevice, Threads]:
        from op_profiler.compilers.tvm_build import runtime_device
        from op_profiler.targets.cuda.gpu import NoThreads

        return runtime_device(self.target), NoThreads()

    def _vendor_kernels(self, task: TaskSpec, reference: Reference) -> list[BuiltByVendor]:
        from op_profiler.targets.cuda.vendor import kernels_on_gpu

        return kernels_on_gpu(task, reference)

    @functools.cached_property
    def _clock(self) -> ColdCalls:
        return ColdCalls(self.device)

    def _built(
        self,
        built: BuiltPoint,
        arrays: list[DeviceArray],
        reference: Reference | None,
        weights: list[DeviceArray],
    ) -> Built:
        if self.setup.cache != "cold":
            return BuiltForDevice(built.function, arrays, reference, None, built.output, None)
        name = built.function.entry_name
        kernel = compiler_in_use().bound_kernel(name, "", built.function.get_function(name), arrays)
        return BuiltCold(built.function, arrays, reference, None, built.output, kernel, lambda: self._clock)
