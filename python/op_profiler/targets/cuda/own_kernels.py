"""Kernels of this package: one that times itself, one that measures the timer's resolution, one that flushes the L2."""

from __future__ import annotations

import ctypes
from typing import Any

from op_profiler.compilers.tvm_types import RuntimeDevice
from op_profiler.errors import MeasureError
from op_profiler.targets.cuda import machine_code, tvm_build
from op_profiler.targets.cuda.events import Runtime

_PROGRAM = """
__device__ long long now_ns() {
  long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
extern "C" __global__ void spin(long long cycles, long long *total_ns) {
  long long begun = now_ns(), start = clock64();
  while (clock64() - start < cycles) {}
  *total_ns += now_ns() - begun;
}
extern "C" __global__ void timer_steps(long long steps, long long *total_ns) {
  long long before = now_ns(), first, last, now;
  while ((first = now_ns()) == before) {}
  last = first;
  for (long long seen = 0; seen < steps; seen += now != last, last = now) now = now_ns();
  *total_ns += last - first;
}
extern "C" __global__ void read_all(const float4 *from, long long count, float *never) {
  float sum = 0;
  long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += stride) {
    float4 found = from[i];
    sum += found.x + found.y + found.z + found.w;
  }
  if (sum == 0.125f) *never = sum; /* else the compiler would leave out the loop */
}
"""
_CYCLES = 8000  # about 4 us: what is launched behind it is there before it ends
_STEPS = 16
_DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 2, 3  # kinds of cudaMemcpy
_READING = 1024, 256  # blocks and their threads
_FLUSH_FACTOR = 4  # times the L2, so that nothing of what was in it is left
_UNKNOWN_L2_BYTES = 1 << 25


class OwnKernels:
    """op_profiler's own CUDA kernels, compiled and loaded on GPU 0; they are launched on the default stream.

    Args:
        architecture: architecture of the GPU, such as ``sm_90``.
        compiler: generates the machine code.

    Raises:
        MeasureError: the program cannot be compiled or loaded.
    """

    def __init__(self, architecture: str, compiler: machine_code.Nvrtc) -> None:
        self._driver: Any = tvm_build.driver()
        self._module = ctypes.c_void_p()
        try:
            self._code = compiler.compile(_PROGRAM, architecture)
        except RuntimeError as error:
            raise MeasureError(str(error)) from error
        self._call("ModuleLoadData", ctypes.byref(self._module), self._code)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver, f"cu{name}")(*arguments)
        if code:
            raise MeasureError(f"CUDA's driver cannot run a kernel of op_profiler: error {code}")

    def launch(self, name: str, values: tuple[Any, ...], blocks: int = 1, threads: int = 1) -> None:
        """Launch a kernel.

        Args:
            name: name of the kernel's function.
            values: arguments of the kernel, as ctypes objects.
        """
        function = ctypes.c_void_p()
        self._call("ModuleGetFunction", ctypes.byref(function), self._module, name.encode())
        given = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self._call("LaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None, given, None)


def own_kernels(runtime: RuntimeDevice) -> OwnKernels | None:
    """Return op_profiler's own kernels for a GPU; None if there is no NVRTC to compile them with."""
    compiler = machine_code.nvrtc()
    return None if compiler is None else OwnKernels(f"sm_{runtime.compute_version.replace('.', '')}", compiler)


class Spin:
    """A kernel of one thread that spins, and sums up the time from its first to its last instruction."""

    def __init__(self, kernels: OwnKernels) -> None:
        self._kernels, self._runtime = kernels, Runtime()
        self._total = _allocated(self._runtime, 8)
        self._values = ctypes.c_longlong(_CYCLES), self._total
        self._launches, self._before_ns = 0, self._total_ns()

    def _total_ns(self) -> int:
        found = ctypes.c_longlong()
        arguments = ctypes.byref(found), self._total, ctypes.c_size_t(8), _DEVICE_TO_HOST
        self._runtime.call("Memcpy", "read what a kernel wrote", *arguments)
        return found.value

    def _added_ns(self) -> int:
        """Return the nanoseconds added since the last call; wait for all launches."""
        before_ns, self._before_ns = self._before_ns, self._total_ns()
        return self._before_ns - before_ns

    def launch(self) -> bool:
        """Launch the kernel on the default stream; return True, like launches of other kernels."""
        self._kernels.launch("spin", self._values)
        self._launches += 1
        return True

    def mean_us(self) -> float:
        """Wait for all launches; return the mean microseconds of those since the last call, NaN without launches."""
        launches, self._launches = self._launches, 0
        added_ns = self._added_ns()
        return added_ns / launches / 1e3 if launches else float("nan")

    def timer_step_us(self) -> float:
        """Return the resolution of ``%globaltimer`` in a kernel: 32 ns on Hopper, about 1 us on earlier GPUs."""
        self._kernels.launch("timer_steps", (ctypes.c_longlong(_STEPS), self._total))
        return self._added_ns() / _STEPS / 1e3


def flush_mechanism() -> str:
    """Return how `Flush` works on this machine, as text for `Settings.cache_mechanism`."""
    return f"{'copy' if machine_code.nvrtc() is None else 'read'} of {_FLUSH_FACTOR} times the L2"


class Flush:
    """Evicts all earlier data from the L2."""

    def __init__(self, runtime: RuntimeDevice, kernels: OwnKernels | None) -> None:
        self._runtime, self._kernels = Runtime(), kernels
        self._bytes = _FLUSH_FACTOR * (getattr(runtime, "l2_cache_size_bytes", None) or _UNKNOWN_L2_BYTES)
        self._from = _allocated(self._runtime, self._bytes)
        self._to = _allocated(self._runtime, self._bytes if kernels is None else 16)

    def run(self) -> None:
        """Flush the L2 after everything that was launched on the default stream.

        The flush kernel reads a buffer, so the lines that it leaves in the cache are unmodified. If this kernel cannot
        be compiled, a buffer is copied instead: the copy leaves modified lines, which the next kernel writes back.
        """
        if self._kernels is not None:
            values = self._from, ctypes.c_longlong(self._bytes // 16), self._to
            self._kernels.launch("read_all", values, *_READING)
            return
        arguments = self._to, self._from, ctypes.c_size_t(self._bytes), _DEVICE_TO_DEVICE, None
        self._runtime.call("MemcpyAsync", "copy memory", *arguments)


def _allocated(runtime: Runtime, size_bytes: int) -> ctypes.c_void_p:
    """Allocate memory of the GPU for the life of the process."""
    pointer = ctypes.c_void_p()
    runtime.call("Malloc", "allocate memory", ctypes.byref(pointer), ctypes.c_size_t(size_bytes))
    return pointer
