"""The roofline bound of an operator: Williams, Waterman & Patterson, Roofline (CACM 52(4), 2009)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

_PEAK_QUANTILE = 0.995
_FASTEST_CALLS = 0.01
_MOSTLY_WORK = 20.0
"""An operator of so many calls' time tells what a device attains; of a shorter one, most is the call."""
_BEYOND_CACHES = 2.0
_LARGE_BYTES = 1 << 26
_FEWEST = 10


@dataclasses.dataclass(frozen=True)
class Work:
    """Work of operators in one call, one entry each: operations, bytes moved, transcendental functions evaluated."""

    flops: np.ndarray
    moved: np.ndarray
    functions: np.ndarray


@dataclasses.dataclass(frozen=True)
class Roofline:
    """Attained rates of a device at each thread count, for arithmetic, memory and transcendental functions.

    The peaks are what measured operators attained (a high quantile, so that one misread time does not set it), or what
    the device's probe attained where that is more: neither can be more than there is, and each may miss it. The peak of
    memory is of operators that move more than the caches hold: what stays in a cache is no traffic of the memory. A
    bound is the larger of the time for the arithmetic and the time for moving every tensor once, plus what a call
    costs; an operator that finds its tensors in a cache can be faster (`least_us` leaves that out).

    Attributes:
        threads: thread counts, rising.
        flops_per_us, bytes_per_us, functions_per_us, call_us: one entry a thread count; functions are evaluations of
            exp, erf, tanh and the like, which compilers do not vectorize well.
        cached_bytes_per_us: what the fastest operators of any size move, mostly from caches, one entry a thread count.
        memory_probed: whether `bytes_per_us` is the probe's, one entry a thread count.
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
        """Return the rates from measurements, one per entry, and from the peaks of the device's probe
        (`DeviceName.peaks`).

        Args:
            cache_bytes: what its last-level cache holds; None where that is not known.
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
            if large.sum() < _FEWEST:  # too few to tell: the probe, or what comes nearest
                large = working if probe["bytes_per_us"] == 0.0 else np.zeros_like(large)
            moved = _peak(work.moved[mine][large], busy[large]) if large.any() else 0.0
            attained = (max(flops, probe["flops_per_us"]), max(moved, probe["bytes_per_us"]), functions, call)
            cached = _peak(work.moved[mine], latency_us[mine])
            rows.append((*attained, float(probe["bytes_per_us"] > moved), max(cached, attained[1])))
        *peaks, from_probe, cached_rate = np.array(rows).reshape(-1, 6).T
        return cls(counts, peaks[0], peaks[1], peaks[2], peaks[3], from_probe.astype(bool), cached_rate)

    def parts_us(self, work: Work, threads: np.ndarray) -> np.ndarray:
        """Least time for arithmetic, memory and functions, microseconds, shape (entries, 3).

        Thread counts have to be among `threads`.
        """
        at = np.searchsorted(self.threads, threads)
        amounts = (work.flops / self.flops_per_us[at], work.moved / self.bytes_per_us[at])
        return np.stack([*amounts, work.functions / self.functions_per_us[at]], axis=1)

    def least_us(self, work: Work, threads: np.ndarray, cache_bytes: int | None) -> np.ndarray:
        """Return the least time in microseconds, one entry per operator: of its arithmetic, and of moving each tensor
        once as fast as any operator did, or from memory if it exceeds the caches. Functions do not count, since some
        powers are products, nor does the call, which may cost less than usual.

        Args:
            cache_bytes: what the last-level cache holds; None where that is not known, and then memory does not count.
        """
        at = np.searchsorted(self.threads, threads)
        beyond = work.moved >= (np.inf if cache_bytes is None else _BEYOND_CACHES * cache_bytes)
        rate = np.where(beyond, self.bytes_per_us[at], self.cached_bytes_per_us[at])
        return np.maximum(work.flops / self.flops_per_us[at], work.moved / rate)

    def bound_us(self, work: Work, threads: np.ndarray) -> np.ndarray:
        """Microseconds, one entry an operator; thread counts have to be among `threads`."""
        at = np.searchsorted(self.threads, threads)
        bound: np.ndarray = self.parts_us(work, threads).max(axis=1) + self.call_us[at]
        return bound


def _probe_of(probed: Mapping[str, Sequence[float]] | None, count: int) -> dict[str, float]:
    """What the probe attained at a thread count; 0 where it was not asked."""
    names = ("flops_per_us", "bytes_per_us")
    if probed is None or count not in probed["threads"]:
        return dict.fromkeys(names, 0.0)
    at = list(probed["threads"]).index(count)
    return {name: float(probed[name][at]) for name in names}


def _or_largest(values: np.ndarray, least: float) -> np.ndarray:
    """Mask of the values from `least` on; of the largest where they are few."""
    enough = values >= least
    if enough.sum() < _FEWEST:
        enough = values >= np.sort(values)[-min(_FEWEST, len(values))]
    return enough


def _peak(amount: np.ndarray, busy_us: np.ndarray) -> float:
    """What the fastest operators that do any of it attain; a rate that never limits where none does."""
    some = amount > 0
    return max(float(np.quantile(amount[some] / busy_us[some], _PEAK_QUANTILE)), 1.0) if some.any() else np.inf
