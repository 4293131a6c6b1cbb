"""What a processor can do at most: multiply-adds in registers, and reading from each cache and from no cache.

A handful of kernels at each thread count, a few seconds in all. The peaks are kept by the device in the cache folder,
and in the device's properties go wherever it is stored.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.cache import cache_folder
from op_profiler.compilers.tvm_build import load_tvm, vector_lanes
from op_profiler.files import atomic_file
from op_profiler.measure.caches import Pieces, beyond_caches_bytes, caches_in_use_bytes
from op_profiler.measure.calls import Kernel

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import DeviceArray, Target
    from op_profiler.measure.measurement import Device
    from op_profiler.measure.threads import ThreadPool

_CHUNKS = 256
_ROWS, _VECTORS, _DEPTH = 5, 2, 64
"""Ten accumulators: enough to hide the latency of a multiply-add, and they fit the sixteen registers of AVX2."""
_STREAMS = 4
_CACHES = 4
_CACHE_STREAMS = 8
_CACHE_READ_BYTES = 32 << 20
"""Read from a cache in one call, so that the call itself is nothing beside it."""
_PIECE_BYTES = 64 << 20
_SECONDS, _OF_CACHES_SECONDS = 0.2, 0.05
_FEWEST_CALLS = 5


@dataclasses.dataclass(frozen=True)
class Peaks:
    """Rates at several thread counts, one an entry of each.

    Attributes:
        flops_per_us: single precision, a multiply-add counts as two.
        bytes_per_us: read from memory.
        read_bytes: size of what was read in turn: several times the caches in use, or what memory there was for it.
        cache_bytes_per_us: read from the caches ``l1``, ``l2`` and ``l3``, those whose size the system tells.
    """

    threads: tuple[int, ...]
    flops_per_us: tuple[float, ...]
    bytes_per_us: tuple[float, ...]
    read_bytes: int
    cache_bytes_per_us: dict[str, tuple[float, ...]]


def with_peaks(device: Device, peaks: Peaks | None = None) -> Device:
    """The device with its peaks among its properties: these, else those that were measured earlier, if any."""
    file = _file(device)
    if peaks is not None:
        with atomic_file(file) as partial:
            partial.write_text(json.dumps(dataclasses.asdict(peaks)))
    if not file.is_file():
        return device
    found = json.loads(file.read_text())
    if any(field.name not in found for field in dataclasses.fields(Peaks)):  # of an earlier version
        return device
    return dataclasses.replace(device, properties=device.properties | {"peaks": found})


def measure_peaks(target: Target, device: Device, pool: ThreadPool) -> Peaks:
    """The best of several calls of each kernel, at one thread, all cores, and the powers of two between.

    Args:
        target: `tvm.target.Target` of this machine's processor.
        device: that it is.
        pool: is left at all cores.
    """
    from op_profiler.measure.threads import default_thread_counts

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
    """What a thread reads of each cache: half of one of its own, of a shared third one what the second cannot hold."""
    sizes = {"l1": (device.l1_bytes or 0) // 2, "l2": (device.l2_bytes or 0) // 2}
    if device.l2_bytes and device.l3_bytes and device.l3_bytes > 2 * device.l2_bytes:
        sizes["l3"] = min(4 * device.l2_bytes, device.l3_bytes // 2)
    return {level: size for level, size in sizes.items() if size}


def _file(device: Device) -> Path:
    return cache_folder() / "peaks" / f"{device.key}.json"


def _best_us(kernel: Kernel | Pieces, seconds: float = _SECONDS) -> float:
    times: list[float] = []
    until = time.monotonic() + seconds
    while len(times) < _FEWEST_CALLS or time.monotonic() < until:
        times.append(kernel.timed())
    return min(times)


def _arithmetic(target: Target) -> tuple[Kernel, float]:
    """A small matrix product out of the first-level cache, and its FLOPs."""
    tvm = load_tvm()
    te, lanes = tvm.te, vector_lanes(target)
    left = te.placeholder((_DEPTH, _ROWS), name="left")
    right = te.placeholder((_DEPTH, _VECTORS, lanes), name="right")
    k = te.reduce_axis((0, _DEPTH))
    product = te.compute(
        (_CHUNKS, _ROWS, _VECTORS, lanes),
        lambda chunk, i, j, lane: te.sum(left[k, i] * right[k, j, lane], axis=k),
        name="product",
    )
    schedule = te.create_schedule(product.op)
    registers = schedule.cache_write(product, "local")
    chunk, row, vector, lane = product.op.axis
    schedule[product].parallel(chunk)
    schedule[product].unroll(row)
    schedule[product].unroll(vector)
    schedule[product].vectorize(lane)
    schedule[registers].compute_at(schedule[product], chunk)
    _, row, vector, lane = registers.op.axis
    schedule[registers].reorder(k, row, vector, lane)
    schedule[registers].unroll(row)
    schedule[registers].unroll(vector)
    schedule[registers].vectorize(lane)
    function = tvm.build(schedule, [left, right, product], target=target)
    arrays = [_array(_DEPTH, _ROWS), _array(_DEPTH, _VECTORS, lanes), _array(_CHUNKS, _ROWS, _VECTORS, lanes)]
    return Kernel("arithmetic", "", function.entry_func, arrays), 2.0 * _DEPTH * _CHUNKS * _ROWS * _VECTORS * lanes


def _memory(target: Target, total_bytes: int) -> Pieces:
    """Sums over pieces that no cache holds."""
    tvm = load_tvm()
    te, lanes = tvm.te, vector_lanes(target)
    rows = _PIECE_BYTES // (4 * _CHUNKS * _STREAMS * lanes)
    source = te.placeholder((_CHUNKS, rows, _STREAMS, lanes), name="source")
    row = te.reduce_axis((0, rows))
    total = te.compute(
        (_CHUNKS, _STREAMS, lanes), lambda p, s, lane: te.sum(source[p, row, s, lane], axis=row), name="total"
    )
    schedule = te.create_schedule(total.op)
    chunk, stream, lane = schedule[total].op.axis
    schedule[total].reorder(chunk, row, stream, lane)
    schedule[total].parallel(chunk)
    schedule[total].unroll(stream)
    schedule[total].vectorize(lane)
    function = tvm.build(schedule, [source, total], target=target)
    piece, output = (_CHUNKS, rows, _STREAMS, lanes), (_CHUNKS, _STREAMS, lanes)
    return Pieces("memory", function.entry_func, piece, output, total_bytes)


def _cache(target: Target, size: int, threads: int) -> tuple[Kernel, float]:
    """Sums over data that each thread reads again and again, and the bytes that a call reads.

    Args:
        size: bytes of a thread's data.
        threads: the most that it is called with.
    """
    tvm = load_tvm()
    te, lanes = tvm.te, vector_lanes(target)
    rows = max(size // (4 * _CACHE_STREAMS * lanes), 1)
    again = max(_CACHE_READ_BYTES // (threads * size), 1)
    source = te.placeholder((threads, rows, _CACHE_STREAMS, lanes), name="source")
    time_, row = te.reduce_axis((0, again)), te.reduce_axis((0, rows))
    total = te.compute(
        (threads, _CACHE_STREAMS, lanes),
        lambda p, s, lane: te.sum(source[p, row, s, lane], axis=[time_, row]),
        name="total",
    )
    schedule = te.create_schedule(total.op)
    part, stream, lane = schedule[total].op.axis
    schedule[total].reorder(part, time_, row, stream, lane)
    schedule[total].parallel(part)
    schedule[total].unroll(stream)
    schedule[total].vectorize(lane)
    function = tvm.build(schedule, [source, total], target=target)
    arrays = [_array(threads, rows, _CACHE_STREAMS, lanes), _array(threads, _CACHE_STREAMS, lanes)]
    return Kernel("cache", "", function.entry_func, arrays), 4.0 * threads * again * rows * _CACHE_STREAMS * lanes


def _array(*shape: int) -> DeviceArray:
    return load_tvm().nd.array(np.ones(shape, dtype="float32"))
