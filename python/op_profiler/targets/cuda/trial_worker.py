"""The worker that times candidates of a search on this machine's GPU."""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import runtime_device
from op_profiler.compilers.tvm_types import DeviceArray, RuntimeDevice
from op_profiler.measure.measurement import Cache
from op_profiler.targets.cuda.alone import SingleCalls
from op_profiler.targets.cuda.gpu import NoThreads
from op_profiler.targets.cuda.own_kernels import flush_mechanism
from op_profiler.targets.cuda.vendor import kernels_on_gpu
from op_profiler.targets.machine import Threads
from op_profiler.tuning.candidate import TaskSpec
from op_profiler.tuning.reference import Reference
from op_profiler.tuning.task import BuiltPoint
from op_profiler.tuning.trials.worker import Built, BuiltByVendor, Worker

_MOST_CALLS = 5  # of a sample: each is held and waited for, which takes longer than short kernels


@dataclasses.dataclass
class BuiltAlone(Built):
    """A candidate whose single calls are timed, as the collector times kernels in isolation.

    Attributes:
        cache: state of the caches before each call.
        clock: returns the timer; not called before it is the candidate's turn on the GPU.
    """

    cache: Cache
    clock: Callable[[], SingleCalls]

    def timed(self, device: RuntimeDevice, calls: int, samples: int) -> tuple[float, ...]:
        """Return samples in microseconds, each the mean of at most 5 single calls."""
        assert self.kernel is not None
        run, clock = self.kernel.run, self.clock()
        each = range(min(calls, _MOST_CALLS))
        return tuple(statistics.mean(clock.us(run, self.cache) for _ in each) for _ in range(samples))


class GpuWorker(Worker):
    """A worker that times candidates on this machine's GPU."""

    memory_is_limited = False  # CUDA maps far more than there is
    cold_mechanism = flush_mechanism()

    def _open(self) -> tuple[RuntimeDevice, Threads]:
        return runtime_device(self.target), NoThreads()

    def _meter(self) -> None:
        """Return None: several searches share a GPU with one process each, and their load cannot be distinguished from
        background load."""

    def _vendor_kernels(self, task: TaskSpec, reference: Reference) -> list[BuiltByVendor]:
        return kernels_on_gpu(task, reference)

    @functools.cached_property
    def _clock(self) -> SingleCalls:
        return SingleCalls(self.device)

    def _built(
        self, built: BuiltPoint, arrays: list[DeviceArray], reference: Reference | None, weights: list[DeviceArray]
    ) -> Built:
        name = built.function.entry_name
        kernel = compiler_in_use().bound_kernel(name, "", built.function.get_function(name), arrays)
        cache = self.setup.cache
        return BuiltAlone(built.function, arrays, reference, None, built.output, kernel, cache, lambda: self._clock)
