"""The part of a compiler's contract that runs what it built: memory, kernels, whole models."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from op_profiler.errors import MeasureError

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.bound_kernel import Bound, BoundKernel
    from op_profiler.compilers.compiled_model import CompiledModel
    from op_profiler.compilers.remote_model import RemoteMachine, RemoteModel
    from op_profiler.compilers.sum_of_products import SumOfProducts
    from op_profiler.compilers.tvm_types import (
        DeviceArray,
        PackedFunction,
        RuntimeDevice,
        RuntimeModule,
        Target,
    )
    from op_profiler.operators.operator import Operator
    from op_profiler.targets.machine import LoadedModel, TimedModel


class RuntimeContract(abc.ABC):
    """Operations of a compiler on its own `CompiledModel`s.

    Attributes:
        name: name by which the compiler is chosen.
        native_flags: compiler flags for C code that calls its kernels.
    """

    name: ClassVar[str]
    native_flags: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def load(
        self, compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray], copies: int = 1
    ) -> LoadedModel:
        """Load a model and its inputs on a device of this machine, bind every kernel to its tensors, and run the model.

        Args:
            compiled: built for the executor ``graph``.
            inputs: one array per input of the model.
            copies: largest number of copies at other addresses for `LoadedModel.moved`; more than one on a processor
                only.

        Raises:
            MeasureError: the model does not run as a whole.
        """

    def bind(
        self, compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray], blocks: Sequence[int]
    ) -> Bound:
        """Load like `load`, with the caller's storage plan and without running the model. Plans on GPUs use this;
        plans on processors call `bound_kernel`.

        Args:
            blocks: number of the memory block of every tensor; for a view, the block of the viewed tensor.

        Raises:
            MeasureError: this compiler runs plans on processors only.
        """
        raise MeasureError(f"the compiler {self.name} has plans on processors only")

    def weights(self, compiled: CompiledModel) -> dict[str, DeviceArray]:
        """Return the weights of a built model by name (`PlannedTensor.given`), as the build's own arrays, not copies.

        Raises:
            MeasureError: this compiler does not run plans.
        """
        raise MeasureError(f"the compiler {self.name} runs no plans")

    def with_own_weights(self, compiled: CompiledModel) -> CompiledModel:
        """Return a built model with the same kernels and a copy of the weights.

        Raises:
            MeasureError: this compiler does not run plans.
        """
        raise MeasureError(f"the compiler {self.name} runs no plans")

    @abc.abstractmethod
    def export(self, compiled: CompiledModel, path: Path) -> CompiledModel:
        """Write the kernels to a shared library, load it, and return the model with the loaded kernels.

        Args:
            path: path of the library; it may be deleted afterwards.

        Raises:
            MeasureError: there is no C compiler, or the compiler fails.
        """

    def load_dynamic(
        self, compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray]
    ) -> tuple[TimedModel, list[Operator]]:
        """Load a model that was built for the executor ``vm``, and return it with the operator of each kernel in the
        shapes of its actual call.

        Raises:
            MeasureError: the model does not run, or the compiler has no such executor.
        """
        raise MeasureError(f"the compiler {self.name} measures models of static shapes")

    @abc.abstractmethod
    def load_remote(
        self, compiled: CompiledModel, machine: RemoteMachine, inputs: dict[str, np.ndarray]
    ) -> RemoteModel:
        """Load like `load`, on a machine behind RPC.

        Raises:
            MeasureError: the runtime of the remote machine lacks a function that is needed.
        """

    @abc.abstractmethod
    def probe_code(self, target: Target) -> RuntimeModule:
        """Return a module with the two functions of `remote_model` that read properties of a machine behind RPC."""

    @abc.abstractmethod
    def kernel(self, compiled: CompiledModel, name: str) -> PackedFunction:
        """Return the function of a kernel of a built model. Its arguments are the arrays that it reads, then those that
        it writes.

        Args:
            name: `KernelCall.name`.
        """

    @abc.abstractmethod
    def bound_kernel(
        self, name: str, label: str, function: PackedFunction, arrays: Sequence[DeviceArray]
    ) -> BoundKernel:
        """Return a call of a kernel with its arguments bound.

        Args:
            name, label: as in `KernelCall`.
            arrays: arrays that it reads, then those that it writes.
        """

    @abc.abstractmethod
    def call_library(self) -> RuntimeModule:
        """Return native code for `op_profiler.compilers.calls`: ``walk``, a function of the arrays failed (n,), calls
        (n, `WORDS`) and clock (n + 1, 2) that makes the call of each row and reads the clock between calls; and
        ``stack``, a kernel of two arrays of one int64 that writes its stack address into the first one."""

    @abc.abstractmethod
    def chain(self, kernel: str, length: int, dtype: str) -> tuple[Sequence[BoundKernel], BoundKernel]:
        """Return a model of `length` kernel calls. Each call reads the output of the previous one, which is one number.

        Args:
            kernel: name of the kernel in `call_library`: ``stack``, or ``nothing``, which computes nothing.

        Returns:
            The kernel calls, the first of which reads the model's input; and the call that runs the whole model.
        """

    @abc.abstractmethod
    def array_on(self, values: np.ndarray, device: RuntimeDevice) -> DeviceArray:
        """Return a copy of an array on a device."""

    @abc.abstractmethod
    def array_over(self, memory: np.ndarray, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """Return a TVM array that uses memory of this machine without a copy, and keeps the memory alive.

        Args:
            memory: bytes that begin at a cache line, as many as the array needs.
        """

    def assembly(self, compiled: CompiledModel) -> str:
        """Return LLVM's assembly of all kernels of a model built for a processor; empty if not available."""
        return ""

    @abc.abstractmethod
    def build_sums(self, sums: SumOfProducts, target: Target) -> PackedFunction:
        """Build a kernel that measures the speed of this machine; its arguments are the arrays that it reads, then the
        array that it writes. Every compiler builds the loops of `SumOfProducts`, so that the times of the kernel under
        two compilers can be compared."""

    @abc.abstractmethod
    def vector_lanes(self, target: Target) -> int:
        """Return the number of 32-bit values in the vectors that its schedules for a processor assume."""
