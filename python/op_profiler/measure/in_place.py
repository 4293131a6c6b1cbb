"""`InPlaceKernels`: times whole runs of a model and walks over its kernels, for every compiler."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from op_profiler.compilers.bound_kernel import BoundKernel
from op_profiler.compilers.calls import TimedCalls, call_overhead_us
from op_profiler.errors import MeasureError
from op_profiler.measure.measurement import Cache
from op_profiler.measure.stack import drawn_turn, stack_places
from op_profiler.targets.machine import FixedModel


class Runs(Protocol):
    """An object whose method `run` calls a function, which may be called repeatedly."""

    def run(self) -> bool:
        """Call the function once; return False if it failed."""


def timed_us(call: Runs) -> float:
    """Return the time of one call in microseconds, including Python's overhead; NaN if the call failed."""
    started = time.perf_counter_ns()
    ran = call.run()
    stopped = time.perf_counter_ns()
    return (stopped - started) / 1e3 if ran else float("nan")


Walk = tuple[TimedCalls, list[int]]
"""All calls of a walk, and for each kernel the position of its call among them; other calls prepare the caches."""


@dataclasses.dataclass(eq=False)
class InPlaceKernels(FixedModel):
    """The kernels of a model, which run in order on the model's own buffers; base class of `LoadedModel`s.

    Attributes:
        kernels: kernels in execution order, without kernels that compute nothing (reshapes).
        whole: the call that runs the whole model; on a GPU, it only launches the kernels.
        flush: function that returns, for a kernel, the call that flushes the kernel's tensors from the caches; None if
            this build of TVM cannot flush caches.
        stack_turn: number that determines the stack offset of timed calls (`measure/stack.py`).
    """

    kernels: tuple[BoundKernel, ...]
    whole: BoundKernel
    flush: Callable[[BoundKernel], BoundKernel] | None
    stack_turn: int = dataclasses.field(default=0, init=False)
    _walks: dict[tuple[Cache, tuple[bool, ...]], Walk] = dataclasses.field(default_factory=dict, init=False, repr=False)

    @functools.cached_property
    def _whole(self) -> TimedCalls:
        return TimedCalls([self.whole])

    def call_overhead_us(self) -> float:
        """Return the time that the timing adds to each call of a kernel, microseconds, measured with empty kernels."""
        return call_overhead_us()

    def run(self) -> None:
        """Run the whole model; on a GPU, launch its kernels without waiting for their end.

        Raises:
            RuntimeError: a kernel fails; the error is TVM's.
        """
        self.whole.function()

    def run_model(self) -> None:
        """Run the whole model once; before that, draw another stack offset for timed calls (`move_stack`)."""
        self.move_stack()
        self.run()

    def move_stack(self) -> None:
        """Draw a random stack offset for the next timed calls."""
        self.stack_turn = drawn_turn()

    def time_model(self) -> float:
        """Run the whole model once, and return its time in microseconds."""
        return float(self._whole.run(stack_places().of_model(self.stack_turn))[0])

    @property
    def labels(self) -> list[str]:
        """Return the label of each kernel (a hash from the compiler), in execution order."""
        return [kernel.label for kernel in self.kernels]

    def kernel_outputs(self) -> Iterator[np.ndarray]:
        """Run the kernels in order, and yield the output of each kernel before the next kernel runs."""
        for kernel in self.kernels:
            kernel.run()
            yield np.asarray(kernel.arrays[-1].numpy())

    def walk(self, cache: Cache, timed: Sequence[bool]) -> list[float]:
        """Run the kernels in order, and return the times of the selected kernels, microseconds; NaN for the others.

        The kernels that are not timed run too, because later kernels need their outputs.

        Args:
            cache: cache state in which the selected kernels are timed.
            timed: whether each kernel is timed.
        """
        wanted = tuple(map(bool, timed))
        if (cache, wanted) not in self._walks:
            self._walks[cache, wanted] = self._calls_of_walk(cache, wanted)
        calls, rows = self._walks[cache, wanted]
        read = calls.run(stack_places().of_kernels(self.stack_turn))[rows]
        times: list[float] = np.where(wanted, read, np.nan).tolist()
        return times

    def _calls_of_walk(self, cache: Cache, timed: tuple[bool, ...]) -> Walk:
        """Return the calls of a walk, including those that prepare the caches."""
        calls: list[BoundKernel] = []
        rows = []
        for kernel, wanted in zip(self.kernels, timed, strict=True):
            if wanted and cache == "hot":
                calls.append(kernel)
            elif wanted and cache == "cold" and self.flush is not None:
                calls.append(self.flush(kernel))
            rows.append(len(calls))
            calls.append(kernel)
        return TimedCalls(calls), rows

    def repeat_kernel(self, index: int, calls: int) -> bool:
        """Call one kernel `calls` times in a row; return False if a call failed."""
        return all(self.kernels[index].run() for _ in range(calls))

    def kernel_error(self, index: int) -> str | None:
        """Run one kernel with TVM's checks; return the error message, or None if it succeeds."""
        return self.kernels[index].error()

    def cache_mechanism(self, cache: Cache) -> str:
        """Return the name of the mechanism by which `walk` produces a cache state (`Settings.cache_mechanism`).

        Raises:
            MeasureError: this build of TVM cannot produce the cache state.
        """
        if cache == "cold" and self.flush is None:
            raise MeasureError("--cache cold needs cache_flush_cpu_non_first_arg, which this build of TVM lacks")
        return {"model": "in-graph", "hot": "repeat", "cold": "clflush"}[cache]
