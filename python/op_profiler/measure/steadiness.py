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

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray, RuntimeModule, Target
from op_profiler.measure.caches import Pieces, beyond_caches_bytes, caches_in_use_bytes
from op_profiler.measure.calls import Kernel
from op_profiler.measure.threads import available_cores

PROBE_NAMES = ("compute", "memory")
"""What `SteadinessProbe.timed` returns, in this order."""

FIRST_MEMORY_BYTES = 50_331_648
"""What the memory kernel read over and over before sizes were stored: a cache, on processors with larger ones."""

_LANES = 16
_CHUNKS = 1024
_COLUMNS, _DEPTH = 8, 64
_MEMORY_ROWS = 12_288
_MEMORY_CHUNKS = 64
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
    """

    def __init__(self, target: Target) -> None:
        tvm = load_tvm()
        compute, memory = _functions(str(target))
        rng = np.random.default_rng(0)

        def array(*shape: int) -> DeviceArray:
            made: DeviceArray = tvm.nd.array(rng.random(shape, dtype="float32"))
            return made

        shapes = (_DEPTH,), (_COLUMNS, _DEPTH, _LANES), (_CHUNKS, _COLUMNS, _LANES)
        piece, output = (_MEMORY_CHUNKS, _MEMORY_ROWS, _LANES), (_MEMORY_CHUNKS, _LANES)
        wanted = beyond_caches_bytes(_CACHES * caches_in_use_bytes(available_cores()))
        pieces = Pieces("memory", memory.entry_func, piece, output, wanted)
        self._kernels: tuple[Kernel | Pieces, ...] = (
            Kernel("compute", "", compute.entry_func, [array(*shape) for shape in shapes]),
            pieces,
        )
        self.sizes_bytes = (4 * sum(map(math.prod, shapes)), pieces.total_bytes)

    def timed(self) -> tuple[float, ...]:
        """Median microseconds of a call of each kernel, at the thread count that is set.

        A call before wakes the threads up, which after a change of their number takes longer than the kernel.
        """
        return tuple(
            float(np.median([kernel.timed() for _ in range(_CALLS)])) for kernel in self._kernels if kernel.run()
        )


@functools.cache
def _functions(target: str) -> tuple[RuntimeModule, RuntimeModule]:
    tvm = load_tvm()
    te = tvm.te
    factor = te.placeholder((_DEPTH,), name="factor")
    data = te.placeholder((_COLUMNS, _DEPTH, _LANES), name="data")
    k = te.reduce_axis((0, _DEPTH))
    product = te.compute(
        (_CHUNKS, _COLUMNS, _LANES), lambda p, j, lane: te.sum(factor[k] * data[j, k, lane], axis=k), name="product"
    )
    schedule = te.create_schedule(product.op)
    chunk, column, lane = schedule[product].op.axis
    schedule[product].reorder(chunk, k, column, lane)
    schedule[product].parallel(chunk)
    schedule[product].unroll(column)
    schedule[product].vectorize(lane)
    compute = tvm.build(schedule, [factor, data, product], target=target)

    source = te.placeholder((_MEMORY_CHUNKS, _MEMORY_ROWS, _LANES), name="source")
    row = te.reduce_axis((0, _MEMORY_ROWS))
    total = te.compute((_MEMORY_CHUNKS, _LANES), lambda p, lane: te.sum(source[p, row, lane], axis=row), name="total")
    schedule = te.create_schedule(total.op)
    chunk, lane = schedule[total].op.axis
    schedule[total].reorder(chunk, row, lane)
    schedule[total].parallel(chunk)
    schedule[total].vectorize(lane)
    return compute, tvm.build(schedule, [source, total], target=target)
