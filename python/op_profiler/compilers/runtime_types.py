"""What this package uses of TVM's objects at run time, which have no types of their own."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class RuntimeDevice(Protocol):
    """A ``tvm.runtime.Device``."""

    @property
    def device_type(self) -> int: ...


class DeviceArray(Protocol):
    """A ``tvm.nd.NDArray``: a tensor in the memory of a device."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    @property
    def handle(self) -> Any:
        """A ctypes pointer to its DLTensor."""

    def numpy(self) -> np.ndarray:
        """A copy of its values."""

    def copyto(self, target: RuntimeDevice) -> DeviceArray:
        """A copy of it on a device."""


class PackedFunction(Protocol):
    """A ``tvm.runtime.PackedFunc``."""

    @property
    def handle(self) -> Any:
        """The ctypes pointer that ``TVMFuncCall`` takes."""

    def __call__(self, *arguments: Any) -> Any: ...


class RuntimeModule(Protocol):
    """A ``tvm.runtime.Module`` that was built from one function."""

    @property
    def entry_func(self) -> PackedFunction: ...


class GraphExecutor(Protocol):
    """A ``tvm.contrib.graph_executor.GraphModule``, as far as its inputs go."""

    def set_input(self, key: str, value: np.ndarray | DeviceArray) -> None:
        """Copy a value to where the model reads the input of this name."""
