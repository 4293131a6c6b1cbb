"""The resource ``sm_share_percent``: the share of a GPU's SMs, set through CUDA's Multi-Process Service."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from op_profiler.resources.nvml import bus_id
from op_profiler.resources.resource import Resource, ResourceError

_VARIABLE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"


class SmShare(Resource):
    """Share of a GPU's SMs that processes started by this one may use, through NVIDIA's Multi-Process Service
    (https://docs.nvidia.com/deploy/mps, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE)."""

    name = "sm_share_percent"
    of_gpu = True

    def range(self) -> dict[str, int]:
        """Return 1 to 100 percent. Raise ResourceError without a GPU."""
        bus_id()
        return {"least": 1, "most": 100}

    def read(self) -> int:
        """Return the value of CUDA_MPS_ACTIVE_THREAD_PERCENTAGE if the service runs, otherwise 100; the driver does not
        report the share."""
        bus_id()
        text = os.environ.get(_VARIABLE, "100") if self._runs() else "100"
        try:
            return int(float(text))
        except ValueError:
            raise ResourceError(f"{_VARIABLE} is {text!r}, which is no number") from None

    def _runs(self) -> bool:
        """Return whether the control pipe of the service exists."""
        usual = Path(tempfile.gettempdir()) / "nvidia-mps"
        return (Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or usual) / "control").exists()

    def check_settable(self) -> None:
        """Raise ResourceError unless the Multi-Process Service runs."""
        if not self._runs():
            raise ResourceError("CUDA's Multi-Process Service does not run; start it with: nvidia-cuda-mps-control -d")

    @contextlib.contextmanager
    def applied(self, value: int) -> Iterator[None]:
        """Set CUDA_MPS_ACTIVE_THREAD_PERCENTAGE for the processes that are started in the block."""
        self.check_settable()
        before = os.environ.get(_VARIABLE)
        os.environ[_VARIABLE] = str(value)
        try:
            yield
        finally:
            del os.environ[_VARIABLE]
            if before is not None:
                os.environ[_VARIABLE] = before
