"""How fast the machine is at the moment, told by kernels that never change.

On a shared host the same kernel takes 10 to 40 % longer for minutes when a neighbour uses the other half of a physical
core or the memory bus, and nothing inside the virtual machine shows it. So every window of rounds times two kernels
that are the same in every run: one of multiply-adds on data in the first-level cache, one that reads what lies in no
cache. Their times are stored with the model's and say which runs can be compared; so are the sizes of their data
(``gauge_bytes``), since times of two sizes cannot.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.sum_of_products import SumOfProducts
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import PackedFunction, Target
from op_profiler.cores import available_cores
from op_profiler.measure.caches import Pieces, beyond_caches_bytes, caches_in_use_bytes
from op_profiler.measure.in_place import BoundKernel, timed_us

PROBE_NAMES = ("compute", "memory")
"""What `SteadinessProbe.timed` returns, in this order."""

FIRST_MEMORY_BYTES = 50_331_648
"""What the memory kernel read over and over before sizes were stored: a cache, on processors with larger ones."""

_COMPUTE = SumOfProducts("compute", ("k", "jkl"), "pjl", {"p": 1024, "k": 64, "j": 8, "l": 16})
_MEMORY = SumOfProducts("memory", ("prl",), "pl", {"p": 64, "r": 12_288, "l": 16})
_EXCHANGE = SumOfProducts("exchange", ("rpl",), "prl", {"p": 64, "k": 1, "r": 64, "l": 16})
"""A copy with its first axes swapped, as a sum of one term: of two threads each reads half of it from the other."""
_CALLS = 7
_CACHES = 2
"""Times the caches in use that all pieces of memory together hold."""


class SteadinessProbe:
    """The two kernels on this machine's processor.

    Args:
        target: `tvm.target.Target`.

    Attributes:
        sizes_bytes: of the data of each kernel. All cores that this process may use count, whichever a run uses, so
            that the steadiness probe is the same.
        exchanged_bytes: what the threads read of one another in `exchanged_us`, and of themselves.
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
        """Median microseconds of a call of each kernel, at the thread count that is set.

        A call before wakes the threads up, which after a change of their number takes longer than the kernel.
        """
        return tuple(
            float(np.median([timed_us(kernel) for _ in range(_CALLS)])) for kernel in self._kernels if kernel.run()
        )

    def exchanged_us(self) -> float:
        """Median microseconds in which threads read what all of them wrote just before, at the thread count that is
        set."""
        for kernel in self._to_and_fro:
            kernel.run()
        return float(np.median([np.mean([timed_us(kernel) for kernel in self._to_and_fro]) for _ in range(_CALLS)]))


@functools.cache
def _functions(target: str) -> tuple[PackedFunction, ...]:
    compiler = compiler_in_use()
    made = compiler.target(target)
    return tuple(compiler.build_sums(sums, made) for sums in (_COMPUTE, _MEMORY, _EXCHANGE))
