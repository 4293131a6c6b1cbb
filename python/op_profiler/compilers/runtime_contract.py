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
    """What every compiler does with a `CompiledModel` of its own.

    Attributes:
        name: that the compiler is chosen by.
        native_flags: that C code which calls its kernels is compiled with.
    """

    name: ClassVar[str]
    native_flags: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def load(
        self, compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray], copies: int = 1
    ) -> LoadedModel:
        """Put a model and its inputs on a device of this machine, with every kernel bound to its tensors, and run it.

        Args:
            compiled: built for the executor ``graph``.
            inputs: one array per input of the model.
            copies: in other memory that `LoadedModel.moved` goes through, at most; more than one on a processor only.

        Raises:
            MeasureError: the model does not run as a whole.
        """

    def bind(
        self, compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray], blocks: Sequence[int]
    ) -> Bound:
        """As `load`, with a storage plan of the caller's, and without running it. On a processor plans bind kernels
        themselves (`bound_kernel`).

        Args:
            blocks: of every tensor the number of its piece of memory, which is that of its tensor for a view.

        Raises:
            MeasureError: it runs plans on processors only.
        """
        raise MeasureError(f"the compiler {self.name} has plans on processors only")

    def weights(self, compiled: CompiledModel) -> dict[str, DeviceArray]:
        """The weights of a built model by their names (`PlannedTensor.given`), where the build left them.

        Raises:
            MeasureError: it runs no plans.
        """
        raise MeasureError(f"the compiler {self.name} runs no plans")

    def with_own_weights(self, compiled: CompiledModel) -> CompiledModel:
        """The same kernels over a copy of the weights.

        Raises:
            MeasureError: as `weights`.
        """
        raise MeasureError(f"the compiler {self.name} runs no plans")

    @abc.abstractmethod
    def export(self, compiled: CompiledModel, path: Path) -> CompiledModel:
        """The same model, its kernels from a shared library that is written and loaded.

        Args:
            path: of the library; it may be deleted once this has returned.

        Raises:
            MeasureError: there is no C compiler, or it fails.
        """

    def load_dynamic(
        self, compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray]
    ) -> tuple[TimedModel, list[Operator]]:
        """As `load`, of a model that was built for the executor ``vm``: with the operator of each kernel, in the shapes
        that it was really called with.

        Raises:
            MeasureError: the model does not run; the compiler has no such executor.
        """
        raise MeasureError(f"the compiler {self.name} measures models of static shapes")

    @abc.abstractmethod
    def load_remote(
        self, compiled: CompiledModel, machine: RemoteMachine, inputs: dict[str, np.ndarray]
    ) -> RemoteModel:
        """As `load`, on a machine behind RPC.

        Raises:
            MeasureError: its runtime lacks what that takes.
        """

    @abc.abstractmethod
    def probe_code(self, target: Target) -> RuntimeModule:
        """What asks a machine behind RPC of itself: a module with the two functions of `remote_model`."""

    @abc.abstractmethod
    def kernel(self, compiled: CompiledModel, name: str) -> PackedFunction:
        """The function of a kernel of a built model; it takes the arrays that it reads and then those that it writes.

        Args:
            name: `KernelCall.name`.
        """

    @abc.abstractmethod
    def bound_kernel(
        self, name: str, label: str, function: PackedFunction, arrays: Sequence[DeviceArray]
    ) -> BoundKernel:
        """A call of a kernel with its arguments bound.

        Args:
            name, label: as in `KernelCall`.
            arrays: that it reads, and then those that it writes.
        """

    @abc.abstractmethod
    def call_library(self) -> RuntimeModule:
        """Native code for `op_profiler.compilers.calls`: ``walk``, a function of the arrays failed (n,), calls (n,
        `WORDS`) and clock (n + 1, 2) that makes the call of each row and reads the clock between; and ``stack``, a
        kernel of two arrays of one int64 that writes into the first where on the stack it is, as an address."""

    @abc.abstractmethod
    def chain(self, kernel: str, length: int, dtype: str) -> tuple[Sequence[BoundKernel], BoundKernel]:
        """A model in which each call of a kernel reads what the one before wrote, one number.

        Args:
            kernel: ``stack``, or ``nothing``, which computes nothing.

        Returns:
            The calls of its kernels, the first of which reads the model's input, and that of the whole model.
        """

    @abc.abstractmethod
    def array_on(self, values: np.ndarray, device: RuntimeDevice) -> DeviceArray:
        """A copy of an array on a device."""

    @abc.abstractmethod
    def array_over(self, memory: np.ndarray, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """An array of TVM over memory of this machine, which it keeps.

        Args:
            memory: bytes from the beginning of a cache line on, as many as it needs.
        """

    def assembly(self, compiled: CompiledModel) -> str:
        """LLVM's assembly of all kernels of a model that was built for a processor; empty where it has none to show."""
        return ""

    @abc.abstractmethod
    def build_sums(self, sums: SumOfProducts, target: Target) -> PackedFunction:
        """A kernel that tells how fast this machine is; it takes the arrays that it reads and then the one that it
        writes. Its loops are those of `SumOfProducts`, so that its times under two compilers can be compared."""

    @abc.abstractmethod
    def vector_lanes(self, target: Target) -> int:
        """Values of 32 bits in the vectors that its schedules for a processor reckon with."""
