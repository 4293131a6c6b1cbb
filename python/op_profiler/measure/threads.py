"""Sets the thread count and the cores of TVM's thread pool, and reads both back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.cores import available_cores, binding_order, usable_cores
from op_profiler.errors import MeasureError, UsageError
from op_profiler.option_values import threads_text

_ONE_CORE_PER_THREAD = -2


def default_thread_counts(cores: int | None = None) -> tuple[int, ...]:
    """Return the powers of two up to the number of cores, and this number itself: 1, 2, 4, 6 for six cores.

    Args:
        cores: number of cores; None: the cores that this process may use.
    """
    cores = cores or usable_cores()
    counts = {cores}
    power = 1
    while power < cores:
        counts.add(power)
        power *= 2
    return tuple(sorted(counts))


def check_thread_counts(counts: tuple[int, ...]) -> None:
    """Reject thread counts that this machine cannot provide.

    Raises:
        UsageError: a count is below 1 or above the number of usable cores.
    """
    cores = usable_cores()
    for count in counts:
        if not 1 <= count <= cores:
            raise UsageError(f"--threads {count} is not possible here: this process may use 1 to {cores} cores")


class ThreadPool:
    """TVM's thread pool in this process. Only one instance may exist at a time, and one thread uses it.

    Args:
        cores: cores to which threads may be bound, in this order; None for `binding_order`.
    """

    def __init__(self, cores: Sequence[int] | None = None) -> None:
        tvm = load_tvm()
        self._configure = tvm.get_global_func("runtime.config_threadpool")
        self._count = tvm.get_global_func("runtime.NumThreads")
        self._cores = binding_order() if cores is None else tuple(cores)
        # TVM creates a thread's pool at its first kernel, with as many workers as were requested last, and never adds
        # any: a process whose first kernel ran on one core would keep a single worker.
        self._configure(_ONE_CORE_PER_THREAD, len(available_cores()), [str(c) for c in available_cores()])

    def use(self, threads: int) -> None:
        """Run the next kernels on the first `threads` cores, one thread per core.

        Raises:
            MeasureError: the pool uses another number of threads.
        """
        self._configure(_ONE_CORE_PER_THREAD, threads, [str(c) for c in self._cores[:threads]])
        effective = self.effective_threads()
        if effective != threads:
            raise MeasureError(
                f"asked for {threads_text(threads)}, TVM's pool answers {effective}: it was made for fewer before, "
                "or this machine gives no more"
            )

    def core_set(self, threads: int | None = None) -> tuple[int, ...]:
        """Return the cores that `use(threads)` requests; for None, all cores of the pool."""
        return self._cores[:threads]

    def effective_threads(self) -> int:
        """Return the number of threads that the next kernel will use, as the runtime reports it."""
        return int(self._count())

    def effective_core_set(self) -> tuple[int, ...]:
        """Return the cores on which the operating system lets this thread and the pool's workers run.

        Call this method after a kernel has run, because the pool starts its workers with the first kernel. `use` binds
        all workers, including sleeping ones, to the given cores. Threads of other libraries are not bound, so their
        cores are not part of the result. The result is empty on operating systems without ``sched_getaffinity``.
        """
        if not hasattr(os, "sched_getaffinity"):
            return ()
        allowed = set(os.sched_getaffinity(0))
        for task in Path("/proc/self/task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # the thread has ended meanwhile
                cores = os.sched_getaffinity(int(task.name))
                if len(cores) < len(available_cores()):
                    allowed |= cores
        return tuple(sorted(allowed))
