"""The roofline bound of an operator: Williams, Waterman & Patterson, Roofline (CACM 52(4), 2009)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

_PEAK_QUANTILE = 0.995
_FASTEST_CALLS = 0.01
_MOSTLY_WORK = 20.0
"""Operators that take less than this many call overheads do not count for the attained rates: their time is mostly
overhead."""
_BEYOND_CACHES = 2.0
_LARGE_BYTES = 1 << 26
_FEWEST = 10


@dataclasses.dataclass(frozen=True)
class Work:
    """Work of one call of each operator, one entry per operator: operations, bytes moved, transcendental functions."""

    flops: np.ndarray
    moved: np.ndarray
    functions: np.ndarray


@dataclasses.dataclass(frozen=True)
class Roofline:
    """Rates that a device reaches at each thread count, for arithmetic, memory and transcendental functions.

    A peak is the rate that measured operators reached (a high quantile, so that one wrong time does not determine it),
    or the rate in the measurement of the device's peaks if that is higher: both are at most the real peak, and each may
    be below it. The peak of memory is from operators that move at least twice as many bytes as the last-level cache
    has, because data that stays in a cache is not traffic of the memory. The bound is the longest of three times
    (arithmetic, moving every tensor once, transcendental functions), plus the call overhead. An operator whose tensors
    are in a cache can be faster than this bound; `least_us` takes that into account.

    Attributes:
        threads: thread counts, in ascending order.
        flops_per_us, bytes_per_us, functions_per_us, call_us: one entry per thread count; functions are evaluations of
            exp, erf, tanh and similar functions, which compilers do not vectorize well.
        cached_bytes_per_us: rate of the fastest operators of any size, mostly from caches, one entry per thread count.
        memory_probed: whether `bytes_per_us` is from the measurement of the device's peaks, one entry per thread count.
    """

    threads: np.ndarray
    flops_per_us: np.ndarray
    bytes_per_us: np.ndarray
    functions_per_us: np.ndarray
    call_us: np.ndarray
    memory_probed: np.ndarray
    cached_bytes_per_us: np.ndarray

    @classmethod
    def of(
        cls,
        work: Work,
        threads: np.ndarray,
        latency_us: np.ndarray,
        probed: Mapping[str, Sequence[float]] | None = None,
        cache_bytes: int | None = None,
    ) -> Roofline:
        """Return the rates that measured operators reached, combined with the measured peaks of the device.

        Args:
            work, threads, latency_us: one entry per measured operator.
            probed: the measured peaks (`DeviceName.peaks`); None if they were not measured.
            cache_bytes: size of the last-level cache; None if unknown.
        """
        counts = np.unique(threads)
        rows = []
        for count in counts:
            mine = np.flatnonzero(threads == count)
            call = float(np.quantile(latency_us[mine], _FASTEST_CALLS))
            busy = np.maximum(latency_us[mine] - call, 0.05 * latency_us[mine])
            working = _or_largest(latency_us[mine], _MOSTLY_WORK * call)
            flops, functions = (_peak(amount[mine][working], busy[working]) for amount in (work.flops, work.functions))
            probe = _probe_of(probed, int(count))
            large = work.moved[mine] >= (_LARGE_BYTES if cache_bytes is None else _BEYOND_CACHES * cache_bytes)
            if large.sum() < _FEWEST:  # too few to estimate a rate: use the probe, or all long operators
                large = working if probe["bytes_per_us"] == 0.0 else np.zeros_like(large)
            moved = _peak(work.moved[mine][large], busy[large]) if large.any() else 0.0
            attained = (max(flops, probe["flops_per_us"]), max(moved, probe["bytes_per_us"]), functions, call)
            cached = _peak(work.moved[mine], latency_us[mine])
            rows.append((*attained, float(probe["bytes_per_us"] > moved), max(cached, attained[1])))
        *peaks, from_probe, cached_rate = np.array(rows).reshape(-1, 6).T
        return cls(counts, peaks[0], peaks[1], peaks[2], peaks[3], from_probe.astype(bool), cached_rate)

    def parts_us(self, work: Work, threads: np.ndarray) -> np.ndarray:
        """Return the times of arithmetic, memory traffic and transcendental functions at the rates of the roofline.

        Args:
            threads: thread count of each entry; each must be an element of the attribute `threads`.

        Returns:
            Microseconds, shape (entries, 3).
        """
        at = np.searchsorted(self.threads, threads)
        amounts = (work.flops / self.flops_per_us[at], work.moved / self.bytes_per_us[at])
        return np.stack([*amounts, work.functions / self.functions_per_us[at]], axis=1)

    def least_us(self, work: Work, threads: np.ndarray, cache_bytes: int | None) -> np.ndarray:
        """Return the least time of each operator in microseconds, one entry per operator.

        This is the longer of two times: of its arithmetic, and of moving each tensor once. The tensors move at the rate
        of the memory if they are at least twice as large as the last-level cache, otherwise at the highest rate of any
        operator. Transcendental functions are not counted, because a compiler may compute a power as products. The call
        overhead is not counted, because it may be lower than usual.

        Args:
            cache_bytes: size of the last-level cache. None: unknown, and the rate of the memory is never used.
        """
        at = np.searchsorted(self.threads, threads)
        beyond = work.moved >= (np.inf if cache_bytes is None else _BEYOND_CACHES * cache_bytes)
        rate = np.where(beyond, self.bytes_per_us[at], self.cached_bytes_per_us[at])
        return np.maximum(work.flops / self.flops_per_us[at], work.moved / rate)

    def bound_us(self, work: Work, threads: np.ndarray) -> np.ndarray:
        """Return the roofline bound of each operator in microseconds, with the call overhead.

        Args:
            threads: thread count of each entry; each must be an element of the attribute `threads`.
        """
        at = np.searchsorted(self.threads, threads)
        bound: np.ndarray = self.parts_us(work, threads).max(axis=1) + self.call_us[at]
        return bound


def _probe_of(probed: Mapping[str, Sequence[float]] | None, count: int) -> dict[str, float]:
    """Return the peaks that were measured at a thread count; 0 if none were."""
    names = ("flops_per_us", "bytes_per_us")
    if probed is None or count not in probed["threads"]:
        return dict.fromkeys(names, 0.0)
    at = list(probed["threads"]).index(count)
    return {name: float(probed[name][at]) for name in names}


def _or_largest(values: np.ndarray, least: float) -> np.ndarray:
    """Return the mask of the values from `least` on; of the largest values if these are too few."""
    enough = values >= least
    if enough.sum() < _FEWEST:
        enough = values >= np.sort(values)[-min(_FEWEST, len(values))]
    return enough


def _peak(amount: np.ndarray, busy_us: np.ndarray) -> float:
    """Return the rate that the fastest operators with a positive amount reach, a high quantile; inf, which never limits
    a time, if all amounts are 0."""
    some = amount > 0
    return max(float(np.quantile(amount[some] / busy_us[some], _PEAK_QUANTILE)), 1.0) if some.any() else np.inf
