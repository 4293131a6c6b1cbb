"""Single calls of a kernel by the GPU's clock, from caches that hold nothing of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_types import DeviceArray, RuntimeDevice
from op_profiler.targets.cuda import machine_code
from op_profiler.targets.cuda.events import Events
from op_profiler.targets.cuda.launch_cost import Spin, told

_FLUSH_FACTOR = 4  # times the L2, so that nothing of what was in it is left
COLD_MECHANISM = f"copy of {_FLUSH_FACTOR} times the L2"
_UNKNOWN_L2_BYTES = 1 << 25


def emptying(runtime: RuntimeDevice) -> tuple[DeviceArray, DeviceArray]:
    """Two arrays: a copy of one to the other leaves nothing in the L2, and keeps the GPU busy while launches follow."""
    count = _FLUSH_FACTOR * (getattr(runtime, "l2_cache_size_bytes", None) or _UNKNOWN_L2_BYTES) // 4
    first, second = (compiler_in_use().array_on(np.zeros(count, "float32"), runtime) for _ in range(2))
    return first, second


def spin_on(runtime: RuntimeDevice) -> Spin | None:
    """None where there is no NVRTC to compile it with: times then hold the events, which is told."""
    if machine_code.nvrtc() is None:
        return None
    return Spin(f"sm_{runtime.compute_version.replace('.', '')}")


class ColdCalls:
    """Times launches on the default stream, without what the events around them take."""

    def __init__(self, runtime: RuntimeDevice) -> None:
        self._events = Events()
        self._scratch = emptying(runtime)
        spin = spin_on(runtime)
        self._event_us = told(spin, self._events, runtime).event_us if spin is not None else 0.0

    def us(self, launch: Callable[[], bool]) -> float:
        """Microseconds of the GPU; NaN where the launch fails, or nothing is left beside the events."""
        self._scratch[0].copyto(self._scratch[1])
        self._events.record(0)
        ran = launch()
        self._events.record(1)
        us = self._events.between_us(0, 1) - self._event_us
        return us if ran and us > 0 else float("nan")
