"""Reference kernels on this machine's processor, whose times measure its present state."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from op_profiler.compilers.bound_kernel import BoundKernel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.sum_of_products import SumOfProducts
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import PackedFunction, Target
from op_profiler.cores import available_cores
from op_profiler.measure.caches import beyond_caches_bytes, caches_in_use_bytes
from op_profiler.measure.in_place import timed_us

_COMPUTE = SumOfProducts("compute", ("k", "jkl"), "pjl", {"p": 1024, "k": 64, "j": 8, "l": 16})
_MEMORY = SumOfProducts("memory", ("prl",), "pl", {"p": 64, "r": 12_288, "l": 16})
_EXCHANGE = SumOfProducts("exchange", ("rpl",), "prl", {"p": 64, "k": 1, "r": 64, "l": 16})
"""A copy with its first axes swapped, as a sum of one term: each of two threads reads half of its data from the
other."""
_CALLS = 7
_CACHES = 2
"""Size of all pieces of memory together, as a multiple of the caches in use."""
_SOME_FLOAT = 0.75  # pages that nobody wrote to are all one page


class Pieces:
    """Sums over data that is in no cache: calls go through many pieces in turn, so that each piece has been evicted
    since its last use.

    A call takes as long as reading one piece, however large the caches are.

    Args:
        sums: sum over one tensor, which is a piece.
        function: computes the sums, as `Compiler.build_sums` returns it.
        total_bytes: least size of all pieces together; there are at least two pieces.
    """

    def __init__(self, sums: SumOfProducts, function: PackedFunction, total_bytes: int) -> None:
        piece, output = sums.shapes
        self.piece_bytes = 4 * math.prod(piece)
        count = max(-(-total_bytes // self.piece_bytes), 2)
        self.total_bytes = count * self.piece_bytes
        compiler, device = compiler_in_use(), load_tvm().cpu()
        values = np.full(piece, _SOME_FLOAT, dtype="float32")
        result = compiler.array_on(np.zeros(output, dtype="float32"), device)
        self._kernels = [
            compiler.bound_kernel(sums.name, "", function, [compiler.array_on(values, device), result])
            for _ in range(count)
        ]
        self._next = itertools.cycle(self._kernels)

    def run(self) -> bool:
        """Run the sums on the next piece, as `BoundKernel.run` does."""
        return next(self._next).run()


class ReferenceKernels:
    """The reference kernels of this machine's processor (a `SteadinessProbe`).

    Args:
        target: `tvm.target.Target`.
    """

    exchanged_bytes = 4 * _EXCHANGE.terms

    def __init__(self, target: Target) -> None:
        compute, memory, exchange = _functions(str(target))
        compiler, device, rng = compiler_in_use(), load_tvm().cpu(), np.random.default_rng(0)
        arrays = [compiler.array_on(rng.random(shape, dtype="float32"), device) for shape in _COMPUTE.shapes]
        pieces = Pieces(_MEMORY, memory, beyond_caches_bytes(_CACHES * caches_in_use_bytes(available_cores())))
        self._kernels: tuple[BoundKernel | Pieces, ...] = (
            compiler.bound_kernel(_COMPUTE.name, "", compute, arrays),
            pieces,
        )
        one, other = (compiler.array_on(rng.random(shape, dtype="float32"), device) for shape in _EXCHANGE.shapes)
        self._to_and_fro = [
            compiler.bound_kernel(_EXCHANGE.name, "", exchange, arrays) for arrays in ([one, other], [other, one])
        ]
        self.sizes_bytes = (4 * sum(map(math.prod, _COMPUTE.shapes)), pieces.total_bytes)

    def timed(self) -> tuple[float, ...]:
        """Return the median time of a call of each kernel in microseconds, at the current thread count.

        An untimed call wakes the threads up first, which takes longer than the kernel if their number has changed.
        """
        return tuple(
            float(np.median([timed_us(kernel) for _ in range(_CALLS)])) for kernel in self._kernels if kernel.run()
        )

    def exchanged_us(self) -> float:
        """Return the median time in microseconds in which threads read what all of them have just written, at the
        current thread count."""
        for kernel in self._to_and_fro:
            kernel.run()
        return float(np.median([np.mean([timed_us(kernel) for kernel in self._to_and_fro]) for _ in range(_CALLS)]))


@functools.cache
def _functions(target: str) -> tuple[PackedFunction, ...]:
    compiler = compiler_in_use()
    made = compiler.target(target)
    return tuple(compiler.build_sums(sums, made) for sums in (_COMPUTE, _MEMORY, _EXCHANGE))
