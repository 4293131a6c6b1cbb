"""A built model on a machine behind RPC: what a compiler gives of it. Times and lost sessions are the caller's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.tvm_types import DeviceArray, PackedFunction, RemoteSession, RuntimeDevice, RuntimeModule


@dataclasses.dataclass(frozen=True)
class Remote:
    """A machine behind RPC.

    Attributes:
        device: that its kernels run on.
        upload: sends compiled code, and loads it there.
    """

    session: RemoteSession
    device: RuntimeDevice
    upload: Callable[[RuntimeModule], RuntimeModule]


class RemoteModel(Protocol):
    """A model whose tensors lie on the machine.

    Attributes:
        library: that has its kernels, over there.
        profiles: whether `profiled` is there.
    """

    library: RuntimeModule
    profiles: bool

    @property
    def kernels(self) -> Sequence[tuple[str, str, Sequence[DeviceArray]]]:
        """In execution order name, label and the tensors that each reads and then writes."""

    @property
    def outputs(self) -> Sequence[DeviceArray]:
        """What the last run answered with."""

    @property
    def whole(self) -> Callable[[], float] | None:
        """Times one run of the model by the machine's own clock, microseconds; None where its runtime cannot run it as
        a whole."""

    def set_input(self, name: str, value: np.ndarray) -> None:
        """Copy an input of the model there."""

    def run(self) -> None:
        """Run the model once."""

    def profiled(self) -> list[tuple[str, float]]:
        """Name and microseconds of each call of a run, some of them no kernels."""

    def release(self, *, lost: bool) -> None:
        """Free what lies there.

        Args:
            lost: there is no machine to be told.
        """


PROBE_WORD_BYTES, PROBE_TEXT_BYTES = 128, 1 << 14
"""What functions of `ProbeCode` are compiled for; other sizes would overrun the buffers that they are called with."""


class ProbeCode(Protocol):
    """Compiled functions that ask a machine of itself.

    ``op_profiler_read`` takes a path (PROBE_WORD_BYTES,) uint8 that ends with 0, text (PROBE_TEXT_BYTES,) uint8 and
    count (1,) int32: the first bytes of that file, and how many there are. ``op_profiler_set`` takes a value
    (PROBE_WORD_BYTES,) uint8 and answer (1,) int32: it sets TVM_NUM_THREADS. Both are in one module.
    """

    def get_function(self, name: str) -> PackedFunction: ...
