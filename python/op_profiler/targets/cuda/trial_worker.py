"""The worker whose candidates run on this machine's GPU."""

from __future__ import annotations

from op_profiler.compilers.tvm_types import DeviceArray, RuntimeDevice
from op_profiler.targets.machine import Threads
from op_profiler.tuning.candidate import TaskSpec
from op_profiler.tuning.reference import Reference
from op_profiler.tuning.task import BuiltPoint
from op_profiler.tuning.trials.device_clock import BuiltForDevice
from op_profiler.tuning.trials.worker import Built, BuiltByVendor, Worker

_FLUSHED_BYTES = 1 << 28


class GpuWorker(Worker):
    """Times on this machine's GPU."""

    memory_is_limited = False  # CUDA maps far more than there is
    cold_mechanism = "copy over the L2"

    def _open(self) -> tuple[RuntimeDevice, Threads]:
        from op_profiler.compilers.tvm_build import runtime_device
        from op_profiler.targets.cuda.gpu import NoThreads

        return runtime_device(self.target), NoThreads()

    def _vendor_kernels(self, task: TaskSpec, reference: Reference) -> list[BuiltByVendor]:
        from op_profiler.targets.cuda.vendor import kernels_on_gpu

        return kernels_on_gpu(task, reference)

    def _built(
        self,
        built: BuiltPoint,
        arrays: list[DeviceArray],
        reference: Reference | None,
        weights: list[DeviceArray],
    ) -> Built:
        options = {"cache_flush_bytes": _FLUSHED_BYTES} if self.setup.cache == "cold" else {}
        return BuiltForDevice(built.function, arrays, reference, None, built.output, None, options)
