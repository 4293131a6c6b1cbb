"""Times kernels back to back in native code.

A native loop alternates between reading the clock and calling a kernel. Python code between two kernels would evict
their data and code from the caches. TVM compiles the loop for this processor, so no C compiler is needed. The compiler
in use provides the calls themselves (`op_profiler.compilers.runtime_contract`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from op_profiler.compilers.bound_kernel import WORDS, BoundKernel, More
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import load_tvm

_EMPTY_KERNELS = 64
_EMPTY_RUNS = 15


class TimedCalls:
    """A sequence of kernel calls that run back to back, with a separate time for each call."""

    def __init__(self, calls: Sequence[BoundKernel]) -> None:
        compiler, device = compiler_in_use(), load_tvm().cpu()
        self._calls = tuple(calls)  # keeps what the table points to
        table = np.array([call.addresses for call in calls], dtype=np.int64).reshape(-1, WORDS)
        self._clock = compiler.array_on(np.zeros((len(calls) + 1, 2), dtype=np.int64), device)
        self._failed = compiler.array_on(np.zeros(len(calls), dtype=np.int32), device)
        arrays = [self._failed, compiler.array_on(table, device), self._clock]
        self._walk = compiler.bound_kernel("walk", "", compiler.call_library()["walk"], arrays)

    def run(self, more: More = ()) -> np.ndarray:
        """Make every call once; return the time of each call in microseconds, shape (calls,), NaN for a failed call.

        Each time runs from one reading of the clock to the next, so it includes the call overhead (`call_overhead_us`).

        Args:
            more: as in `BoundKernel.run`.
        """
        self._walk.run(more)
        read = self._clock.numpy()
        times = np.diff(read[:, 0] * 1_000_000_000 + read[:, 1]) / 1e3
        return np.where(self._failed.numpy() == 0, times, np.nan)


def call_overhead_us() -> float:
    """Measure how many microseconds longer a kernel call currently takes in `TimedCalls` than in a model.

    A chain of empty kernels over the same arrays is timed in `TimedCalls` and as a model. Costs that both have in
    common, such as a kernel's checks of its arguments, are thus not part of the overhead. After the overhead is
    subtracted, the times of the kernels add up to the time of the model. The overhead is negative under Relax, whose
    virtual machine also creates an output tensor for each kernel.
    """
    kernels, whole = _empty_model()
    both = np.array([(kernels.run().sum(), whole.run()[0]) for _ in range(_EMPTY_RUNS)])
    walked_us, run_us = both.min(axis=0)  # the minimum: only interruptions change so short a time
    return float(walked_us - run_us) / _EMPTY_KERNELS


@functools.cache
def _empty_model() -> tuple[TimedCalls, TimedCalls]:
    """Return the kernels of a chain that computes nothing, and the calls that run the chain as a model."""
    kernels, whole = compiler_in_use().chain("nothing", _EMPTY_KERNELS, "float32")
    return TimedCalls(kernels), TimedCalls([whole])


def flusher() -> Callable[[BoundKernel], BoundKernel] | None:
    """Return a function that takes a kernel and returns a call that flushes this kernel's tensors from the caches; None
    if this build of TVM cannot flush caches."""
    tvm, compiler = load_tvm(), compiler_in_use()
    flush = tvm.get_global_func("cache_flush_cpu_non_first_arg", allow_missing=True)
    if flush is None:
        return None
    first = compiler.array_on(np.zeros(1, dtype=np.float32), tvm.cpu())  # is left alone
    return lambda kernel: compiler.bound_kernel("flush", "", flush, [first, *kernel.arrays])
