"""The time that a kernel takes, from what its loops do and what they move: a base for regressions.

Arithmetic, loads and what each cache hands on overlap, so the largest of them decides; where several are close, none
hides the other wholly. That is a norm of high order over the parts (as in Stevens & Klöckner, A mechanism for balancing
accuracy and scope in cross-machine black-box GPU performance modeling, IJHPCA 34, 2020). What cannot be measured apart,
the cost of each part, is fitted to measured kernels, at each thread count by itself. What the calls around a kernel
leave in the caches is not fetched again.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from op_profiler.predict.latency.query import Query
from op_profiler.predict.latency.traffic import LEVELS, MOVED, NAMES, TERMS, CacheLevel

_NORM = 3.0
_START_US = (1.5e-4, 6e-5, 1.5e-4, 1e-4, 3e-4, 3e-3, 2e-3, 3e-4, 1e-3, 1e-5, 2e-5, 3e-5, 1e-4)
"""Of each of `TERMS` and `MOVED`: where the fit begins."""
_CALL_US, _SPLIT_US = 0.3, 1.0
_ADDED = [TERMS.index(name) for name in ("scalar_loads", "gathers", "calls", "divisions", "selects", "odd_lanes")]
_BESIDE = [TERMS.index("chain"), TERMS.index("loads"), *range(len(TERMS), len(TERMS) + len(MOVED))]
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
            for a loop that is split over threads; shape (thread counts, len(TERMS) + len(MOVED) + 2).
    """

    threads: np.ndarray
    log_costs: np.ndarray

    @classmethod
    def fit(cls, query: Query, latency_us: np.ndarray, weight: np.ndarray) -> KernelModel:
        """From measured kernels, one an entry of `query`; those whose loops are not known are left out."""
        from scipy.optimize import least_squares

        start = np.log([*_START_US, _CALL_US, _SPLIT_US])
        counts, rows = np.unique(query.threads), []
        for count in counts:
            mine = np.flatnonzero((query.threads == count) & query.has_loops)
            mine = np.random.default_rng(0).permutation(mine)[:_MOST_FITTED]
            parts = _parts(query.take(mine), int(count))
            off = functools.partial(_off, parts, np.log(latency_us[mine]), np.sqrt(weight[mine]))
            rows.append(
                least_squares(off, start, loss="soft_l1", f_scale=0.3, max_nfev=_STEPS).x if len(mine) else start
            )
        return cls(counts, np.array(rows))

    def time_us(self, query: Query) -> np.ndarray:
        """Microseconds, one entry a kernel; NaN where its loops are not known.

        A thread count that was not fitted, as happens where a part of the kernels is held out, has the costs of the one
        that comes nearest.
        """
        found = np.full(len(query), np.nan)
        for count in np.unique(query.threads):
            costs = self.log_costs[np.argmin(np.abs(self.threads - count))]
            mine = np.flatnonzero(query.has_loops & (query.threads == count))
            found[mine] = _parts(query.take(mine), int(count)).time_us(costs)
        return found

    def shares(self, query: Query) -> np.ndarray:
        """What the time of each kernel goes into: arithmetic, chains of sums, loads, each of `MOVED`, the call and the
        splitting of loops; shape (kernels, parts). Their squares, since the largest decides. Zeros where the loops are
        not known."""
        found = np.zeros((len(query), len(MOVED) + 5))
        for count in np.unique(query.threads):
            costs = self.log_costs[np.argmin(np.abs(self.threads - count))]
            mine = np.flatnonzero(query.has_loops & (query.threads == count))
            found[mine] = _parts(query.take(mine), int(count)).shares(costs)
        return found


@dataclasses.dataclass(frozen=True)
class _Parts:
    """Amounts of kernels: in loops over threads and in others, shape (kernels, len(TERMS) + len(MOVED))."""

    parallel: np.ndarray
    serial: np.ndarray
    splits: np.ndarray

    def time_us(self, log_costs: np.ndarray) -> np.ndarray:
        costs = np.exp(log_costs)
        apart = costs[: len(TERMS) + len(MOVED)]
        found: np.ndarray = _norm(self.parallel * apart) + _norm(self.serial * apart)
        return found + costs[-2] + costs[-1] * self.splits

    def shares(self, log_costs: np.ndarray) -> np.ndarray:
        costs = np.exp(log_costs)
        times = (self.parallel + self.serial) * costs[: len(TERMS) + len(MOVED)]
        called = np.full(len(times), costs[-2])
        parts = np.column_stack([_busy(times), times[:, _BESIDE], called, costs[-1] * self.splits]) ** 2
        shares: np.ndarray = parts / parts.sum(axis=1, keepdims=True)
        return shares


def _off(parts: _Parts, target: np.ndarray, root_weight: np.ndarray, log_costs: np.ndarray) -> np.ndarray:
    """Weighted errors of kernels; those that are far off count no more than a factor of twenty."""
    found: np.ndarray = np.clip(np.log(parts.time_us(log_costs)) - target, -3.0, 3.0) * root_weight
    return found


def _norm(times: np.ndarray) -> np.ndarray:
    """Instructions of all sorts add up; chains of sums, loads and each cache go on beside them."""
    busy, beside = _busy(times), times[:, _BESIDE]
    with np.errstate(over="ignore"):  # costs that a fit tries: they are far off, however far
        found: np.ndarray = (busy**_NORM + (beside**_NORM).sum(axis=1) + 1e-30) ** (1 / _NORM)
    return found


def _busy(times: np.ndarray) -> np.ndarray:
    added: np.ndarray = times[:, 0] + times[:, _ADDED].sum(axis=1)
    return added


def _parts(query: Query, threads: int) -> _Parts:
    traffic = query.loops
    width = len(TERMS) + len(MOVED)
    amounts = 2.0 ** traffic[:, : 2 * width].astype(np.float64) - 1.0
    parallel, serial = amounts[:, :width], amounts[:, width:]
    for part in (parallel, serial):
        part[:, _AT["from_l3"]] *= 1.0 - _kept(query, parallel[:, _AT["from_l3"]] + serial[:, _AT["from_l3"]])
        for name in ("from_memory", "scattered"):
            part[:, _AT[name]] *= _cold(query.traffic_bytes, LEVELS[-1])
    blocks = np.maximum(np.round(2.0 ** traffic[:, NAMES.index("main_parallel")].astype(np.float64) - 1.0), 1.0)
    parallel *= (np.ceil(blocks / threads) / blocks)[:, None]
    splits = traffic[:, NAMES.index("parallel_stages")] * (threads > 1)
    return _Parts(parallel, serial, splits)


def _kept(query: Query, fetched: np.ndarray) -> np.ndarray:
    """Which part of what comes from behind the second cache is still in it from the call before.

    A cell that is called again and again finds its weights there. Layers of one shape with weights of their own count
    as calls of one operator too; what they move between two calls is far more than this cache holds.
    """
    arguments = 2.0 ** query.loops[:, NAMES.index("arguments_from_memory")].astype(np.float64) - 1.0
    once = np.minimum(arguments / np.maximum(fetched, 1.0), 1.0)
    return np.asarray(once * (1.0 - _cold(query.between_bytes, LEVELS[1])))


def _cold(around: np.ndarray, level: CacheLevel) -> np.ndarray:
    """Which part of what a kernel needs is no longer in a cache, by the bytes that went through it."""
    octaves = np.log2(np.maximum(around, 1.0) / level.size_bytes)
    found: np.ndarray = _LEAST + (1 - _LEAST) / (1 + np.exp(-octaves))
    return found
