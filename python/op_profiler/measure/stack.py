"""Calls kernels from a random stack offset, which is drawn again for each round.

A kernel stores values that do not fit into registers on the stack. A vector of 64 bytes that crosses a cache line there
takes longer to store and load, and a vector that crosses a page takes much longer. The start of the stack is randomised
for every process in steps of 16 bytes, and the executor uses more of the stack than the loop that calls the kernels one
by one. For this reason alone, a convolution took 5 % longer in one process than in the next, and 5 % longer in the
model than in isolation (`benchmarks/stack_places.py`; Mytkowicz et al., Producing wrong data without doing anything
obviously wrong, ASPLOS 2009, describe such effects). Every round therefore draws one of the four offsets within a cache
line, with equal probability, and the whole model and its kernels are called with the same offset.

The stack is moved by passing more arguments than the function takes. The caller puts arguments that do not fit into
registers on the stack and removes them again (calling conventions of x86-64 and AArch64), so the function is not
affected. How far the arguments move a call depends on libffi and on Python; it is measured once per process.
"""

from __future__ import annotations

import ctypes
import functools
import random

import numpy as np

from op_profiler.compilers.bound_kernel import More
from op_profiler.compilers.calls import TimedCalls
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import load_tvm

_TURNS = 1024  # range of random turns
_PLACES = 4  # stack offsets within a cache line
_STEP, _LINE, _PAGE = 16, 64, 4096
_MOST_ARGUMENTS = 128
_STRIDE = 7  # so that consecutive turns use cache lines that are far apart


class StackProbe:
    """Kernels that report the stack address at which they begin, for the runtime of the compiler in use."""

    def __init__(self) -> None:
        compiler = compiler_in_use()
        self._array = compiler.array_on(np.zeros(1, dtype=np.int64), load_tvm().cpu())
        kernel = compiler.bound_kernel("stack", "", compiler.call_library()["stack"], [self._array, self._array])
        self._kernel = TimedCalls([kernel])
        (in_model,), whole = compiler.chain("stack", 1, "int64")
        self._in_model = in_model.arrays[0]
        self._model = TimedCalls([whole])

    def called(self, more: More = ()) -> int:
        """Return the stack address at which a kernel begins if `TimedCalls` passes it these additional arguments."""
        self._kernel.run(more)
        return int(self._array.numpy()[0])

    def called_in_model(self, more: More = ()) -> int:
        """Return the stack address at which a kernel begins in a run of a model with these additional arguments."""
        self._model.run(more)
        return int(self._in_model.numpy()[0])


class StackPlaces:
    """Additional arguments that shift the stack of kernels, for runs of a whole model and for calls one by one.

    The arguments are determined for the runtime of the compiler in use.
    """

    def __init__(self) -> None:
        probe = StackProbe()
        here = probe.called()
        steps = (here - probe.called_in_model()) % _LINE // _STEP
        counts: list[list[int]] = [[] for _ in range(_PLACES)]
        for count in range(_MOST_ARGUMENTS):
            lower = here - probe.called(_arguments(count))
            if lower >= _PAGE:
                break
            counts[lower % _LINE // _STEP].append(count)
        self._counts = [found or [0] for found in counts]  # without arguments for an offset, the call is not moved
        self._steps_of_model = steps

    def of_kernels(self, turn: int) -> More:
        """Return the additional arguments that move the stack of kernels that are called one by one.

        The stack begins `turn` steps of 16 bytes lower, modulo the 64 bytes of a cache line.

        Args:
            turn: number from `drawn_turn`; ``turn % 4`` selects the offset within a cache line, ``turn // 4`` the cache
            line of the page in which the kernel's stack begins.
        """
        counts = self._counts[turn % _PLACES]
        return _arguments(counts[turn // _PLACES * _STRIDE % len(counts)])

    def of_model(self, turn: int) -> More:
        """Return the additional arguments with which kernels have the offset of ``of_kernels(turn)`` in a model's run.

        The arguments differ from those of `of_kernels`, because the executor uses more of the stack.
        """
        return self.of_kernels(turn - turn % _PLACES + (turn - self._steps_of_model) % _PLACES)


@functools.cache
def stack_places() -> StackPlaces:
    """Return the `StackPlaces` of this process, which are measured at the first call."""
    return StackPlaces()


def drawn_turn() -> int:
    """Return a random `turn` for the methods of `StackPlaces`.

    A fixed sequence could coincide with the sequence of thread counts or copies.
    """
    return random.randrange(_TURNS)


@functools.cache
def _arguments(count: int) -> More:
    return (ctypes.c_int64(0),) * count
