"""This machine's processor as a `Machine`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import runtime_device
from op_profiler.compilers.tvm_types import Target
from op_profiler.measure.energy import Rapl
from op_profiler.measure.limits import Limits
from op_profiler.measure.load import CoreMeter
from op_profiler.measure.placements import USUAL_COPIES
from op_profiler.measure.threads import ThreadPool
from op_profiler.targets.llvm.identity import describe_host
from op_profiler.targets.llvm.peaks import measure_peaks, with_peaks
from op_profiler.targets.llvm.reference_kernels import ReferenceKernels
from op_profiler.targets.machine import LoadedModel


class Host:
    """The processor of this machine as a `Machine`.

    Args:
        cores: cores to which threads may be bound; None: all that this process may use.
    """

    def __init__(self, target: Target, cores: Sequence[int] | None = None) -> None:
        self._rapl = Rapl()
        device = describe_host(target)
        energy = {"energy": self._rapl.description}
        self.device = with_peaks(dataclasses.replace(device, properties=device.properties | energy))
        self.runtime = runtime_device(target)
        self.threads = ThreadPool(cores)
        self.limits = Limits()
        self._target = target
        self._steadiness_probe: ReferenceKernels | None = None

    def probe(self) -> None:
        """Measure the peaks of the processor. Afterwards they are part of `device`, also in later processes."""
        self.device = with_peaks(self.device, measure_peaks(self._target, self.device, self.threads))

    def load(self, compiled: CompiledModel, inputs: dict[str, np.ndarray], copies: int = USUAL_COPIES) -> LoadedModel:
        """Load the model with the compiler in use; `moved` creates up to `copies` copies of it at other addresses."""
        return compiler_in_use().load(compiled, self.runtime, inputs, copies)

    def running_seconds(self) -> None:
        """Return None: the running time is separated from the time to reach the machine only for boards."""
        return

    def steadiness_probe(self) -> ReferenceKernels:
        """Return the reference kernels, built on the first call."""
        if self._steadiness_probe is None:  # not everybody who opens a machine times a model on it
            self._steadiness_probe = ReferenceKernels(self._target)
        return self._steadiness_probe

    def meter(self, threads: int | None = None) -> CoreMeter:
        """Return a meter of the background load on the cores to which this number of threads is bound."""
        return CoreMeter(self.threads.core_set(threads))

    def conditions(self) -> None:
        """Return None: no clock, temperature or power is read per window."""
        return

    def energy_mj(self) -> float | None:
        """Return the energy counter of the processor (RAPL) in millijoules; None if it cannot be read."""
        return self._rapl.energy_mj()

    def close(self) -> None:
        """Do nothing: no session or library is open."""
        return
