"""The least time that an operator can take: Williams, Waterman & Patterson, Roofline (CACM 52(4), 2009)."""

from __future__ import annotations

import dataclasses

import numpy as np

_PEAK_QUANTILE = 0.995
_FASTEST_CALLS = 0.01


@dataclasses.dataclass(frozen=True)
class Roofline:
    """What a device attains at each thread count.

    The peaks are what measured operators attained (a high quantile, so that one misread time does not set it). A bound
    is the larger of the time for the arithmetic and the time for moving every tensor once, plus what a call costs.

    Attributes:
        threads: thread counts, rising.
        flops_per_us, bytes_per_us, call_us: one entry a thread count.
    """

    threads: np.ndarray
    flops_per_us: np.ndarray
    bytes_per_us: np.ndarray
    call_us: np.ndarray

    @classmethod
    def of(cls, flops: np.ndarray, moved: np.ndarray, threads: np.ndarray, latency_us: np.ndarray) -> Roofline:
        """From measurements, one an entry; bytes are `moved`."""
        counts = np.unique(threads)
        rows = []
        for count in counts:
            mine = threads == count
            call = float(np.quantile(latency_us[mine], _FASTEST_CALLS))
            busy = np.maximum(latency_us[mine] - call, 0.05 * latency_us[mine])
            rows.append(
                (
                    max(float(np.quantile(flops[mine] / busy, _PEAK_QUANTILE)), 1.0),
                    max(float(np.quantile(moved[mine] / busy, _PEAK_QUANTILE)), 1.0),
                    call,
                )
            )
        peaks = np.array(rows).reshape(-1, 3)
        return cls(counts, peaks[:, 0], peaks[:, 1], peaks[:, 2])

    def bound_us(self, flops: np.ndarray, moved: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Microseconds, one entry an operator; thread counts have to be among `threads`."""
        at = np.searchsorted(self.threads, threads)
        work = np.maximum(flops / self.flops_per_us[at], moved / self.bytes_per_us[at])
        bound: np.ndarray = work + self.call_us[at]
        return bound
