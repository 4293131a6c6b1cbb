"""Finds the resources for which operators side by side compete, and where tuning the operators together helps."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from op_profiler.cores import siblings
from op_profiler.measure.caches import caches_in_use_bytes
from op_profiler.operators import cost
from op_profiler.operators.operator import Operator
from op_profiler.parallel.planning.plan import Stage

MEMORY, CACHE, UNITS = "memory bandwidth", "cache", "execution units"
GAINS = frozenset({MEMORY, CACHE})
"""Kinds of contention for which tuning together helps: in `benchmarks/results/contended_pairs.json`, every pair with
this contention was significantly faster when tuned together than when tuned in isolation. A test checks this."""

_MEMORY_BOUND = 4.0  # FLOPs per byte; today's cores compute more while they read a byte
_VECTOR = 8  # float32 values in a vector of AVX2


@dataclasses.dataclass(frozen=True)
class SharedParts:
    """Parts of the processor that the cores of a plan share.

    Attributes:
        cache_bytes: total size of the cores' caches; 0 if the system does not report it.
        hyperthreads: whether two of the cores are on one physical core.
    """

    cache_bytes: int
    hyperthreads: bool

    @classmethod
    def of(cls, cores: Sequence[int]) -> SharedParts:
        """Return the parts that the cores with these numbers share on this machine."""
        shared = any(other in siblings(core) for core, other in itertools.permutations(cores, 2))
        return cls(caches_in_use_bytes(cores), shared)

    def contention(self, pair: Sequence[Operator]) -> str | None:
        """Return the resource for which two operators compete.

        `MEMORY` if both are memory-bound and together exceed the caches; `CACHE` if each of them fits into the caches,
        but not both together; `UNITS` if both are heavy, have partly filled vectors, and cores share physical cores;
        None if they do not compete for any of these.
        """
        moved = [one.bytes_read + one.bytes_written for one in pair]
        if self.cache_bytes and sum(moved) > self.cache_bytes:
            if all(one.arithmetic_intensity < _MEMORY_BOUND for one in pair):
                return MEMORY
            if max(moved) <= self.cache_bytes:
                return CACHE
        if self.hyperthreads and all(one.anchor in cost.HEAVY and one.outputs[0].shape[-1] % _VECTOR for one in pair):
            return UNITS
        return None

    def contentions(self, operators: Sequence[Operator], stages: Iterable[Stage]) -> set[str]:
        """Return the kinds of contention among all pairs of operators that run side by side in stages.

        Args:
            operators: operator of each node of the graph.
        """
        found = {
            self.contention([operators[first.node], operators[second.node]])
            for stage in stages
            for one, other in itertools.combinations(stage.groups, 2)
            for first, second in itertools.product(one.steps, other.steps)
        }
        return {kind for kind in found if kind is not None}
