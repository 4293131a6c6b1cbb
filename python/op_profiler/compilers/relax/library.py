"""The library of a built Relax model: the virtual machine's executable, the kernels and the weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from op_profiler.c_compiler import make_library
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray, PackedFunction


@dataclasses.dataclass(frozen=True)
class VmLibrary:
    """A built model for Relax's virtual machine.

    Attributes:
        executable: ``relax.VMExecutable``.
        kernels: the ``tvm.runtime.Module`` with its kernels.
        weights: by the names in `PlannedTensor.given`.
    """

    executable: Any
    kernels: Any
    weights: dict[str, DeviceArray]

    def kernel(self, name: str) -> PackedFunction:
        """Return the function of a kernel."""
        function: PackedFunction = self.kernels.get_function(name, True)
        return function

    def with_own_weights(self) -> VmLibrary:
        """Return the library with a copy of the weights."""
        device = load_tvm().cpu()
        return dataclasses.replace(self, weights={name: one.copyto(device) for name, one in self.weights.items()})

    def exported(self, path: Path) -> VmLibrary:
        """Write the kernels to a shared library at `path`, load it, and return a copy that uses the loaded kernels.

        Raises:
            MeasureError: there is no C compiler, or the compiler fails.
        """
        (code,) = self.executable.mod.imports
        code.export_library(str(path), fcompile=make_library)
        return dataclasses.replace(self, kernels=load_tvm().runtime.load_module(str(path)))
