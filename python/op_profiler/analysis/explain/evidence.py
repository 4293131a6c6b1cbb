"""`Evidence`: times, machine code and limits of one operator, from which its losses are computed."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.analysis.explain.machine_code import KernelCode
from op_profiler.measure.measurement import Cache
from op_profiler.operators.cost import least_flops
from op_profiler.operators.operator import Operator

if TYPE_CHECKING:
    from op_profiler.prediction.schedules.tuning_gain import TunedTime

_DRAWS = 400
_QUIET = 0.1
_MOST = 0.5
_SET_BYTES = 1024
"""Cache lines at a multiple of this distance share at most a quarter of the first cache's sets (64 sets of 64 bytes).
"""
_LIKE_MCA = 4.0
"""Instructions per cycle that are assumed if llvm-mca is missing."""


Interval = tuple[float, float, float]
"""Microseconds, and the ends of their interval."""


@dataclasses.dataclass(frozen=True)
class ProcessorLimits:
    """Peaks and cache sizes of a processor.

    Attributes:
        flops_per_us: peak of arithmetic, by thread count.
        bytes_per_us: peak bandwidth of caches and ``memory``, by level and thread count; levels that were not probed
            are missing.
        cache_bytes: size of one core's caches, by level, as the system reports it.
        lanes: number of 32-bit values in a vector.
        peak_flops_per_cycle: peak of one core, computed by the same model of the processor as `Cycles`.
    """

    flops_per_us: Mapping[int, float]
    bytes_per_us: Mapping[str, Mapping[int, float]]
    cache_bytes: Mapping[str, int]
    lanes: int
    peak_flops_per_cycle: float


@dataclasses.dataclass(frozen=True)
class Cycles:
    """Cycles of one iteration of the hottest loop.

    Attributes:
        now: cycles of the loop as compiled.
        without_spills: cycles with enough registers.
        modelled: True: computed by llvm-mca; False: estimated from the number of instructions.
    """

    now: float
    without_spills: float
    modelled: bool


@dataclasses.dataclass(frozen=True)
class OtherTimes:
    """Times of the operator's anchor under other schedules, in microseconds, with hot caches and at the same thread
    count; None where unknown.

    Attributes:
        best_us: time with the best searched schedule that was measured on machines of this hardware model.
        best_from: template of that schedule; empty without a time.
        vendor: time of the vendor's kernel, with its interval.
        vendor_is_disturbed: whether the vendor's kernel was measured, but only in disturbed rounds.
        searchable: whether a template of this project computes the anchor.
        tuned: predicted result of a search; None if there is no prediction.
        no_gain_reason: reason why there is no prediction for a searchable anchor.
    """

    best_us: float | None = None
    best_from: str = ""
    vendor: Interval | None = None
    vendor_is_disturbed: bool = False
    searchable: bool = False
    tuned: TunedTime | None = None
    no_gain_reason: str = ""


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Times, machine code and limits of one operator of a model.

    Attributes:
        operator: the operator.
        calls: number of calls in the model.
        threads: thread count at which the operator is explained.
        samples: by cache state and thread count, microseconds per call, one per round (mean over the calls).
        limits: peaks and cache sizes of the processor.
        code, cycles: machine code of the kernel, and cycles of its hottest loop; None if the code was not found.
        parallel_loop: number of iterations of its parallel loop; None if unknown.
        others: times of its anchor under other schedules.
        in_chain: whether every other call of the model waits for this operator's calls or precedes them; False also if
            that is unknown.
    """

    operator: Operator
    calls: int
    threads: int
    samples: Mapping[tuple[Cache, int], np.ndarray]
    limits: ProcessorLimits
    code: KernelCode | None = None
    cycles: Cycles | None = None
    parallel_loop: int | None = None
    others: OtherTimes = OtherTimes()
    in_chain: bool = False

    def us(self, cache: Cache, threads: int | None = None) -> float:
        """Return the time in quiet rounds (`quiet_us`), microseconds; `threads` None stands for `self.threads`."""
        return float(quiet_us(self.samples[cache, self.threads if threads is None else threads]))

    def difference_us(self, more: np.ndarray, less: np.ndarray) -> Interval:
        """Return `quiet_us(more) - quiet_us(less)` with a 95 % interval (bootstrap over rounds).

        Args:
            more, less: microseconds of each round; the rounds of both were measured together.
        """
        drawn = np.random.default_rng(0).integers(0, len(more), (_DRAWS, len(more)))
        low, high = np.quantile(quiet_us(more[drawn]) - quiet_us(less[drawn]), [0.025, 0.975])
        apart = float(quiet_us(more) - quiet_us(less))
        return apart, min(float(low), apart), max(float(high), apart)

    @property
    def moved_bytes(self) -> int:
        """Bytes of all tensors, each counted once."""
        return self.operator.bytes_read + self.operator.bytes_written

    @property
    def used_threads(self) -> int:
        """Number of threads that share the operator's work."""
        serial = self.code is not None and not self.code.parallel
        return 1 if serial else min(self.threads, self.parallel_loop or self.threads)

    @property
    def ideal_us(self) -> float:
        """Time of the operator's arithmetic at the peak of one thread, in microseconds."""
        return least_flops(self.operator) / self.limits.flops_per_us[1]

    @property
    def level(self) -> str:
        """The nearest cache level that is large enough for the operator's tensors, over all cores in use; otherwise
        ``memory``."""
        for level, size in self.limits.cache_bytes.items():
            if self.moved_bytes <= size * (self.used_threads if level != "l3" else 1):
                return level
        return "memory"

    def traffic_us(self, threads: int) -> float:
        """Return the microseconds for moving each tensor once from `level`; 0.0 if the level's bandwidth was not
        probed."""
        rates = self.limits.bytes_per_us.get(self.level) or {}
        return self.moved_bytes / rates[threads] if threads in rates else 0.0

    @property
    def bound_us(self) -> float:
        """The longer of two times in microseconds: the operator's arithmetic at the peak of all threads, and moving its
        tensors once from `level`."""
        return max(self.ideal_us / self.threads, self.traffic_us(self.threads))

    @property
    def hot_room_us(self) -> float:
        """Part of one thread's hot time that neither arithmetic at the peak nor traffic explains, in microseconds."""
        return max(self.us("hot", 1) - max(self.ideal_us, self.traffic_us(1)), 0.0)

    @functools.cached_property
    def iterations(self) -> float:
        """Number of iterations of the hottest loop: the operator's work divided by that of one iteration; 0.0 if the
        code was not found."""
        if self.code is None:
            return 0.0
        loop = self.code.hottest
        if loop.flops:
            return least_flops(self.operator) / loop.flops
        return self.operator.bytes_written / sum(loop.stores) if loop.stores else 0.0

    def cycles_us(self, cycles: float) -> float:
        """Return the time of all iterations of the hottest loop on one thread in microseconds.

        Args:
            cycles: cycles of one iteration, at the clock rate at which the peak was probed.
        """
        return self.iterations * cycles * self.limits.peak_flops_per_cycle / self.limits.flops_per_us[1]

    @property
    def code_us(self) -> float:
        """Time of the kernel's instructions on one thread if they never wait for data, in microseconds; `ideal_us` if
        the code was not found."""
        return self.cycles_us(self.cycles.now) if self.cycles is not None else self.ideal_us

    @property
    def stalled_us(self) -> float:
        """Part of the hot time of one thread that its instructions do not explain, in microseconds."""
        return max(self.us("hot", 1) - max(self.code_us, self.ideal_us), 0.0)

    @property
    def far_steps(self) -> tuple[int, ...]:
        """Steps in bytes by which the hottest loop moves through memory from one iteration to the next, only those that
        map to few sets of the first-level cache; empty if the tensors fit into half of this cache."""
        if self.code is None or self.moved_bytes <= self.limits.cache_bytes.get("l1", 0) // 2:
            return ()
        return tuple(step for step in self.code.hottest.far_steps if step % _SET_BYTES == 0)

    @property
    def waits_for_far_memory(self) -> bool:
        """Whether most of the hot time is spent on data beyond the second-level caches."""
        far = self.level not in ("l1", "l2") and not self.far_steps
        return far and self.stalled_us > _MOST * self.us("hot", 1)


def quiet_us(samples: np.ndarray) -> np.ndarray:
    """Return the 10 % quantile of `samples` along the last axis, the axis of the rounds.

    Background load comes and goes, and delays several threads more often than one; quiet rounds are therefore
    comparable between thread counts and cache states.
    """
    return np.asarray(np.quantile(samples, _QUIET, axis=-1))


def counted_cycles(body: tuple[str, ...]) -> float:
    """Estimate the cycles of a loop body at four instructions per cycle, for use if llvm-mca is missing; stalls and
    ports are ignored."""
    return len(body) / _LIKE_MCA


def at_least_zero(interval: Interval, less: float = 0.0) -> Interval:
    """Subtract `less` from each of the three values, and replace negative results by 0.0."""
    middle, low, high = (max(us - less, 0.0) for us in interval)
    return middle, low, high


def at_most(interval: Interval, most: float) -> Interval:
    """Replace each of the three values that exceeds `most` by `most`."""
    middle, low, high = (min(us, most) for us in interval)
    return middle, low, high
