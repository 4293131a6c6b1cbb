"""Calls of a compiler's kernels with their arguments bound."""

from __future__ import annotations

import abc
import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_errors import last_line
from op_profiler.compilers.tvm_types import DeviceArray, PackedFunction

More = Sequence[ctypes.c_int64]
"""Arguments that a function does not take (`op_profiler.measure.stack`)."""

WORDS = 6
"""Of `BoundKernel.addresses`."""


class BoundKernel(abc.ABC):
    """A call of a function with its arguments bound.

    Args:
        name: of the function.
        label: the compiler's name of the kernel that it is; empty where it is none.
        arguments: tensors, and numbers where the runtime takes them.
    """

    def __init__(self, name: str, label: str, function: PackedFunction, arguments: Sequence[Any] = ()) -> None:
        self.name = name
        self.label = label
        self.function: Any = function  # with what each runtime has of its own
        self.arguments = tuple(arguments)  # keeps what the addresses point to
        self.arrays: list[DeviceArray] = [one for one in arguments if not isinstance(one, (int, float))]
        self._call, self._bound = self._bind()

    @abc.abstractmethod
    def _bind(self) -> tuple[Any, tuple[Any, ...]]:
        """The C function that makes the call, and its arguments."""

    @property
    @abc.abstractmethod
    def addresses(self) -> tuple[int, int, int, int, int, int]:
        """Function, values, their type codes, count, result and its code, as numbers that hold as long as this object;
        0 for what this interface of TVM has not got."""

    def run(self, more: More = ()) -> bool:
        """Call it once; raises nothing, and is False where it failed.

        Args:
            more: arguments that it does not take.
        """
        return bool(self._call(*self._bound, *more) == 0)

    def error(self) -> str | None:
        """Call it with TVM's checks: None, or what is wrong with it."""
        try:
            self.function(*self.arguments)
        except (RuntimeError, ValueError, TypeError) as error:  # TVM's own errors are of the first
            return last_line(error)
        return None


@dataclasses.dataclass(frozen=True)
class Bound:
    """The kernels of a model over its tensors, in execution order, and its outputs."""

    kernels: tuple[BoundKernel, ...]
    outputs: tuple[DeviceArray, ...]

    def output_arrays(self) -> list[np.ndarray]:
        """The outputs on the host."""
        return [np.asarray(output.numpy()) for output in self.outputs]
