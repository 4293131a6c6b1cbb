"""The vendor's kernels on a GPU: torch with CUDA, timed by the GPU's own clock."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_types import RuntimeDevice
from op_profiler.errors import MeasureError, MissingPackageError
from op_profiler.lean_imports import package_folder
from op_profiler.tuning.candidate import TaskSpec
from op_profiler.tuning.reference import Reference
from op_profiler.tuning.trials.vendor import plain_kernels
from op_profiler.tuning.trials.worker import BuiltByVendor

_RUNS_BEFORE_CAPTURE = 3  # cuDNN tries its algorithms in the first, which a capture does not allow


def cuda_of_torch() -> str | None:
    """Return the version of CUDA that the installed torch was built with, without importing it; None for a torch
    without CUDA."""
    folder = package_folder("torch")
    if folder is None:
        return None
    found = re.search(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)['\"]", (folder / "version.py").read_text(), re.MULTILINE)
    return found[1] if found else None


class Cuda:
    """torch on GPU 0 of those that this process can use. float32 is computed without TF32, because TVM's kernels do not
    use TF32 either.

    Attributes:
        settings: settings of torch that decide which kernels it uses, stored with their times.

    Raises:
        MissingPackageError: torch is not installed.
        MeasureError: torch finds no GPU.
    """

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise MissingPackageError("torch", "timing the vendor's kernels") from error
        if not torch.cuda.is_available():
            raise MeasureError("torch finds no GPU (torch.cuda.is_available() is false)")
        self.torch: Any = torch
        backends = self.torch.backends
        backends.cudnn.benchmark = True
        backends.cudnn.conv.fp32_precision = "ieee"
        backends.cuda.matmul.fp32_precision = "ieee"
        self.settings = f"CUDA {torch.version.cuda}, cuDNN {backends.cudnn.version()}, cudnn.benchmark, float32 in ieee"

    def put(self, array: np.ndarray) -> Any:
        """Return an array as a tensor on the GPU."""
        return self.torch.from_numpy(array.copy()).to("cuda")

    def wait(self) -> None:
        """Wait for everything that was launched."""
        self.torch.cuda.synchronize()

    def captured(self, function: Callable[[], Any], calls: int) -> Any:
        """Return this number of calls as a CUDA graph; replaying it launches them without Python's overhead.

        See https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-graphs.
        """
        cuda = self.torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            for _ in range(_RUNS_BEFORE_CAPTURE):
                function()
        cuda.current_stream().wait_stream(side)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for _ in range(calls):
                function()
        return graph

    def replayed_us(self, graph: Any) -> float:
        """Replay a graph; return the microseconds between an event before it and an event after it."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e3


class BuiltByVendorOnGpu(BuiltByVendor):
    """A kernel of torch on a GPU. The GPU's clock times its samples, so they contain no overhead of Python."""

    def __init__(self, name: str, function: Callable[[], Any], reference: Reference, gpu: Cuda) -> None:
        super().__init__(f"{name}, {gpu.settings}", function, reference)
        self._gpu = gpu
        self._graphs: dict[int, Any] = {}

    def call(self) -> None:
        """Call the kernel once and wait for the GPU."""
        super().call()
        self._gpu.wait()

    def output(self) -> np.ndarray:
        """Return the result of the last call, copied to the host."""
        return np.asarray(self.result.cpu().numpy())

    def timed(self, device: RuntimeDevice, calls: int, samples: int) -> tuple[float, ...]:
        """Return samples in microseconds per call; each sample replays a CUDA graph of `calls` calls."""
        if calls not in self._graphs:
            self._graphs[calls] = self._gpu.captured(self.function, calls)
        return tuple(self._gpu.replayed_us(self._graphs[calls]) / calls for _ in range(samples))


def kernels_on_gpu(task: TaskSpec, reference: Reference) -> list[BuiltByVendor]:
    """Return torch's kernels for a task on a GPU: one for each way in which torch can compute the task.

    Raises:
        MissingPackageError, MeasureError: see `Cuda`.
    """
    gpu = Cuda()
    kernels = plain_kernels(gpu.torch, task, *(gpu.put(array) for array in reference.arrays))
    return [BuiltByVendorOnGpu(name, function, reference, gpu) for name, function in kernels.items()]
