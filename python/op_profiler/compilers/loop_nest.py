"""A kernel as plain values: the loops that its schedule gives, and what its code executes, or what a GPU launches."""

from __future__ import annotations

import dataclasses

from op_profiler.compilers.executed import Executed


@dataclasses.dataclass(frozen=True)
class Loop:
    """One loop around a statement.

    Attributes:
        kind: ``serial``, ``parallel`` (over threads), ``vectorized`` or ``unrolled``. One that is marked to be
            vectorized is serial where a condition around the statement differs between its iterations: that is what TVM
            makes of it.
    """

    extent: int
    kind: str


@dataclasses.dataclass(frozen=True)
class Access:
    """One tensor that a statement reads or writes.

    Attributes:
        tensor: number within the kernel; `argument`: whether it is the kernel's input, weight or output, and no
            intermediate result of its own.
        item_bytes: of one element; `elements`: of the whole tensor.
        strides: how far apart two neighbouring iterations of each loop are, in elements.
        gathers: whether the place depends on data.
    """

    tensor: int
    argument: bool
    written: bool
    item_bytes: int
    elements: int
    strides: tuple[int, ...]
    gathers: bool = False


@dataclasses.dataclass(frozen=True)
class LoopNest:
    """One statement of a kernel that stores a value, in its loops.

    Attributes:
        loops: from the outermost to the innermost. A loop over several fused axes stands as one loop an axis. One that
            is vectorized is the innermost one: TVM makes vectors of every statement that stands in it.
        accesses: every tensor that is read, in the order of the expression; the one that is written is the last.
        operations: how many of each one iteration has: ``add`` (subtractions, minima and maxima too), ``mul``, ``div``
            (roots too), ``fma`` (multiplications that an addition takes up; they are among ``mul`` too), ``select``,
            ``call`` (of functions of the C library, in evaluations of exp: tanh counts two). Less than one where it is
            taken out of inner loops; a call that stands there twice is made once.
        guards: conditions around the statement; `guarded`: places of the loops that they depend on.
    """

    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    operations: dict[str, float]
    guards: int
    guarded: frozenset[int] = frozenset()


WORK = ("arithmetic", "integers", "functions", "divisions", "accesses", "sectors", "shared", "fetches")
"""What one thread of a GPU does, by name: operations on values, where a multiply-add is one; those that conditions take
(where a padded tensor ends, for instance); evaluations of exp and the like; divisions; reads and writes of the GPU's
memory, and how many sectors of 32 bytes they are for the 32 threads of a warp together; passes through the memory that
a block shares, several where threads of a warp need the same bank of it; and how often it has to wait for the GPU's
memory before it can go on."""


@dataclasses.dataclass(frozen=True)
class LaunchedWork:
    """What one launch on a GPU does.

    Attributes:
        blocks, threads: how many there are, and how many a block has.
        shared_bytes: of a block.
        work: of one thread, by the names of `WORK`.
    """

    blocks: int
    threads: int
    shared_bytes: int
    work: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What a compiler makes of an operator.

    Attributes:
        nests: its statements on a processor, in their order; at least one. None on a GPU.
        executed: None where no code of a processor is generated.
        launches: on a GPU, in their order; at least one.
    """

    nests: tuple[LoopNest, ...]
    executed: Executed | None
    launches: tuple[LaunchedWork, ...] = ()
