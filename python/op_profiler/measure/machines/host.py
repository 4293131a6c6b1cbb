"""The processor of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from op_profiler.compiler import runtime_device
from op_profiler.measure.device import describe_host
from op_profiler.measure.gauge import Gauge
from op_profiler.measure.kernels import GraphKernels, call_overhead_us, load_graph
from op_profiler.measure.load import LoadMeter
from op_profiler.measure.peaks import measure_peaks, with_peaks
from op_profiler.measure.rounds import Limits
from op_profiler.measure.threads import ThreadPool
from op_profiler.operators.lower import CompiledModel

_COUNTERS = Path("/sys/class/powercap")


class Host:
    """A `Machine`: this one's processor.

    Args:
        cores: those that threads may be bound to; None for all that this process may use.
    """

    def __init__(self, target: Any, cores: Sequence[int] | None = None) -> None:
        self.device = with_peaks(describe_host(target))
        self.runtime = runtime_device(target)
        self.threads = ThreadPool(cores)
        self.limits = Limits()
        self._target = target
        self._gauge: Gauge | None = None
        self._counters = _energy_counters()

    def probe(self) -> None:
        """Measure what the processor can do at most; it is in `device` from then on, and in later processes too."""
        self.device = with_peaks(self.device, measure_peaks(self._target, self.device, self.threads))

    def load(self, compiled: CompiledModel, inputs: dict[str, np.ndarray]) -> GraphKernels:
        return load_graph(compiled, self.runtime, inputs)

    def call_overhead_us(self) -> float:
        return call_overhead_us()

    def running_seconds(self) -> None:
        return

    def gauge(self) -> Gauge:
        if self._gauge is None:  # not everybody who opens a machine times a model on it
            self._gauge = Gauge(self._target)
        return self._gauge

    def meter(self) -> LoadMeter:
        return LoadMeter()

    def energy_mj(self) -> float | None:
        """The sum of the processor packages' RAPL counters, which are in microjoules."""
        return sum(int(c.read_text()) for c in self._counters) / 1e3 if self._counters else None

    def close(self) -> None:
        return


def _energy_counters() -> list[Path]:
    """Counters of whole packages (``intel-rapl:0``, not its parts) that this user may read."""
    readable = []
    for zone in sorted(_COUNTERS.glob("intel-rapl:*")):
        counter = zone / "energy_uj"
        if zone.name.count(":") > 1:
            continue
        try:
            int(counter.read_text())
        except (OSError, ValueError):
            continue
        readable.append(counter)
    return readable
