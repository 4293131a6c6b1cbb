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
        device: that its kernels run on.
        upload: sends compiled code, and loads it there.
    """

    session: RemoteSession
    device: RuntimeDevice
    upload: Callable[[RuntimeModule], RuntimeModule]


class RemoteKernel(NamedTuple):
    """A call of a kernel over there.

    Attributes:
        name: of the function in the library.
        label: `Occurrence.label` of what it computes.
        arrays: that it reads, and then those that it writes.
    """

    name: str
    label: str
    arrays: Sequence[DeviceArray]


class RemoteModel(Protocol):
    """A model whose tensors lie on the machine.

    Attributes:
        library: that has its kernels, over there.
        has_profiler: whether `profile` can be called.
    """

    library: RuntimeModule
    has_profiler: bool

    @property
    def kernels(self) -> Sequence[RemoteKernel]:
        """The calls of a run, in order."""

    @property
    def outputs(self) -> Sequence[DeviceArray]:
        """What the last run answered with."""

    @property
    def timed_run(self) -> Callable[[], float] | None:
        """Runs the model once and gives the microseconds by the machine's own clock; None where its runtime cannot run
        it as a whole."""

    def set_input(self, name: str, value: np.ndarray) -> None:
        """Copy an input of the model there."""

    def run(self) -> None:
        """Run the model once."""

    def profile(self) -> list[tuple[str, float]]:
        """Run it once: name and microseconds of each call, some of them no kernels."""

    def release(self, *, session_lost: bool) -> None:
        """Free what lies there.

        Args:
            session_lost: there is no machine to be told.
        """


PROBE_ARGUMENT_BYTES, PROBE_TEXT_BYTES = 128, 1 << 14
"""Sizes that the functions of `ProbeCode` are compiled for: of a path or a value, and of the text that is read. Other
sizes would overrun the buffers that they are called with."""


class ProbeCode(Protocol):
    """Compiled functions that ask a machine of itself.

    ``op_profiler_read`` takes a path (PROBE_ARGUMENT_BYTES,) uint8 that ends with 0, text (PROBE_TEXT_BYTES,) uint8 and
    count (1,) int32: the first bytes of that file, and how many there are. ``op_profiler_set`` takes a value
    (PROBE_ARGUMENT_BYTES,) uint8 and answer (1,) int32: it sets TVM_NUM_THREADS. Both are in one module.
    """

    def get_function(self, name: str) -> PackedFunction:
        """Return one of the two functions."""
