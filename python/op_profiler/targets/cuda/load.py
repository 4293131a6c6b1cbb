"""Background load of a GPU: other processes that compute on it, and whether a core is free to launch."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from types import ModuleType
from typing import Any

from op_profiler.measure.load import CoreLoad, CoreMeter, ForeignLoad

_MOST_SHARE = 0.02
_NOBODY_USED_IT = (0, 6)  # NVML_SUCCESS, which pynvml raises where there are no samples, and NVML_ERROR_NOT_FOUND
_LAUNCHING_CORES = 0.85


class GpuMeter:
    """A `LoadMeter` of a GPU, by NVIDIA's management library.

    Use of the SMs by other processes, as NVML reports it, counts as background load from 2 % on. If NVML does not
    report it (some clouds, MIG), every other process with a context on the GPU counts as background load. The processor
    only launches, so its background load counts only if no core is left for launching.

    Args:
        library: the module ``pynvml``, initialized; None where it cannot be used.
        gpu: NVML's handle of the GPU.
        cores: cores that this process may use.
    """

    def __init__(self, library: ModuleType | None, gpu: Any, cores: Collection[int]) -> None:
        self._library = library
        self._gpu = gpu
        self._processor = CoreMeter(cores)
        self._seen_us = int(time.time() * 1e6)

    def read(self) -> ForeignLoad | None:
        """Return the load since the last reading; None if the processor's load cannot be read."""
        load = self._processor.cores()
        if load is None:
            return None
        share, others = self._other_processes()
        disturbs = others if share is None else share > _MOST_SHARE
        return ForeignLoad(share, disturbs or _no_core_is_left(load))

    def _other_processes(self) -> tuple[float | None, bool]:
        """Return the share of the SMs' time that other processes used (None if unknown), and whether others exist."""
        if self._library is None:
            return None, False
        try:
            present = {int(one.pid) for one in self._library.nvmlDeviceGetComputeRunningProcesses(self._gpu)}
        except self._library.NVMLError:
            return None, False
        try:
            samples = list(self._library.nvmlDeviceGetProcessUtilization(self._gpu, self._seen_us))
        except self._library.NVMLError as error:
            if error.value not in _NOBODY_USED_IT:
                return None, len(present) > 1
            samples = []
        self._seen_us = max([self._seen_us, *(int(sample.timeStamp) for sample in samples)])
        percent: dict[int, list[int]] = {}
        for sample in samples:
            percent.setdefault(int(sample.pid), []).append(int(sample.smUtil))
        shares = {pid: sum(found) / len(found) / 100 for pid, found in percent.items()}
        return min(sum(shares.values()) - shares.get(_own(present, shares), 0.0), 1.0), len(present) > 1


def _own(present: set[int], shares: dict[int, float]) -> int:
    """Return the number of this process for NVML. In a container NVML reports the host's numbers: this process is then
    the only one, or the busiest."""
    if os.getpid() in present:
        return os.getpid()
    return max(present, key=lambda pid: shares.get(pid, 0.0), default=os.getpid())


def _no_core_is_left(load: CoreLoad) -> bool:
    return load.near > load.near_cores - _LAUNCHING_CORES
