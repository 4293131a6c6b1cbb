"""The time that a kernel takes, from what its loops do and what they move: a base for regressions.

Arithmetic, loads and what each cache hands on overlap, so the largest of them decides; where several are close, none
hides the other wholly. That is a norm of high order over the parts (as in Stevens & Klöckner, A mechanism for balancing
accuracy and scope in cross-machine black-box GPU performance modeling, IJHPCA 34, 2020). What cannot be measured apart,
the cost of each part, is fitted to measured kernels, at each thread count by itself.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from op_profiler.predict.latency.traffic import LEVELS, MOVED, NAMES, TERMS

_NORM = 3.0
_START_US = (1.5e-4, 6e-5, 1.5e-4, 1e-4, 3e-4, 3e-3, 2e-3, 3e-4, 1e-5, 2e-5, 3e-5, 1e-4)
"""Of each of `TERMS` and `MOVED`: where the fit begins."""
_CALL_US, _SPLIT_US = 0.3, 1.0
_ADDED = [TERMS.index(name) for name in ("scalar_loads", "gathers", "calls", "divisions", "selects")]
_AT = {name: at for at, name in enumerate((*TERMS, *MOVED))}
_LEAST = 0.1
_MOST_FITTED = 1500
_STEPS = 25


@dataclasses.dataclass(frozen=True)
class KernelModel:
    """Fitted to one device.

    Attributes:
        threads: thread counts, rising.
        log_costs: logarithms of microseconds for one of each of `TERMS` and a byte of each of `MOVED`, for a call, and
            for a loop that is split over threads; shape (thread counts, terms + levels + 2).
    """

    threads: np.ndarray
    log_costs: np.ndarray

    @classmethod
    def fit(
        cls, traffic: np.ndarray, threads: np.ndarray, around: np.ndarray, latency_us: np.ndarray, weight: np.ndarray
    ) -> KernelModel:
        """From measured kernels.

        Args:
            traffic: `traffic_features`, shape (kernels, columns); rows of NaN are left out.
            around: bytes that the network moves between two calls of each kernel.
        """
        from scipy.optimize import least_squares

        start = np.log([*_START_US, _CALL_US, _SPLIT_US])
        counts, rows = np.unique(threads), []
        for count in counts:
            mine = np.flatnonzero((threads == count) & np.isfinite(traffic).all(axis=1))
            mine = np.random.default_rng(0).permutation(mine)[:_MOST_FITTED]
            parts = _parts(traffic[mine], int(count), around[mine])
            off = functools.partial(_off, parts, np.log(latency_us[mine]), np.sqrt(weight[mine]))
            rows.append(
                least_squares(off, start, loss="soft_l1", f_scale=0.3, max_nfev=_STEPS).x if len(mine) else start
            )
        return cls(counts, np.array(rows))

    def time_us(self, traffic: np.ndarray, threads: np.ndarray, around: np.ndarray) -> np.ndarray:
        """Microseconds, one entry a kernel; NaN where `traffic` is.

        A thread count that was not fitted, as happens where a part of the kernels is held out, has the costs of the one
        that comes nearest.
        """
        found = np.full(len(traffic), np.nan)
        known = np.isfinite(traffic).all(axis=1)
        for count in np.unique(threads):
            costs = self.log_costs[np.argmin(np.abs(self.threads - count))]
            mine = np.flatnonzero(known & (threads == count))
            found[mine] = _parts(traffic[mine], int(count), around[mine]).time_us(costs)
        return found


@dataclasses.dataclass(frozen=True)
class _Parts:
    """Amounts of kernels: in loops over threads and in others, shape (kernels, terms + levels)."""

    parallel: np.ndarray
    serial: np.ndarray
    splits: np.ndarray

    def time_us(self, log_costs: np.ndarray) -> np.ndarray:
        costs = np.exp(log_costs)
        apart = costs[: len(TERMS) + len(MOVED)]
        found: np.ndarray = _norm(self.parallel * apart) + _norm(self.serial * apart)
        return found + costs[-2] + costs[-1] * self.splits


def _off(parts: _Parts, target: np.ndarray, root_weight: np.ndarray, log_costs: np.ndarray) -> np.ndarray:
    """Weighted errors of kernels; those that are far off count no more than a factor of twenty."""
    found: np.ndarray = np.clip(np.log(parts.time_us(log_costs)) - target, -3.0, 3.0) * root_weight
    return found


def _norm(times: np.ndarray) -> np.ndarray:
    """Instructions of all sorts add up; chains of sums, loads and each cache go on beside them."""
    busy = times[:, 0] + times[:, _ADDED].sum(axis=1)
    beside = times[:, [TERMS.index("chain"), TERMS.index("loads"), *range(len(TERMS), times.shape[1])]]
    found: np.ndarray = (busy**_NORM + (beside**_NORM).sum(axis=1) + 1e-30) ** (1 / _NORM)
    return found


def _parts(traffic: np.ndarray, threads: int, around: np.ndarray) -> _Parts:
    width = len(TERMS) + len(MOVED)
    amounts = 2.0 ** traffic[:, : 2 * width].astype(np.float64) - 1.0
    parallel, serial = amounts[:, :width], amounts[:, width:]
    blocks = np.maximum(np.round(2.0 ** traffic[:, NAMES.index("main_parallel")].astype(np.float64) - 1.0), 1.0)
    parallel *= (np.ceil(blocks / threads) / blocks)[:, None]
    for part in (parallel, serial):
        part[:, _AT["from_memory"]] *= _cold(around, LEVELS[-1].size_bytes)
        part[:, _AT["scattered"]] *= _cold(around, LEVELS[-1].size_bytes)
    # What the second cache has to fetch once is still there where little was moved since the call before.
    arguments = 2.0 ** traffic[:, NAMES.index("arguments_from_memory")].astype(np.float64) - 1.0
    fetched = parallel[:, _AT["from_l3"]] + serial[:, _AT["from_l3"]]
    kept = np.minimum(arguments / np.maximum(fetched, 1.0), 1.0) * (1.0 - _cold(around, LEVELS[1].size_bytes))
    for part in (parallel, serial):
        part[:, _AT["from_l3"]] *= 1.0 - kept
    splits = traffic[:, NAMES.index("parallel_stages")] * (threads > 1)
    return _Parts(parallel, serial, splits)


def _cold(around: np.ndarray, size_bytes: int) -> np.ndarray:
    """Which part of what a kernel needs is no longer in a cache, by what goes through it between two calls."""
    octaves = np.log2(np.maximum(around, 1.0) / size_bytes)
    found: np.ndarray = _LEAST + (1 - _LEAST) / (1 + np.exp(-octaves))
    return found
