"""Calls of a compiler's kernels with their arguments bound."""

from __future__ import annotations

import abc
import ctypes
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.tvm_errors import last_line
from op_profiler.compilers.tvm_types import DeviceArray, PackedFunction

if TYPE_CHECKING:
    import numpy as np

More = Sequence[ctypes.c_int64]
"""Additional arguments that a function ignores (`op_profiler.measure.stack`)."""

WORDS = 6
"""Number of values of `BoundKernel.addresses`."""


class BoundKernel(abc.ABC):
    """A call of a function with its arguments bound.

    Args:
        name: name of the function.
        label: the compiler's name of the kernel; empty if the function is not a kernel.
        arguments: tensors, and numbers if the runtime accepts them.
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
        """Return the C function that makes the call, and its arguments."""

    @property
    @abc.abstractmethod
    def addresses(self) -> tuple[int, int, int, int, int, int]:
        """Return the addresses of the function, of its argument values and of their type codes; the number of
        arguments; and the addresses of the result and of its type code. Addresses are valid as long as this object
        exists; an address is 0 if this TVM's interface does not use it."""

    def run(self, more: More = ()) -> bool:
        """Call the function once; return False instead of raising if it failed.

        Args:
            more: additional arguments that the function ignores.
        """
        return bool(self._call(*self._bound, *more) == 0)

    def error(self) -> str | None:
        """Call the function with TVM's checks; return the last line of its error, or None if the call succeeds."""
        try:
            self.function(*self.arguments)
        except (RuntimeError, ValueError, TypeError) as error:  # TVM's own errors are of the first
            return last_line(error)
        return None


@dataclasses.dataclass(frozen=True)
class Bound:
    """The kernels of a model in execution order, bound to the model's tensors; and the model's output tensors."""

    kernels: tuple[BoundKernel, ...]
    outputs: tuple[DeviceArray, ...]

    def output_arrays(self) -> list[np.ndarray]:
        """Return the outputs on the host."""
        return [output.numpy() for output in self.outputs]
