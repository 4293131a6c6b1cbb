"""The least time that an operator can take: Williams, Waterman & Patterson, Roofline (CACM 52(4), 2009)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

_PEAK_QUANTILE = 0.995
_FASTEST_CALLS = 0.01


@dataclasses.dataclass(frozen=True)
class Work:
    """What operators do in one call, one an entry: operations, bytes moved, transcendental functions evaluated."""

    flops: np.ndarray
    moved: np.ndarray
    functions: np.ndarray


@dataclasses.dataclass(frozen=True)
class Roofline:
    """What a device attains at each thread count, in arithmetic, memory and transcendental functions.

    The peaks are what measured operators attained (a high quantile, so that one misread time does not set it), or what
    the device's probe attained where that is more: neither can be more than there is, and each may miss it (operators
    may all be small; the probe reads from memory, operators also from caches). A bound is the larger of the time for
    the arithmetic and the time for moving every tensor once, plus what a call costs.

    Attributes:
        threads: thread counts, rising.
        flops_per_us, bytes_per_us, functions_per_us, call_us: one entry a thread count; functions are evaluations of
            exp, erf, tanh and the like, which compilers do not vectorize well.
    """

    threads: np.ndarray
    flops_per_us: np.ndarray
    bytes_per_us: np.ndarray
    functions_per_us: np.ndarray
    call_us: np.ndarray

    @classmethod
    def of(
        cls,
        work: Work,
        threads: np.ndarray,
        latency_us: np.ndarray,
        probed: Mapping[str, Sequence[float]] | None = None,
    ) -> Roofline:
        """From measurements, one an entry, and from the peaks of the device's probe (`DeviceName.peaks`)."""
        counts = np.unique(threads)
        rows = []
        for count in counts:
            mine = threads == count
            call = float(np.quantile(latency_us[mine], _FASTEST_CALLS))
            busy = np.maximum(latency_us[mine] - call, 0.05 * latency_us[mine])
            peaks = [_peak(amount[mine], busy) for amount in (work.flops, work.moved, work.functions)]
            rows.append((*peaks, call))
        found = cls(counts, *np.array(rows).reshape(-1, 4).T)
        if probed is None:
            return found
        larger = {}
        for name in ("flops_per_us", "bytes_per_us"):
            attained = dict(zip(probed["threads"], probed[name]))
            larger[name] = np.maximum(getattr(found, name), [attained.get(int(count), 0.0) for count in counts])
        return dataclasses.replace(found, **larger)

    def parts_us(self, work: Work, threads: np.ndarray) -> np.ndarray:
        """Least time for arithmetic, memory and functions, microseconds, shape (entries, 3).

        Thread counts have to be among `threads`.
        """
        at = np.searchsorted(self.threads, threads)
        amounts = (work.flops / self.flops_per_us[at], work.moved / self.bytes_per_us[at])
        return np.stack([*amounts, work.functions / self.functions_per_us[at]], axis=1)

    def bound_us(self, work: Work, threads: np.ndarray) -> np.ndarray:
        """Microseconds, one entry an operator; thread counts have to be among `threads`."""
        at = np.searchsorted(self.threads, threads)
        bound: np.ndarray = self.parts_us(work, threads).max(axis=1) + self.call_us[at]
        return bound


def _peak(amount: np.ndarray, busy_us: np.ndarray) -> float:
    """What the fastest operators that do any of it attain; a rate that never limits where none does."""
    some = amount > 0
    return max(float(np.quantile(amount[some] / busy_us[some], _PEAK_QUANTILE)), 1.0) if some.any() else np.inf
