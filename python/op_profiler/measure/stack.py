"""From which place on the stack a kernel is called.

A kernel keeps on the stack what does not fit into registers. A vector of 64 bytes that lies across two cache lines
there takes longer to store and to load, and one across two pages takes very long. Where the stack is, is dealt out anew
to every process in steps of 16 bytes; and the executor has put more on it than the loop that calls the kernels one by
one. A convolution took 5 % longer in one process than in the next for no other reason, and 5 % longer in the model
than by itself (`benchmarks/stack_places.py`; Mytkowicz et al., Producing wrong data without doing anything obviously
wrong, ASPLOS 2009, found such effects first). So every round draws another place, each of the four within a cache
line as often, and the whole model and its kernels are called from the same one of these four.

A call is moved by more arguments than its function takes. What does not fit into registers is put on the stack by the
caller, who also takes it away again (the calling conventions of x86-64 and of AArch64), so the function never sees it.
How far that moves a call depends on libffi and on Python; it is measured once a process.
"""

from __future__ import annotations

import ctypes
import functools

from op_profiler.measure.calls import StackProbe

TURNS = 1024
"""How many there are to draw from."""
_PLACES = 4  # within a cache line
_STEP, _LINE, _PAGE = 16, 64, 4096
_MOST_ARGUMENTS = 128
_STRIDE = 7  # so that lines that are used one after the other lie far apart


@functools.cache
def arguments(turn: int, steps: int = 0) -> tuple[ctypes.c_int64, ...]:
    """What a call is given beyond its arguments, so that it begins `turn` steps of 16 bytes lower modulo 64.

    Args:
        turn: 0 to `TURNS` - 1; in which line of a page it begins, depends on it as well.
        steps: that what is called goes lower by itself, as `executor_steps`.
    """
    counts = _counts()[(turn - steps) % _PLACES]
    return (ctypes.c_int64(0),) * counts[turn // _PLACES * _STRIDE % len(counts)]


@functools.cache
def executor_steps() -> int:
    """How many steps lower a kernel begins in the graph executor than where it is called by itself, modulo 4."""
    probe = StackProbe()
    return (probe.called() - probe.called_by_executor()) % _LINE // _STEP


@functools.cache
def _counts() -> tuple[tuple[int, ...], ...]:
    """For each place within a cache line, numbers of arguments that move a call there: over a whole page.

    No argument at all stands for a place to which none moves.
    """
    probe = StackProbe()
    here = probe.called()
    counts: list[list[int]] = [[] for _ in range(_PLACES)]
    for count in range(_MOST_ARGUMENTS):
        lower = here - probe.called((ctypes.c_int64(0),) * count)
        if lower >= _PAGE:
            break
        counts[lower % _LINE // _STEP].append(count)
    return tuple(tuple(found) or (0,) for found in counts)
