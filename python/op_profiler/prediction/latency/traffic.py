"""Features of a kernel's loops: instructions, traffic through each cache, and causes of stalls.

The footprint of the innermost loops is the cache lines that they access. If the footprint fits into a cache, the data
stays there and is used again; from the loop whose footprint does not fit, every iteration loads its data again. Lines
whose addresses differ by a multiple of the size of a cache way are in the same set; they evict each other earlier, as
soon as there are more of them than ways.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from op_profiler.compilers.executed import CLASSES, Executed
from op_profiler.compilers.loop_nest import Access, Kernel, LoopNest

_LINE_BYTES = 64
_VECTOR_BYTES = 64
_PAGE_BYTES = 4096
_LARGE_BYTES = 1 << 14
_SCATTERED_BYTES, _STREAMS = 1 << 10, 16
"""Limits of prefetchers: they do not follow larger steps, nor more streams."""
_MOST_IN_REGISTERS, _LONGEST_VECTOR = 512, 32
"""Largest number of elements of sums that stay in registers; a longer vector is several vectors with separate sums."""
_UNROLLED_SUM = 32
"""LLVM unrolls sums of at most this length and vectorizes the loop around them; such sums are so short that the sums of
the next iterations start before they end."""
_CHAIN_CYCLES = 4.0
"""Cycles from one multiply-add to the next one of the same sum."""


@dataclasses.dataclass(frozen=True)
class CacheLevel:
    """Properties of a cache, or of a TLB (whose lines are pages), that determine what stays in it."""

    size_bytes: int
    ways: int
    sets: int
    line_bytes: int = _LINE_BYTES


LEVELS = {
    "past_32k": CacheLevel(32 << 10, 8, 64),
    "past_48k": CacheLevel(48 << 10, 12, 64),
    "past_1m": CacheLevel(1 << 20, 16, 1024),
    "past_2m": CacheLevel(2 << 20, 16, 2048),
    "past_32m": CacheLevel(32 << 20, 16, 32768),
}
"""Caches by the name of the traffic that misses them. The sizes are those of the processors with included data; the
cost of each traffic on a device, which may have other caches, is fitted to the times measured there."""
PAGES = {
    "past_64_pages": CacheLevel(64 * _PAGE_BYTES, 64, 1, _PAGE_BYTES),
    "past_2k_pages": CacheLevel(2048 * _PAGE_BYTES, 16, 128, _PAGE_BYTES),
}
"""TLBs by the name of the accesses that miss them. Each step of a page or more needs another TLB entry; if the step is
a power of two, all entries are in a few sets."""

PARTS = ("parallel", "serial")
"""Parts of a kernel: loops that the thread pool runs, and the rest."""
TERMS = ("chain", *CLASSES)
"""Terms of the cost: cycles in which sums wait for the previous addition, and instructions by class."""
MOVED = (*LEVELS, *PAGES, "scattered")
NAMES: tuple[str, ...] = (
    *(f"{part}_{name}" for part in PARTS for name in (*TERMS, *MOVED)),
    "multiply_adds",
    "evicted_l1",
    "evicted_l2",
    "arguments_from_memory",
    "stored_to_memory",
    "packed_bytes",
    "stages",
    "parallel_stages",
    "main_share",
    "main_accumulators",
    "main_vector",
    "main_instructions",
    *(f"main_{name}" for name in (*LEVELS, *PAGES)),
    "main_parallel",
    "main_uneven",
    "main_stride",
    "main_aliasing",
)
"""Names of the columns that `traffic_features` returns, sizes as logarithms to base 2."""
_OF_SCHEDULE = {
    "arithmetic": "instructions",
    "loads": "loads",
    "gathered": "gathers",
    "exponentials": "calls",
    "divisions": "divisions",
    "selected": "selects",
}
"""Term of `_Stage.terms` for each class of instructions."""
_PLAIN = {"stages", "parallel_stages", "main_share", "main_uneven", "evicted_l1", "evicted_l2"}
_PLAIN |= {f"main_{name}" for name in (*LEVELS, *PAGES)}
_FIRST, _SECOND, _MEMORY = (list(LEVELS).index(name) for name in ("past_48k", "past_1m", "past_32m"))


@dataclasses.dataclass(frozen=True)
class _Footprint:
    """Cache lines that some loops access.

    Attributes:
        lines: number of distinct lines.
        together: number of lines of one piece without gaps.
        apart: byte strides and extents of the loops whose steps leave gaps.
    """

    lines: float
    together: int
    apart: tuple[tuple[int, int], ...]

    @classmethod
    def of(
        cls, access: Access, extents: Sequence[int], strides: Sequence[int], line_bytes: int = _LINE_BYTES
    ) -> _Footprint:
        span, pieces = access.item_bytes, 1
        apart: list[tuple[int, int]] = []
        for stride, extent in sorted((s * access.item_bytes, n) for s, n in zip(strides, extents) if s and n > 1):
            if stride <= max(span, line_bytes):
                span += (extent - 1) * stride
            else:
                pieces *= extent
                apart.append((stride, extent))
        together = max(-(-span // line_bytes), 1)
        most = max(-(-access.elements * access.item_bytes // line_bytes), 1)
        return cls(float(min(pieces * together, most)), together, tuple(apart))

    def overflows(self, level: CacheLevel) -> bool:
        """Return whether the sets that the lines' addresses map to have too few ways for all lines."""
        if not self.apart:
            return False
        reached, line = self.together, level.line_bytes
        for stride, extent in self.apart:
            distinct = level.sets // math.gcd(stride // line, level.sets) if stride % line == 0 else extent
            reached = min(reached * min(extent, distinct), level.sets)
        return self.lines > reached * level.ways


@dataclasses.dataclass
class _Stage:
    """Amounts of work of one statement with its loops."""

    terms: dict[str, float]
    moved: np.ndarray
    without_eviction: np.ndarray
    from_memory: np.ndarray
    accesses: list[Access]
    parallel: int
    vector: int
    accumulators: int
    multiply_adds: float

    @property
    def cycles(self) -> float:
        """Approximate cycles, to find the stage that takes most of the time."""
        terms, moved = self.terms, self.moved
        l2, l3, memory = moved[_FIRST], moved[_SECOND], moved[_MEMORY]
        busy = max(terms["instructions"] / 2, terms["chain"], terms["loads"] / 2, l2 / 48, l3 / 24, memory / 8)
        return float(busy + 4 * terms["calls"] + terms["gathers"])


def traffic_features(kernel: Kernel) -> np.ndarray:
    """Return the columns `NAMES` of one kernel, float32."""
    nests = kernel.nests
    stages = [_stage(nest) for nest in nests]
    counts = kernel.executed or _by_schedule(stages)
    main = int(np.argmax([stage.cycles for stage in stages]))
    values = dict.fromkeys(NAMES, 0.0)
    for stage in stages:
        part = "parallel" if stage.parallel else "serial"
        values[f"{part}_chain"] += stage.terms["chain"]
        for name, amount in zip(MOVED, stage.moved):
            values[f"{part}_{name}"] += amount
        values["multiply_adds"] += stage.multiply_adds
        values["parallel_stages"] += bool(stage.parallel)
        for access, moved in zip(stage.accesses, stage.from_memory):
            values["arguments_from_memory"] += moved * access.argument
            values["stored_to_memory"] += moved * access.written
            size = access.elements * access.item_bytes
            values["packed_bytes"] += size * (access.written and not access.argument and size > _LARGE_BYTES)
    for part, by_class in zip(PARTS, (counts.parallel, counts.serial)):
        values |= {f"{part}_{name}": by_class[name] for name in CLASSES}
    moved, clean = (np.sum(part, axis=0) for part in ([s.moved for s in stages], [s.without_eviction for s in stages]))
    places = [_FIRST, _SECOND]
    values["evicted_l1"], values["evicted_l2"] = moved[places] / np.maximum(clean[places], 1.0)
    values["stages"] = len(stages)
    values |= _of_main(stages[main], nests[main], sum(stage.cycles for stage in stages))
    plain = ((name, float(values[name])) for name in NAMES)
    return np.array([v if name in _PLAIN else math.log2(max(v, 0.0) + 1.0) for name, v in plain], dtype=np.float32)


def _by_schedule(stages: Sequence[_Stage]) -> Executed:
    """Return the executed instructions of a kernel for another device, estimated from its loops."""
    found = {part: dict.fromkeys(CLASSES, 0.0) for part in PARTS}
    for stage in stages:
        counts = found["parallel" if stage.parallel else "serial"]
        for name, term in _OF_SCHEDULE.items():
            counts[name] += stage.terms[term]
    return Executed(found["parallel"], found["serial"], guessed=False)


def _of_main(stage: _Stage, nest: LoopNest, cycles: float) -> dict[str, float]:
    """Return the features of the stage that takes most of the time."""
    instructions = max(stage.terms["instructions"], 1.0)
    steps = [stride * access.item_bytes for access in stage.accesses for stride in access.strides]
    far = [step for step in steps if step >= _LINE_BYTES]
    return {
        "main_share": stage.cycles / max(cycles, 1e-9),
        "main_accumulators": stage.accumulators,
        "main_vector": stage.vector,
        "main_instructions": instructions,
        **{f"main_{name}": moved / instructions for name, moved in zip((*LEVELS, *PAGES), stage.moved)},
        "main_parallel": stage.parallel,
        "main_uneven": math.ceil(stage.parallel / 2) * 2 / stage.parallel if stage.parallel else 2.0,
        "main_stride": max((a.strides[-1] * a.item_bytes for a in stage.accesses if a.strides), default=0),
        "main_aliasing": max((math.gcd(step, _PAGE_BYTES) for step in far), default=1),
    }


def _stage(nest: LoopNest) -> _Stage:
    extents = [loop.extent for loop in nest.loops]
    kinds = [loop.kind for loop in nest.loops]
    iterations = math.prod(extents)
    distinct: dict[tuple[int, tuple[int, ...]], Access] = {}
    for access in nest.accesses:  # a read and a write at one place are one access
        place = access.tensor, access.strides
        written = access.written or (place in distinct and distinct[place].written)
        distinct[place] = dataclasses.replace(access, written=written)
    accesses = list(distinct.values())
    stored = accesses[-1] if accesses[-1].written else next(a for a in accesses if a.written)
    sums = sum((a.tensor, a.strides) == (stored.tensor, stored.strides) for a in nest.accesses) > 1
    vector, vectorized = _vector(nest, accesses, stored)
    instructions = iterations / vector * math.ceil(vector * stored.item_bytes / _VECTOR_BYTES)
    chained = sums and (vectorized < 0 or "vectorized" in kinds or not _unrolled_sums(nest, stored))
    accumulators = _accumulators(nest, stored) if sums else 1
    loads, gathers = _loads(nest, accesses, stored if sums else None, vector, vectorized, accumulators)
    count = nest.operations.get
    # A condition that is the same for all lanes is evaluated outside of the vectorized loop.
    guards = nest.guards if vector == 1 or vectorized in nest.guarded else 0
    divisions = count("div", 0)  # a fraction: divisions hoisted out of inner loops, which are scalar
    evicting, clean = (_moved(nest, accesses, LEVELS, evicts=evicts) for evicts in (True, False))
    pages = _moved(nest, accesses, PAGES, evicts=True).sum(axis=1) / _PAGE_BYTES
    scattered = sum(m for m, a in zip(evicting[_MEMORY], accesses) if _scattered(nest, a))
    return _Stage(
        terms={
            "instructions": instructions,
            "chain": _CHAIN_CYCLES * instructions / accumulators if chained else 0.0,
            "loads": loads,
            "gathers": gathers,
            "calls": float(count("call", 0) * iterations),
            "divisions": math.floor(divisions) * instructions + divisions % 1 * iterations,
            "selects": (count("select", 0) + guards) * instructions,
        },
        moved=np.concatenate([evicting.sum(axis=1), pages, [scattered]]),
        without_eviction=clean.sum(axis=1),
        from_memory=evicting[_MEMORY],
        accesses=accesses,
        parallel=math.prod(n for n, kind in zip(extents, kinds) if kind == "parallel") if "parallel" in kinds else 0,
        vector=vector,
        accumulators=accumulators,
        multiply_adds=count("fma", 0) * instructions if sums else 0.0,
    )


def _moved(nest: LoopNest, accesses: Sequence[Access], levels: Mapping[str, CacheLevel], *, evicts: bool) -> np.ndarray:
    """Return the bytes that each access loads from behind each cache level, shape (levels, accesses).

    Args:
        levels: cache levels, all with the same line length.
        evicts: whether lines in the same set evict each other.
    """
    extents = [loop.extent for loop in nest.loops]
    line = next(iter(levels.values())).line_bytes
    inner = range(len(extents), -1, -1)
    prints = [[_Footprint.of(a, extents[i:], a.strides[i:], line) for a in accesses] for i in inner]
    moved = np.full((len(levels), len(accesses)), float(line))
    for depth, (before, after) in enumerate(zip(prints, prints[1:])):
        extent = extents[len(extents) - 1 - depth]
        touched = sum(one.lines for one in before) * line
        for n, level in enumerate(levels.values()):
            for a, (small, large) in enumerate(zip(before, after)):
                stays = touched <= level.size_bytes and not (evicts and small.overflows(level))
                moved[n, a] *= large.lines / small.lines if stays else extent
    return moved


def _scattered(nest: LoopNest, access: Access) -> bool:
    """Return whether each line is far from the previous one, in more streams than prefetchers follow."""
    streams = 1
    for loop, stride in zip(reversed(nest.loops), reversed(access.strides)):
        if not stride or loop.extent == 1:
            continue
        if stride * access.item_bytes < _SCATTERED_BYTES:
            return streams > _STREAMS
        streams *= loop.extent
    return streams > 1 or access.gathers


def _vector(nest: LoopNest, accesses: Sequence[Access], stored: Access) -> tuple[int, int]:
    """Return the iterations per instruction and the index of their loop; LLVM vectorizes plain copies too."""
    kinds = [loop.kind for loop in nest.loops]
    if not kinds:
        return 1, -1
    if "vectorized" in kinds:
        at = len(kinds) - 1 - kinds[::-1].index("vectorized")
        return max(nest.loops[at].extent, 1), at
    last = len(kinds) - 1 - _unrolled_sums(nest, stored)
    steady = all(access.strides[last] in (0, 1) and not access.gathers for access in accesses)
    if last not in nest.guarded and stored.strides[last] == 1 and steady:
        return max(min(_VECTOR_BYTES // stored.item_bytes, nest.loops[last].extent), 1), last  # a loop may be empty
    return 1, len(kinds) - 1


def _unrolled_sums(nest: LoopNest, stored: Access) -> int:
    """Return how many of the innermost loops form a sum that is short enough to be unrolled.

    Returns:
        0 if the sum is longer, or if there is no loop around it.
    """
    extent = 1
    for inside, (loop, stride) in enumerate(zip(reversed(nest.loops), reversed(stored.strides))):
        if stride:
            return inside if extent <= _UNROLLED_SUM else 0
        if loop.kind not in ("serial", "unrolled"):
            break
        extent *= loop.extent
    return 0


def _accumulators(nest: LoopNest, stored: Access) -> int:
    """Return the number of vectors of independent sums inside the innermost loop that adds up."""
    found = 1
    for loop, stride in zip(reversed(nest.loops), reversed(stored.strides)):
        if stride == 0 and loop.kind == "serial" and loop.extent > 1:
            break
        if loop.kind == "vectorized":
            found *= math.ceil(loop.extent * stored.item_bytes / _VECTOR_BYTES)
        elif stride and loop.kind == "unrolled":
            found *= loop.extent
        elif stride:
            break
    return found


def _loads(
    nest: LoopNest, accesses: Sequence[Access], summed: Access | None, vector: int, vectorized: int, accumulators: int
) -> tuple[float, float]:
    """Return the number of instructions that load or store, and of elements that are gathered one by one."""
    loads = gathers = 0.0
    iterations = math.prod(loop.extent for loop in nest.loops)
    for access in accesses:
        if access is summed and accumulators * min(vector, _LONGEST_VECTOR) <= _MOST_IN_REGISTERS:
            continue
        each = 1.0
        for at, (loop, stride) in enumerate(zip(nest.loops, access.strides)):
            if at == vectorized and vector > 1 and stride == 1:
                whole = loop.kind == "vectorized"
                each *= math.ceil(loop.extent * access.item_bytes / _VECTOR_BYTES) if whole else loop.extent / vector
            elif at == vectorized and vector > 1 and stride > 1:
                gathers += iterations
                each *= loop.extent
            elif at == vectorized and vector > 1 and loop.kind != "vectorized" and at < len(nest.loops) - 1:
                each *= loop.extent / vector  # unrolled sums are inside, so each vector reads again
            elif stride or (loop.kind not in ("vectorized", "unrolled") and at < len(nest.loops) - 1):
                each *= loop.extent
        loads += each
    return loads, gathers
