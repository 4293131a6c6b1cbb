"""Lanes: one operating-system thread a core, each walking through its part of a plan in native code.

Between two kernels there is no Python. A lane is one call of a small TIR function, compiled once a process, that walks a
table: wait for what the next kernel needs, call it through ``TVMFuncCall``, tell those who wait for it. Waiting is
POSIX semaphores: a lane asks a number of times, giving its core away in between (the core may be needed by a thread of
TVM's pool, on behalf of another lane), and then sleeps. Every call is framed by two readings of the clock, which is
what traces and co-run measurements are made of.

TVM's thread pools belong to operating-system threads, so each lane has its own.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.compiler import load_tvm, resolve_target
from op_profiler.errors import MeasureError
from op_profiler.measure.kernels import DLTENSOR_HANDLE, Call, array_address
from op_profiler.operators.lower import last_line

_SEMAPHORE_BYTES = 32  # sizeof(sem_t) on 64-bit Linux
_ONE_CORE_PER_THREAD = -2
_INTEGER, _OBJECT = 0, 8  # TVM's type codes
_YIELDS = 500
# Columns of a lane's table, entries of what all lanes share, and of what a lane has for itself.
_FUNCTION, _VALUES, _CODES, _COUNT, _RESULT, _RESULT_CODE, _WAITS, _FIRST_WAIT, _POSTS, _FIRST_POST = range(10)
_FAILED, _STOP = range(2)
_FAILED_STEP, _MESSAGE, _START = range(3)


@dataclasses.dataclass(frozen=True)
class LaneStep:
    """One entry of a lane's table.

    Attributes:
        call: what is called; None only waits and tells.
        waits: numbers of the signals that must have come; each signal has one that waits for it.
        posts: numbers of the signals that are given afterwards.
    """

    call: Call | None
    waits: tuple[int, ...] = ()
    posts: tuple[int, ...] = ()


class Lanes:
    """Runs tables side by side: the first in the calling thread, each other one in a thread of its own.

    Use it from one thread, as a context: at its end the threads are gone.

    Args:
        pools: the cores of each lane's pool to begin with, the lane's own first.
        tables: the steps of each lane.
        signals: how many there are.

    Raises:
        MeasureError: this system lacks the semaphores.
    """

    def __init__(self, pools: Sequence[Sequence[int]], tables: Sequence[Sequence[LaneStep]], signals: int) -> None:
        self._c = _c_library()
        self._pools = list(pools)
        others = len(tables) - 1
        starts = tuple(range(signals, signals + others + 1))
        ends = tuple(range(signals + others + 1, signals + 2 * others + 1))
        self._semaphores = np.zeros((signals + 2 * others + 1, _SEMAPHORE_BYTES // 8), dtype=np.int64)
        addresses = [self._semaphores[i].ctypes.data for i in range(len(self._semaphores))]
        for address in addresses:
            self._c.sem_init(address, 0, 0)
        framed = [[LaneStep(None, posts=starts[1:]), *tables[0], LaneStep(None, waits=ends)]]
        framed += [[*table, LaneStep(None, posts=(end,))] for table, end in zip(tables[1:], ends, strict=True)]
        self._shared = _Words((2,))
        self._lanes = [
            _Lane(steps, addresses, self._shared, addresses[start])
            for steps, start in zip(framed, starts, strict=True)
        ]
        self._threads = [threading.Thread(target=self._serve, args=(i,), daemon=True) for i in range(1, others + 1)]

    def __enter__(self) -> Lanes:
        bind_pool(self._pools[0])
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._shared.view[_STOP] = 1
        for lane in self._lanes[1:]:
            self._c.sem_post(lane.start)
        for thread in self._threads:
            thread.join()

    def run(self) -> None:
        """Every table once.

        Raises:
            MeasureError: a step failed, and those after it were left out; names it and tells what TVM said.
        """
        self._c.sem_post(self._lanes[0].start)
        self._lanes[0].walk.run()
        if self._shared.view[_FAILED]:
            self._shared.view[_FAILED] = 0
            raise MeasureError("; ".join(filter(None, (lane.failure() for lane in self._lanes))))

    def times_us(self) -> list[np.ndarray]:
        """For each lane start and end of every step of the last run, shape (steps, 2), on the monotonic clock."""
        first, *others = (lane.times_us() for lane in self._lanes)
        return [first[1:-1], *(times[:-1] for times in others)]

    def _serve(self, number: int) -> None:
        bind_pool(self._pools[number])
        self._lanes[number].serve.run()


class _Words:
    """Zeros of 64 bits: TVM's tensor of them, and the same memory as numpy's."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.array = load_tvm().nd.array(np.zeros(shape, dtype=np.int64))
        data = ctypes.c_int64 * int(np.prod(shape))
        first_field = ctypes.c_void_p.from_address(array_address(self.array))  # of a DLTensor: its data
        self.view = np.frombuffer(data.from_address(first_field.value or 0), dtype=np.int64).reshape(shape)


class _Lane:
    """A table in the memory that the native function reads, and the two calls of that function."""

    def __init__(self, steps: Sequence[LaneStep], signals: Sequence[int], shared: _Words, start: int) -> None:
        self.steps = list(steps)
        self.start = start
        waits = [signals[s] for step in steps for s in step.waits]
        posts = [signals[s] for step in steps for s in step.posts]
        self._times, self._own, table = _Words((len(steps), 4)), _Words((3,)), _Words((len(steps), _FIRST_POST + 1))
        waiting, posting = _Words((len(waits) + 1,)), _Words((len(posts) + 1,))  # an empty tensor has no address
        waiting.view[:-1], posting.view[:-1], self._own.view[_START] = waits, posts, start
        first_wait = first_post = 0
        for row, step in zip(table.view, steps, strict=True):
            if step.call is not None:
                row[_FUNCTION : _RESULT_CODE + 1] = step.call.addresses
            row[_WAITS:] = len(step.waits), first_wait, len(step.posts), first_post
            first_wait += len(step.waits)
            first_post += len(step.posts)
        self._words = (table, waiting, posting, self._times, shared, self._own)
        handles = [array_address(words.array) for words in self._words]
        function = _native_lane()
        codes = [DLTENSOR_HANDLE] * len(handles) + [_INTEGER]
        self.walk = Call("lane", function, [*handles, 0], codes)
        self.serve = Call("lane", function, [*handles, 1], codes)

    def times_us(self) -> np.ndarray:
        seconds, nanoseconds = self._times.view[:, 0::2], self._times.view[:, 1::2]
        return seconds * 1e6 + nanoseconds / 1e3

    def failure(self) -> str | None:
        """What the lane's last run failed with, once."""
        if not self._own.view[_FAILED_STEP]:
            return None
        step = self.steps[int(self._own.view[_FAILED_STEP]) - 1]
        self._own.view[_FAILED_STEP] = 0
        message = ctypes.string_at(int(self._own.view[_MESSAGE])).decode(errors="replace")
        return f"{step.call.name if step.call else 'a lane'} failed: {last_line(RuntimeError(message))}"


def bind_pool(cores: Sequence[int]) -> None:
    """Give the calling thread a pool of one thread a core, itself on the first.

    Raises:
        MeasureError: the pool took another number.
    """
    tvm = load_tvm()
    SetThreads(cores).run()
    effective = int(tvm.get_global_func("runtime.NumThreads")())
    if effective != len(cores):
        raise MeasureError(f"asked for threads on cores {list(cores)}, TVM's pool answers {effective} threads")


class SetThreads(Call):
    """Gives the pool of the thread that calls it one thread a core, that thread itself on the first."""

    def __init__(self, cores: Sequence[int]) -> None:
        tvm = load_tvm()
        self._cores = tvm.runtime.convert([str(core) for core in cores])
        handle = int(ctypes.cast(self._cores.handle, ctypes.c_void_p).value or 0)
        super().__init__(
            f"set threads to cores {list(cores)}",
            tvm.get_global_func("runtime.config_threadpool"),
            [_ONE_CORE_PER_THREAD & 0xFFFFFFFFFFFFFFFF, len(cores), handle],
            [_INTEGER, _INTEGER, _OBJECT],
        )


@functools.cache
def _c_library() -> Any:
    library = ctypes.CDLL(None)
    if not all(hasattr(library, name) for name in ("sem_init", "sem_post", "sem_wait", "sem_trywait")):
        raise MeasureError("running a plan takes POSIX semaphores without names, which this system lacks")
    library.sem_init.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_uint)
    library.sem_post.argtypes = (ctypes.c_void_p,)
    return library


@functools.cache
def _native_lane() -> Any:
    """The function that walks a table, compiled for this processor.

    Its last argument tells whether it goes back to waiting for a start when it is through. Addresses go to the C
    functions as 64-bit numbers, which all calling conventions of 64-bit processors pass as they pass pointers.
    """
    tvm = load_tvm()
    from tvm.script import tir as T  # noqa: N812 - TVM's own name for it

    @T.prim_func
    def lane(  # type: ignore[no-untyped-def] # noqa: ANN202, PLR0913, PLR0917 - TVMScript has types of its own
        table_handle: T.handle,
        waits_handle: T.handle,
        posts_handle: T.handle,
        times_handle: T.handle,
        shared_handle: T.handle,
        own_handle: T.handle,
        again: T.int32,
    ):
        T.func_attr({"global_symbol": "lane"})
        steps, waiting, posting = T.int32(), T.int32(), T.int32()
        table = T.match_buffer(table_handle, (steps, 10), "int64")
        waits = T.match_buffer(waits_handle, (waiting,), "int64")
        posts = T.match_buffer(posts_handle, (posting,), "int64")
        times = T.match_buffer(times_handle, (steps, 4), "int64")
        shared = T.match_buffer(shared_handle, (2,), "int64")
        own = T.match_buffer(own_handle, (3,), "int64")
        alive = T.decl_buffer((1,), "int32")
        absent = T.decl_buffer((1,), "int32")
        yields = T.decl_buffer((1,), "int32")
        alive[0] = 1
        while alive[0] != 0:
            while T.call_extern("int32", "sem_wait", own[2]) != 0:
                T.evaluate(0)
            alive[0] = again
            if shared[1] != T.int64(0):
                alive[0] = 0
            else:
                for i in range(steps):
                    for j in range(T.Cast("int32", table[i, 6])):
                        absent[0] = T.call_extern("int32", "sem_trywait", waits[T.Cast("int32", table[i, 7]) + j])
                        yields[0] = 0
                        while absent[0] != 0:
                            if yields[0] < 500:
                                T.evaluate(T.call_extern("int32", "sched_yield"))
                                absent[0] = T.call_extern(
                                    "int32", "sem_trywait", waits[T.Cast("int32", table[i, 7]) + j]
                                )
                                yields[0] = yields[0] + 1
                            else:
                                absent[0] = T.call_extern(
                                    "int32", "sem_wait", waits[T.Cast("int32", table[i, 7]) + j]
                                )
                    T.evaluate(T.call_extern("int32", "clock_gettime", 1, T.address_of(times[i, 0])))
                    if table[i, 0] != T.int64(0) and shared[0] == T.int64(0):
                        if T.call_extern(
                            "int32",
                            "TVMFuncCall",
                            table[i, 0],
                            table[i, 1],
                            table[i, 2],
                            T.Cast("int32", table[i, 3]),
                            table[i, 4],
                            table[i, 5],
                        ) != 0:
                            shared[0] = T.int64(1)
                            own[0] = T.Cast("int64", i + 1)
                            own[1] = T.call_extern("int64", "TVMGetLastError")
                    T.evaluate(T.call_extern("int32", "clock_gettime", 1, T.address_of(times[i, 2])))
                    for j in range(T.Cast("int32", table[i, 8])):
                        T.evaluate(T.call_extern("int32", "sem_post", posts[T.Cast("int32", table[i, 9]) + j]))

    built = tvm.build(tvm.IRModule({"lane": lane}), target=resolve_target("llvm"))
    return built["lane"]
