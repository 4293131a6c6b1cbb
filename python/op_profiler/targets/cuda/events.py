"""Marks on the clock of a GPU, and a stream that waits while it is being filled."""

from __future__ import annotations

import ctypes
from typing import Any

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.errors import MeasureError

_NOT_READY = 600  # cudaErrorNotReady


class Runtime:
    """CUDA's runtime as TVM loaded it; a call that fails is an error with what was to be done."""

    def __init__(self) -> None:
        self.library: Any = ctypes.CDLL(compiler_in_use().cuda_runtime)

    def call(self, name: str, what: str, *arguments: Any) -> None:
        """Call ``cuda<name>``.

        Raises:
            MeasureError: it fails.
        """
        code = getattr(self.library, f"cuda{name}")(*arguments)
        if code:
            raise MeasureError(f"CUDA cannot {what}: error {code}")


class Events:
    """CUDA events, by number. TVM's executor launches on the default stream."""

    def __init__(self) -> None:
        self._runtime = Runtime()
        self._made: list[ctypes.c_void_p] = []
        self._sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)

    def record(self, number: int, stream: int | None = None) -> None:
        """Put event `number` behind what was launched so far on a stream; None is the default one."""
        while len(self._made) <= number:
            event = ctypes.c_void_p()
            self._runtime.call("EventCreate", "create an event", ctypes.byref(event))
            self._made.append(event)
        self._runtime.call("EventRecord", "record an event", self._made[number], pointer(stream))

    def wait(self, number: int, stream: int) -> None:
        """Let what is launched on a stream from now on wait for event `number`, as it was recorded last."""
        self._runtime.call("StreamWaitEvent", "wait for an event", pointer(stream), self._made[number], 0)

    def hold(self, microseconds: int) -> None:
        """Let the default stream wait so long before it goes on with what is launched from now on.

        A thread of CUDA's sleeps meanwhile; the GPU does nothing, and its caches stay as they are.
        """
        self._runtime.call(
            "LaunchHostFunc", "hold a stream", None, self._sleep, ctypes.c_void_p(max(int(microseconds), 1))
        )

    def passed(self, number: int) -> bool:
        """Whether the GPU has come to an event already."""
        code = self._runtime.library.cudaEventQuery(self._made[number])
        if code not in (0, _NOT_READY):
            raise MeasureError(f"CUDA cannot run what was launched: error {code}")
        return not code

    def between_us(self, first: int, last: int) -> float:
        """Microseconds from one event to another; waits for the later one."""
        self._runtime.call("EventSynchronize", "run what was launched", self._made[last])
        milliseconds = ctypes.c_float()
        self._runtime.call(
            "EventElapsedTime", "read an event", ctypes.byref(milliseconds), self._made[first], self._made[last]
        )
        return milliseconds.value * 1e3


def pointer(stream: Any) -> ctypes.c_void_p | None:
    """A stream as CUDA takes it; of TVM's bindings some tell a number, and others the pointer."""
    return ctypes.c_void_p(stream) if isinstance(stream, int) else stream
