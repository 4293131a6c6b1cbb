"""A kernel as plain values: its loops under a schedule, and its executed instructions or its launches on a GPU."""

from __future__ import annotations

import dataclasses

from op_profiler.compilers.executed import Executed


@dataclasses.dataclass(frozen=True)
class Loop:
    """One loop around a statement.

    Attributes:
        kind: ``serial``, ``parallel`` (over threads), ``vectorized`` or ``unrolled``. A loop annotated as vectorized is
            serial if a condition around the statement differs between its iterations, because TVM lowers it so.
    """

    extent: int
    kind: str


@dataclasses.dataclass(frozen=True)
class Access:
    """One tensor that a statement reads or writes.

    Attributes:
        tensor: number of the tensor within the kernel; `argument`: whether the tensor is the kernel's input, weight or
            output, not an intermediate result.
        item_bytes: bytes of one element; `elements`: number of elements of the whole tensor.
        strides: distance between neighbouring iterations of each loop, in elements.
        gathers: whether the position depends on data.
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
        loops: loops from the outermost to the innermost. A loop over several fused axes is represented by one loop per
            axis. A vectorized loop is the innermost one, because TVM vectorizes every statement in it.
        accesses: every read tensor, in the order of the expression, then the written one.
        operations: number of each operation in one iteration: ``add`` (also subtractions, minima and maxima), ``mul``,
            ``div`` (also roots), ``fma`` (multiplications fused with an addition; they also count as ``mul``),
            ``select``, ``call`` (of functions of the C library, in evaluations of exp: tanh counts as two). A number is
            less than one if the operation is hoisted out of inner loops; a repeated call counts once.
        guards: number of conditions around the statement; `guarded`: positions of the loops on which they depend.
    """

    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    operations: dict[str, float]
    guards: int
    guarded: frozenset[int] = frozenset()


WORK = ("arithmetic", "integers", "functions", "divisions", "accesses", "sectors", "shared", "fetches")
"""Work of one GPU thread, by name: operations on values (a multiply-add is one); operations of conditions (such as
where a padded tensor ends); evaluations of exp and similar functions; divisions; reads and writes of the GPU's memory,
and the number of 32-byte sectors that the 32 threads of a warp access together; accesses of shared memory, several if
threads of a warp use the same bank; and the number of waits for the GPU's memory."""


@dataclasses.dataclass(frozen=True)
class LaunchedWork:
    """One launch on a GPU.

    Attributes:
        blocks, threads: number of blocks, and number of threads of a block.
        shared_bytes: shared memory of a block.
        work: work of one thread, by the names of `WORK`.
    """

    blocks: int
    threads: int
    shared_bytes: int
    work: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A compiler's kernel of an operator.

    Attributes:
        nests: statements of a processor's kernel, in order, at least one; empty for a GPU.
        executed: executed instructions; None if no code of a processor is generated.
        launches: launches of a GPU's kernel, in order, at least one; empty for a processor.
    """

    nests: tuple[LoopNest, ...]
    executed: Executed | None
    launches: tuple[LaunchedWork, ...] = ()
