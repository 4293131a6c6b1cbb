"""Lanes: one thread per core, each of which runs its part of a plan in native code.

No Python code runs between two kernels. The native code, lanes.c, is compiled once for this machine. It also replaces
TVM's thread pool, so that a kernel with several threads runs on the lanes of its cores. TVM's own pools belong to the
threads that call kernels: with one pool per lane, several threads would compete for a core, and changing the number of
threads between two operators would take longer than a small operator.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from op_profiler.c_compiler import compiler, make_library
from op_profiler.cache import cache_folder
from op_profiler.compilers.bound_kernel import BoundKernel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.errors import MeasureError
from op_profiler.files import atomic_file

_SOURCE = Path(__file__).with_name("lanes.c")
# Positions of the fields of a step, as in lanes.c; all fields are 64 bits wide.
_CALL, _WAITS, _POSTS, _MATES, _LOOPS, _TIMES, _CPU, _THREADS, _STEP_WORDS = 0, 6, 8, 10, 12, 14, 16, 17, 18


@dataclasses.dataclass(frozen=True)
class LaneStep:
    """One call of a kernel by a lane.

    Attributes:
        call: the kernel with its arguments.
        waits: numbers of the signals for which the step waits; each signal has one waiting step.
        posts: numbers of the signals that the step sends after the call.
        mates: numbers of the other lanes that run parts of the kernel; they must be idle during the call.
        loops: for each parallel loop of the kernel a pair (parts, rows): the loop is cut into `parts` parts, which
            together make up `rows` rows, and every lane gets neighbouring rows. (0, 0) or a missing entry means that
            every lane gets one block of the loop.
    """

    call: BoundKernel
    waits: tuple[int, ...] = ()
    posts: tuple[int, ...] = ()
    mates: tuple[int, ...] = ()
    loops: tuple[tuple[int, int], ...] = ()


class Lanes(contextlib.AbstractContextManager["Lanes"]):
    """Threads (lanes) that run their steps side by side. As a context manager, it stops the threads at its end.

    The calling thread is the first lane.

    Args:
        cores: core of each lane; its thread is bound to this core.
        tables: steps of each lane; a lane may have no step.
        signals: number of signals.

    Raises:
        MeasureError: no C compiler is installed, or compiling fails; or the threads cannot be created (on entering the
            context).
    """

    def __init__(self, cores: Sequence[int], tables: Sequence[Sequence[LaneStep]], signals: int) -> None:
        self._library = native_library()
        self._tables = [_Table(core, steps) for core, steps in zip(cores, tables, strict=True)]
        lanes = len(cores)
        self._waiter_of = np.zeros(2 * lanes + signals, dtype=np.int64)
        self._waiter_of[:lanes] = np.arange(lanes)
        for lane, steps in enumerate(tables):
            for step in steps:
                self._waiter_of[[2 * lanes + signal for signal in step.waits]] = lane
        self._words = np.array([table.words(2 * lanes) for table in self._tables], dtype=np.int64)
        self._handle: int | None = None

    def __enter__(self) -> Lanes:
        waiters = self._waiter_of
        self._handle = self._library.lanes_open(
            self._words.ctypes.data, len(self._tables), waiters.ctypes.data, len(waiters)
        )
        if not self._handle:
            raise MeasureError(f"the system gives no {len(self._tables)} threads")
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle:
            self._library.lanes_close(self._handle)
        self._handle = None

    def run(self) -> None:
        """Run the steps of every lane once.

        Raises:
            MeasureError: a step failed, and later steps were left out; the message contains the kernel's name and TVM's
                error.
        """
        if self._library.lanes_run(self._handle):
            raise MeasureError("; ".join(self._failures()) or "a worker thread failed")

    def replace(self, lane: int, step: int, call: BoundKernel, *, same_loops: bool) -> None:
        """Replace the call of a step, from the next run on.

        Args:
            same_loops: whether the new kernel has the loops that the step describes; if not, its loops are cut into
                blocks.
        """
        self._tables[lane].replace(step, call, same_loops)

    def times_us(self) -> list[np.ndarray]:
        """Return for each lane the start and end of every step of the last run, shape (steps, 2).

        The times are microseconds on the monotonic clock.
        """
        return [table.steps[:, _TIMES : _TIMES + 2] / 1e3 for table in self._tables]

    def cores(self) -> list[np.ndarray]:
        """Return for each lane the core on which every step of the last run ended, as reported, shape (steps,)."""
        return [table.steps[:, _CPU].copy() for table in self._tables]

    def threads(self) -> list[np.ndarray]:
        """Return for each lane the number of lanes that ran a part of every step of the last run, shape (steps,)."""
        return [table.steps[:, _THREADS].copy() for table in self._tables]

    def bound_to(self) -> list[int | None]:
        """Return the core to which each lane is bound, as reported after a run; None if it may run on several cores."""
        found = [int(self._library.lanes_core(self._handle, lane)) for lane in range(len(self._tables))]
        return [core if core >= 0 else None for core in found]

    def _failures(self) -> list[str]:
        failures = []
        message = ctypes.c_char_p()
        for number, table in enumerate(self._tables):
            step = self._library.lanes_failure(self._handle, number, ctypes.byref(message))
            if step >= 0:
                text = (message.value or b"").decode(errors="replace")
                failures.append(f"{table.names[step]} failed: {last_line(RuntimeError(text))}")
        return failures


class _Table:
    """The steps of a lane in the layout that lanes.c reads, and the memory to which they point.

    Attributes:
        core: core that the lane is bound to.
        names: name of the kernel of each step.
        steps: fields of each step, shape (steps, `_STEP_WORDS`).
    """

    core: int
    names: list[str]
    steps: np.ndarray

    def __init__(self, core: int, steps: Sequence[LaneStep]) -> None:
        self.core = core
        self.names = [step.call.name for step in steps]
        self.steps = np.zeros((max(len(steps), 1), _STEP_WORDS), dtype=np.int64)[: len(steps)]
        self._calls = [step.call for step in steps]
        self._loops = [tuple(itertools.chain(*step.loops)) for step in steps]
        self._lists: list[list[int]] = [[], [], [], []]
        for number, (row, step) in enumerate(zip(self.steps, steps, strict=True)):
            lists = (step.waits, step.posts, step.mates, self._loops[number])
            for column, kept, new in zip((_WAITS, _POSTS, _MATES, _LOOPS), self._lists, lists, strict=True):
                row[column : column + 2] = len(kept), len(new)
                kept += new
            self.replace(number, step.call, same_loops=True)

    def replace(self, step: int, call: BoundKernel, same_loops: bool) -> None:
        """Make a step call another kernel."""
        function, values, codes, count, result, result_code = call.addresses
        self.steps[step, _CALL:_WAITS] = function, values, codes, result, result_code, count
        self.steps[step, _LOOPS + 1] = len(self._loops[step]) if same_loops else 0
        self._calls[step] = call

    def words(self, first_signal: int) -> list[int]:
        """Return the fields of a ``Table`` of lanes.c; the lane's signals are numbered from `first_signal`."""
        self._arrays = [
            np.array([*numbers, 0], dtype=np.int64) + shift
            for numbers, shift in zip(self._lists, (first_signal, first_signal, 0, 0), strict=True)
        ]
        return [self.steps.ctypes.data, len(self.steps), self.core, *(array.ctypes.data for array in self._arrays)]


@functools.cache
def native_library() -> ctypes.CDLL:
    """Return the library of lanes.c, which is compiled for this machine and stored in the cache folder.

    TVM must be loaded before.

    Raises:
        MeasureError: no C compiler is installed, or compiling fails.
    """
    flags = compiler_in_use().native_flags
    name = hashlib.sha256(_SOURCE.read_bytes() + " ".join([*compiler(), *flags]).encode()).hexdigest()[:16]
    path = cache_folder() / "lanes" / f"{name}.so"
    if not path.is_file():
        with atomic_file(path) as partial:
            make_library(str(partial), [str(_SOURCE)], flags)
    library = ctypes.CDLL(str(path))
    library.lanes_open.restype = ctypes.c_void_p
    library.lanes_open.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
    library.lanes_run.argtypes = library.lanes_close.argtypes = (ctypes.c_void_p,)
    library.lanes_close.restype = None
    library.lanes_core.restype = library.lanes_failure.restype = ctypes.c_int64
    library.lanes_core.argtypes = (ctypes.c_void_p, ctypes.c_int64)
    library.lanes_failure.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
    return library


def run_on_lanes(kernels: Path) -> None:
    """Make the kernels of a shared library split their parallel loops over lanes.

    The library calls TVM's runtime through pointers that TVM sets when it loads the library; one pointer is replaced.

    Args:
        kernels: path of a library that TVM exported and has loaded.
    """
    library = ctypes.CDLL(str(kernels))
    try:
        launch = ctypes.c_void_p.in_dll(library, "__TVMBackendParallelLaunch")
    except ValueError:
        return  # no kernel of the library has a parallel loop, so the variable is missing
    launch.value = ctypes.cast(native_library().lanes_launch, ctypes.c_void_p).value
