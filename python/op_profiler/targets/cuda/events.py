"""CUDA events, and a stream that is held while kernels are queued on it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.errors import MeasureError

_NOT_READY = 600  # cudaErrorNotReady
_HOLD_US = 200
_MOST_TRIES = 12


class Runtime:
    """CUDA's runtime as TVM loaded it. A failed call raises an error that names the action."""

    def __init__(self) -> None:
        self.library: Any = ctypes.CDLL(compiler_in_use().cuda_runtime)

    def call(self, name: str, what: str, *arguments: Any) -> None:
        """Call ``cuda<name>``.

        Raises:
            MeasureError: the call fails; the message contains `what`.
        """
        code = getattr(self.library, f"cuda{name}")(*arguments)
        if code:
            raise MeasureError(f"CUDA cannot {what}: error {code}")


class Events:
    """A set of CUDA events that are identified by numbers. TVM's executor launches on the default stream."""

    def __init__(self) -> None:
        self._runtime = Runtime()
        self._made: list[ctypes.c_void_p] = []
        self._sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)

    def record(self, number: int, stream: int | None = None) -> None:
        """Record event `number` after everything launched so far on a stream; None is the default stream."""
        while len(self._made) <= number:
            event = ctypes.c_void_p()
            self._runtime.call("EventCreate", "create an event", ctypes.byref(event))
            self._made.append(event)
        self._runtime.call("EventRecord", "record an event", self._made[number], pointer(stream))

    def wait(self, number: int, stream: int) -> None:
        """Make later launches on a stream wait for the point at which event `number` was last recorded."""
        self._runtime.call("StreamWaitEvent", "wait for an event", pointer(stream), self._made[number], 0)

    def hold(self, microseconds: int) -> None:
        """Make the default stream wait for this time before it runs later launches.

        A thread of CUDA sleeps meanwhile; the GPU does nothing, and its caches do not change.
        """
        self._runtime.call(
            "LaunchHostFunc", "hold a stream", None, self._sleep, ctypes.c_void_p(max(int(microseconds), 1))
        )

    def passed(self, number: int) -> bool:
        """Return whether the GPU has reached an event."""
        code = self._runtime.library.cudaEventQuery(self._made[number])
        if code not in (0, _NOT_READY):
            raise MeasureError(f"CUDA cannot run what was launched: error {code}")
        return not code

    def between_us(self, first: int, last: int) -> float:
        """Return the microseconds from one event to another; wait for the later one."""
        self._runtime.call("EventSynchronize", "run what was launched", self._made[last])
        milliseconds = ctypes.c_float()
        self._runtime.call(
            "EventElapsedTime", "read an event", ctypes.byref(milliseconds), self._made[first], self._made[last]
        )
        return milliseconds.value * 1e3


class HeldStream:
    """Times launches that the GPU begins only after the host has made all of them, so that no time includes a wait for
    a launch.

    The default stream is held while the host launches. If it was held for too short a time, it is held twice as long,
    and the launches are repeated.
    """

    def __init__(self, events: Events) -> None:
        self._events, self._hold_us = events, _HOLD_US

    def once(self, launches: Iterable[Callable[[], bool]]) -> list[float] | None:
        """Return the microseconds of each launch from event to event, NaN if it failed; None if the GPU began too
        early."""
        self._events.hold(self._hold_us)
        self._events.record(0)
        ran = []
        for number, launch in enumerate(launches, start=1):
            ran.append(launch())
            self._events.record(number)
        late = self._events.passed(0)
        times = [self._events.between_us(i, i + 1) if good else float("nan") for i, good in enumerate(ran)]
        return None if late else times

    def repeated(self, attempt: Callable[[], list[float] | None]) -> list[float]:
        """Repeat an attempt until the host makes all launches before the GPU begins the first; return its result.

        Args:
            attempt: calls `once`, and returns None if `once` does.

        Raises:
            MeasureError: the host was too slow in every attempt.
        """
        for _ in range(_MOST_TRIES):
            times = attempt()
            if times is not None:
                return times
            self._hold_us *= 2
        raise MeasureError("the host is too busy to launch kernels ahead of the GPU; leave it a core")


def pointer(stream: Any) -> ctypes.c_void_p | None:
    """Return a stream as a pointer for CUDA; some versions of TVM's bindings return a number, others the pointer."""
    return ctypes.c_void_p(stream) if isinstance(stream, int) else stream
