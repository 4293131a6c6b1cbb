"""Measures the peak rates of a processor: multiply-adds in registers, and reads from each cache and from memory.

A few kernels at each thread count take a few seconds in all. The peaks are cached per device in the cache folder, and
are stored with the device's properties.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.cache import cache_folder
from op_profiler.compilers.bound_kernel import BoundKernel
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.sum_of_products import SumOfProducts
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.files import atomic_file
from op_profiler.measure.caches import beyond_caches_bytes, caches_in_use_bytes
from op_profiler.measure.in_place import timed_us
from op_profiler.measure.threads import default_thread_counts
from op_profiler.targets.llvm.reference_kernels import Pieces

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.measure.measurement import Device
    from op_profiler.measure.threads import ThreadPool

_CHUNKS = 256
_ROWS, _VECTORS, _DEPTH = 5, 2, 64
"""Ten accumulators: enough to hide the latency of a multiply-add, and they fit the sixteen registers of AVX2."""
_STREAMS = 4
_CACHES = 4
_CACHE_STREAMS = 8
_CACHE_READ_BYTES = 32 << 20
"""Bytes that one call reads from a cache, so many that the call overhead is negligible."""
_PIECE_BYTES = 64 << 20
_SECONDS, _OF_CACHES_SECONDS = 0.2, 0.05
_FEWEST_CALLS = 5


@dataclasses.dataclass(frozen=True)
class Peaks:
    """Peak rates of a processor; each rate has one value per thread count of `threads`.

    Attributes:
        flops_per_us: single precision; a multiply-add counts as two.
        bytes_per_us: rate of reading from memory.
        read_bytes: size of all data that was read for `bytes_per_us`: several times the caches in use, or as much as
            memory allowed.
        cache_bytes_per_us: rates of reading from the caches ``l1``, ``l2`` and ``l3`` whose size the operating system
            reports.
    """

    threads: tuple[int, ...]
    flops_per_us: tuple[float, ...]
    bytes_per_us: tuple[float, ...]
    read_bytes: int
    cache_bytes_per_us: dict[str, tuple[float, ...]]


def with_peaks(device: Device, peaks: Peaks | None = None) -> Device:
    """Return the device with peaks among its properties.

    Args:
        peaks: peaks to store and add; None: the stored ones. Without stored peaks, the device is not changed.
    """
    file = _file(device)
    if peaks is not None:
        text = json.dumps(dataclasses.asdict(peaks))
        with contextlib.suppress(OSError), atomic_file(file) as partial:  # later processes measure them again
            partial.write_text(text)
    else:
        try:
            text = file.read_text()
        except OSError:
            return device
    try:
        found = json.loads(text)
    except ValueError:
        return device  # damaged
    known = isinstance(found, dict) and all(field.name in found for field in dataclasses.fields(Peaks))
    if not known:  # of an earlier version
        return device
    return dataclasses.replace(device, properties=device.properties | {"peaks": found})


def measure_peaks(target: Target, device: Device, pool: ThreadPool) -> Peaks:
    """Measure the best of several calls of each kernel, at one thread, all cores, and the powers of two between.

    Args:
        target: `tvm.target.Target` of this machine's processor.
        device: device of this machine's processor.
        pool: thread pool; afterwards it uses all cores.
    """
    counts = default_thread_counts(device.cores)
    arithmetic, flops = _arithmetic(target)
    memory = _memory(target, beyond_caches_bytes(_CACHES * caches_in_use_bytes(pool.core_set())))
    caches = {level: _cache(target, size, counts[-1]) for level, size in _read_of_caches(device).items()}
    rates = []
    pool.use(counts[-1])
    arithmetic.run()  # the pool gets no more threads later than its first kernel had
    for count in counts:
        pool.use(count)
        of_caches = [moved / _best_us(kernel, _OF_CACHES_SECONDS) for kernel, moved in caches.values()]
        rates.append((flops / _best_us(arithmetic), memory.piece_bytes / _best_us(memory), *of_caches))
    # What fewer threads attain, more could too: a count at which something else ran does not look slower than another.
    flops_per_us, bytes_per_us, *of_caches = np.maximum.accumulate(rates).T.tolist()
    by_level = {level: tuple(found) for level, found in zip(caches, of_caches)}
    return Peaks(counts, tuple(flops_per_us), tuple(bytes_per_us), memory.total_bytes, by_level)


def _read_of_caches(device: Device) -> dict[str, int]:
    """Return the bytes that a thread reads from each cache: half of a private cache; for a shared third-level cache,
    more than the second level can hold."""
    sizes = {"l1": (device.l1_bytes or 0) // 2, "l2": (device.l2_bytes or 0) // 2}
    if device.l2_bytes and device.l3_bytes and device.l3_bytes > 2 * device.l2_bytes:
        sizes["l3"] = min(4 * device.l2_bytes, device.l3_bytes // 2)
    return {level: size for level, size in sizes.items() if size}


def _file(device: Device) -> Path:
    return cache_folder() / "peaks" / f"{device.key}.json"


def _best_us(kernel: BoundKernel | Pieces, seconds: float = _SECONDS) -> float:
    times: list[float] = []
    until = time.monotonic() + seconds
    while len(times) < _FEWEST_CALLS or time.monotonic() < until:
        times.append(timed_us(kernel))
    return min(times)


def _arithmetic(target: Target) -> tuple[BoundKernel, float]:
    """Return a small matrix product in the first-level cache, and its FLOPs."""
    lanes = compiler_in_use().vector_lanes(target)
    sizes = {"c": _CHUNKS, "k": _DEPTH, "i": _ROWS, "j": _VECTORS, "l": lanes}
    product = SumOfProducts("arithmetic", ("ki", "kjl"), "cijl", sizes, in_registers=True)
    return _bound(product, target), 2.0 * product.terms


def _memory(target: Target, total_bytes: int) -> Pieces:
    """Return sums over pieces of memory that are in no cache."""
    compiler = compiler_in_use()
    lanes = compiler.vector_lanes(target)
    rows = _PIECE_BYTES // (4 * _CHUNKS * _STREAMS * lanes)
    total = SumOfProducts("memory", ("crsl",), "csl", {"c": _CHUNKS, "r": rows, "s": _STREAMS, "l": lanes})
    return Pieces(total, compiler.build_sums(total, target), total_bytes)


def _cache(target: Target, size: int, threads: int) -> tuple[BoundKernel, float]:
    """Return sums over data that each thread reads repeatedly, and the bytes that a call reads.

    Args:
        size: bytes of a thread's data.
        threads: largest thread count of the calls.
    """
    lanes = compiler_in_use().vector_lanes(target)
    rows = max(size // (4 * _CACHE_STREAMS * lanes), 1)
    again = max(_CACHE_READ_BYTES // (threads * size), 1)
    sizes = {"c": threads, "a": again, "r": rows, "s": _CACHE_STREAMS, "l": lanes}
    total = SumOfProducts("cache", ("crsl",), "csl", sizes)
    return _bound(total, target), 4.0 * total.terms


def _bound(sums: SumOfProducts, target: Target) -> BoundKernel:
    """Return the kernel, bound to tensors of ones."""
    compiler, device = compiler_in_use(), load_tvm().cpu()
    arrays = [compiler.array_on(np.ones(shape, dtype="float32"), device) for shape in sums.shapes]
    return compiler.bound_kernel(sums.name, "", compiler.build_sums(sums, target), arrays)
