"""The resource ``gpu_clock_mhz``: the SM clock of a GPU, locked through NVML."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from op_profiler.resources.nvml import nvml
from op_profiler.resources.resource import Resource, ResourceError


class GpuClock(Resource):
    """Clock of a GPU's SMs in MHz, which NVML can lock. NVML does not report earlier locks, so none is restored."""

    name = "gpu_clock_mhz"
    of_gpu = True

    def range(self) -> list[int]:
        """Return the clocks that the GPU supports at its highest memory clock, in ascending order."""
        with nvml() as (module, gpu):
            memory = max(module.nvmlDeviceGetSupportedMemoryClocks(gpu))
            return sorted(module.nvmlDeviceGetSupportedGraphicsClocks(gpu, memory))

    def read(self) -> int:
        """Return the present clock; it is low on an idle GPU."""
        with nvml() as (module, gpu):
            return int(module.nvmlDeviceGetClockInfo(gpu, module.NVML_CLOCK_SM))

    def check_settable(self) -> None:
        """Raise ResourceError unless this process runs as root."""
        if os.geteuid() != 0:
            raise ResourceError("only root may lock a GPU's clocks")

    @contextlib.contextmanager
    def applied(self, value: int) -> Iterator[None]:
        """Lock the SM clock at `value` MHz; afterwards remove all locks, including an earlier one."""
        self.check_settable()
        with nvml() as (module, gpu):
            module.nvmlDeviceSetGpuLockedClocks(gpu, value, value)
            try:
                yield
            finally:
                module.nvmlDeviceResetGpuLockedClocks(gpu)
