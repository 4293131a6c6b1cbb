"""Opens NVIDIA's management library (NVML) for the GPU that the collector measures on."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any, NamedTuple

from op_profiler.resources.resource import ResourceError
from op_profiler.targets.cuda import tvm_build


class NvmlHandle(NamedTuple):
    """The module ``pynvml`` and its handle of the GPU."""

    module: Any
    gpu: Any


def bus_id() -> bytes:
    """Return the PCI address of GPU 0 among those that this process can use (``CUDA_VISIBLE_DEVICES`` selects them).

    Raises:
        ResourceError: this process can use no GPU, or CUDA does not report the address.
    """
    driver, text = tvm_build.driver(), ctypes.create_string_buffer(32)
    if driver is None or not tvm_build.device_count():
        raise ResourceError("there is no GPU that NVIDIA's driver lets this process use")
    if driver.cuDeviceGetPCIBusId(text, len(text), 0):
        raise ResourceError("CUDA does not report the bus address of the GPU")
    return text.value


@contextlib.contextmanager
def nvml() -> Iterator[NvmlHandle]:
    """Open NVML for the block, and yield it with its handle of the GPU.

    Raises:
        ResourceError: this process can use no GPU, nvidia-ml-py is not installed, or NVML rejects a call in the block.
    """
    address = bus_id()
    try:
        import pynvml
    except ImportError:
        raise ResourceError("nvidia-ml-py is not installed; install it with: source ./env_var.sh cuda") from None
    try:
        pynvml.nvmlInit()
        try:
            yield NvmlHandle(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(address))
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:
        raise ResourceError(f"NVIDIA's driver refuses (NVML: {error})") from error
