"""The contract of a built model on a machine behind RPC. The caller times single kernels and handles lost sessions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.tvm_types import DeviceArray, PackedFunction, RemoteSession, RuntimeDevice, RuntimeModule


@dataclasses.dataclass(frozen=True)
class RemoteMachine:
    """A machine behind RPC.

    Attributes:
        device: device on which its kernels run.
        upload: sends compiled code to the machine, and loads it there.
    """

    session: RemoteSession
    device: RuntimeDevice
    upload: Callable[[RuntimeModule], RuntimeModule]


class RemoteKernel(NamedTuple):
    """A call of a kernel on a remote machine.

    Attributes:
        name: name of the function in the library.
        label: `Occurrence.label` of its operator.
        arrays: arrays that it reads, then those that it writes.
    """

    name: str
    label: str
    arrays: Sequence[DeviceArray]


class RemoteModel(Protocol):
    """A model whose tensors are on a remote machine.

    Attributes:
        library: library with its kernels, on that machine.
        has_profiler: whether `profile` can be called.
    """

    library: RuntimeModule
    has_profiler: bool

    @property
    def kernels(self) -> Sequence[RemoteKernel]:
        """Return the kernel calls of one run of the model, in order."""

    @property
    def outputs(self) -> Sequence[DeviceArray]:
        """Return the outputs of the last run."""

    @property
    def timed_run(self) -> Callable[[], float] | None:
        """Function that runs the model once and returns the time in microseconds by the machine's own clock; None if
        the machine's runtime cannot run a model as a whole."""

    def set_input(self, name: str, value: np.ndarray) -> None:
        """Copy an input of the model to the machine."""

    def run(self) -> None:
        """Run the model once."""

    def profile(self) -> list[tuple[str, float]]:
        """Run the model once: return name and microseconds of each call, including calls that are not kernels."""

    def release(self, *, session_lost: bool) -> None:
        """Free the model's memory on the machine.

        Args:
            session_lost: the session has ended, so nothing is sent to the machine.
        """


PROBE_ARGUMENT_BYTES, PROBE_TEXT_BYTES = 128, 1 << 14
"""Sizes for which the functions of `ProbeCode` are compiled: of a path or a value, and of the text that is read. With
other sizes they would overrun their buffers."""


class ProbeCode(Protocol):
    """Compiled functions that read properties of a machine.

    ``op_profiler_read(path, text, count)`` writes the first bytes of the file at `path` to `text`, and their number to
    `count`. ``op_profiler_set(value, answer)`` sets the environment variable TVM_NUM_THREADS to `value`, and writes the
    result of ``setenv`` to `answer`. `path` and `value` are C strings, (PROBE_ARGUMENT_BYTES,) uint8; `text` is
    (PROBE_TEXT_BYTES,) uint8; `count` and `answer` are (1,) int32.
    """

    def get_function(self, name: str) -> PackedFunction:
        """Return one of the two functions."""
