"""What events and launches add to kernels on a GPU, told by a kernel that reads itself how long it keeps it busy.

The executor launches kernels ahead of the GPU where they take longer than their launches, and else the GPU waits. So a
model takes the time of its kernels and gaps between them. An event behind every kernel tells the kernels' times, but
each of these holds what the event takes and what the GPU needs from kernel to kernel. `LaunchCost` tells both, and
`timeline_us` how long the gaps of a model are.
"""

from __future__ import annotations

import ctypes
import dataclasses
import statistics
from collections.abc import Iterable
from typing import Any

from op_profiler.compilers.tvm_types import RuntimeDevice
from op_profiler.errors import MeasureError
from op_profiler.targets.cuda import machine_code, tvm_build
from op_profiler.targets.cuda.events import Events, Runtime

_SPIN = """extern "C" __global__ void spin(long long cycles, long long *took_ns) {
  long long begun, ended, start = clock64();
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
  while (clock64() - start < cycles) {}
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ended));
  *took_ns = ended - begun;
}"""
_CYCLES = 8000  # about 4 us: what is launched behind it is there before it ends
_CHAIN = 24
_REPEATS = 9
_HOLD_US = 800
_DEVICE_TO_HOST = 2  # cudaMemcpyDeviceToHost
_EDGES_US = 0.93
"""Before a kernel's first instruction and behind its last: an H100 took 4.96 us by CUPTI for a `Spin` of 4.03 us (by
hand). CUPTI counts it as the kernel's, and so do we."""


def timeline_us(kernels_us: Iterable[float], launches_us: Iterable[float], turn_us: float) -> float:
    """When the last of some kernels ends, from the first launch on, microseconds.

    A kernel begins when it is launched and, `turn_us` before that, the kernel before it has ended.

    Args:
        kernels_us: time of each kernel on the GPU, in order.
        launches_us: time that each launch takes the host, in the same order.
    """
    end_us, launched_us = -turn_us, 0.0
    for kernel_us, launch_us in zip(kernels_us, launches_us, strict=True):
        launched_us += launch_us
        end_us = max(launched_us, end_us + turn_us) + kernel_us
    return end_us


@dataclasses.dataclass(frozen=True)
class LaunchCost:
    """Microseconds on a GPU.

    Attributes:
        event_us: from event to event around a kernel, beyond the kernel itself.
        turn_us: from the end of a kernel to the begin of the next one that was launched before.
    """

    event_us: float
    turn_us: float


class Spin:
    """A kernel of one thread that waits for some cycles, and tells how long it took.

    Args:
        architecture: of the GPU, such as ``sm_90``.

    Raises:
        MeasureError: it cannot be compiled or loaded.
    """

    def __init__(self, architecture: str) -> None:
        self._runtime = Runtime()
        self._took_ns = ctypes.c_void_p()
        self._runtime.call("Malloc", "allocate memory", ctypes.byref(self._took_ns), ctypes.c_size_t(8))
        compiler = machine_code.nvrtc()
        if compiler is None:
            raise MeasureError("there is no NVRTC, which compiles what tells the cost of a launch")
        self._driver: Any = tvm_build.driver()
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._code = compiler.compile(_SPIN, architecture)
        self._values = ctypes.c_longlong(_CYCLES), self._took_ns
        self._given = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in self._values))
        self._call("ModuleLoadData", ctypes.byref(self._module), self._code)
        self._call("ModuleGetFunction", ctypes.byref(self._function), self._module, b"spin")

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver, f"cu{name}")(*arguments)
        if code:
            raise MeasureError(f"CUDA's driver cannot run the kernel that tells the cost of a launch: error {code}")

    def launch(self) -> None:
        """On the default stream."""
        self._call("LaunchKernel", self._function, 1, 1, 1, 1, 1, 1, 0, None, self._given, None)

    def took_us(self) -> float:
        """Of the last launch, as CUPTI counts the time of a kernel."""
        found = ctypes.c_longlong()
        arguments = ctypes.byref(found), self._took_ns, ctypes.c_size_t(8), _DEVICE_TO_HOST
        self._runtime.call("Memcpy", "read what a kernel wrote", *arguments)
        return found.value / 1e3 + _EDGES_US


def told(spin: Spin, events: Events, device: RuntimeDevice) -> LaunchCost:
    """The cost of launches as it is now; takes some milliseconds."""
    spin.launch()
    device.sync()
    with_events, without, kernel = [], [], []
    for _ in range(_REPEATS):
        events.hold(_HOLD_US)
        for number in range(_CHAIN):
            events.record(number)
            spin.launch()
        events.record(_CHAIN)
        device.sync()
        kernel.append(spin.took_us())
        with_events.append(statistics.median(events.between_us(i, i + 1) for i in range(1, _CHAIN)))
        events.hold(_HOLD_US)
        events.record(0)
        for _ in range(_CHAIN):
            spin.launch()
        events.record(1)
        for _ in range(_CHAIN):
            spin.launch()
        events.record(2)
        device.sync()
        without.append(events.between_us(1, 2) / _CHAIN)
    kernel_us = statistics.median(kernel)
    beyond = (statistics.median(times) - kernel_us for times in (with_events, without))
    return LaunchCost(*beyond)
