"""`KernelModel`: the time of a kernel from its instructions and data traffic, corrected by regressions.

Arithmetic, loads and the traffic of each cache overlap in time, so the largest of them determines the time; if several
are similar, they overlap only partly. The model is therefore a norm of third order over these parts (Stevens & Klöckner
also use norms: A mechanism for balancing accuracy and scope in cross-machine black-box GPU performance modeling, IJHPCA
34, 2020). The cost of each part cannot be measured separately, so it is fitted to measured kernels, separately at each
thread count: first to all kernels, and from there to those of each kind. Data that the previous calls left in the
caches is not counted as traffic. The overhead of a call grows with the traffic until the kernel is called again,
because its code and arguments are then further away in the memory hierarchy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from op_profiler.prediction.latency.features import KINDS
from op_profiler.prediction.latency.loop_columns import loop_columns
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.traffic import LEVELS, MOVED, NAMES, TERMS, CacheLevel

_INSTRUCTION_US = 1e-4
_START_US = {
    **dict.fromkeys(TERMS, _INSTRUCTION_US),
    **{"chain": 6e-5, "integers": 5e-5, "divisions": 2e-3, "integer_divisions": 4e-3, "gathered": 6e-4},
    **{"exponentials": 5e-3, "functions": 1e-2, "runtime_calls": 1e-2},
    **dict(zip(MOVED, (1e-5, 1e-5, 2e-5, 2e-5, 3e-5, 1e-3, 1e-2, 1e-4))),
}
"""Costs from which the fit starts, in microseconds: a few cycles per instruction, depending on its class."""
COSTS = (*TERMS, *MOVED)
"""Names of the costs of the model, without the costs of the call."""
NO_COST = len(COSTS)
_CALL_US, _COLD_CALL_US, _SPLIT_US = 0.1, 1.0, 1.0
_CALLS = 3
"""Number of costs of the call, which follow the costs of `TERMS` and `MOVED`."""
_LOADS = [TERMS.index(name) for name in ("loads", "scalar_loads")]
_BUSY = [at for at, name in enumerate(TERMS) if name != "chain" and at not in _LOADS]
_GROUPS = [_BUSY, _LOADS, [TERMS.index("chain")], *([at] for at in range(len(TERMS), len(TERMS) + len(MOVED)))]
"""Indices of costs by group: times in one group add up; different groups overlap in time."""
_IN_GROUP = np.array([[float(at in group) for group in _GROUPS] for at in range(len(TERMS) + len(MOVED))])
"""1 where a cost is in a group, shape (costs, groups)."""
_AT = {name: at for at, name in enumerate((*TERMS, *MOVED))}
_SECOND, _LAST = ("past_1m", "past_2m"), "past_32m"
_NOTHING_US = 1e-12
_LARGEST_LOG_COST = 50.0
"""Larger costs that the fit tries are cut to this, because infinity times zero is NaN."""
_MOST_FITTED, _MOST_OF_KIND = 6000, 3000
_FEWEST_OF_KIND = 60
_STEPS = 60
_ONE_OFF = 0.3
"""Larger errors, on a logarithmic scale, count less than quadratically (soft L1 loss)."""
_FARTHEST = 3.0
"""Larger errors are clipped to this: a factor of about twenty."""
_TOGETHER = np.repeat(np.eye(3), (len(TERMS), len(MOVED), _CALLS), axis=0)
"""Directions of the first fit: devices differ in all instructions, in all traffic and in calls before single costs
differ."""
_NEAR_OTHERS = 0.2
"""Prior spread of costs around the mean of other devices, on a logarithmic scale."""
_NEAR = 0.5
"""Prior spread of the costs of a kind around the costs of all kernels, on a logarithmic scale."""


@dataclasses.dataclass(frozen=True)
class KernelModel:
    """Model of kernels on one processor.

    Attributes:
        threads: thread counts, in ascending order.
        log_costs: logarithms of the costs in microseconds: of one unit of each term in `TERMS`, of a byte of each
            traffic in `MOVED`, of a call, of the additional time of a call whose code is in no cache, and of a loop
            that is split over threads; shape (thread counts, len(TERMS) + len(MOVED) + 3).
        log_costs_of_kinds: logarithms of the costs for kernels of each kind; shape (thread counts, len(KINDS), ...).
    """

    threads: np.ndarray
    log_costs: np.ndarray
    log_costs_of_kinds: np.ndarray

    @classmethod
    def fit(
        cls, query: Query, latency_us: np.ndarray, weight: np.ndarray, like: Sequence[tuple[KernelModel, float]] = ()
    ) -> KernelModel:
        """Fit the costs to measured kernels, one per entry of `query`; kernels with unknown loops are ignored.

        Args:
            like: kernel models of other devices, each with its weight; a cost that the measured kernels do not
                determine is taken from these models.
        """
        used = _threads_used(query)
        counts, of_all, of_kinds = np.unique(used), [], []
        for count in counts:
            mine = np.flatnonzero((used == count) & query.has_loops)
            start, apart = _start(like, int(count))
            costs, some = start, _drawn(mine, _MOST_FITTED)
            if len(some) and like:
                costs = _fitted(query, latency_us, weight, some, start, directions=_TOGETHER)
                costs = _fitted(query, latency_us, weight, some, costs, _NEAR_OTHERS)
            elif len(some):
                costs = _fitted(query, latency_us, weight, some, start)
            of_all.append(costs)
            for kind in range(len(KINDS)):
                some = _drawn(mine[query.kinds[mine] == kind], _MOST_OF_KIND)
                first = costs + apart[kind]
                enough = len(some) >= _FEWEST_OF_KIND
                of_kinds.append(_fitted(query, latency_us, weight, some, first, _NEAR) if enough else first)
        return cls(counts, np.array(of_all), np.array(of_kinds).reshape(len(counts), len(KINDS), -1))

    def times_us(self, query: Query) -> np.ndarray:
        """Return two times of each kernel in microseconds: with the costs of all kernels, and with those of its kind.

        For a thread count that was not fitted, as when a part of the kernels is held out, the costs of the nearest
        thread count are used.

        Returns:
            Shape (kernels, 2); NaN if the loops are unknown.
        """
        found = np.full((len(query), 2), np.nan)
        for mine, parts, at in self._by_threads(query):
            found[mine, 0] = parts.time_us(self.log_costs[at])
            found[mine, 1] = parts.time_us(self.log_costs_of_kinds[at, query.kinds[mine]])
        return found

    def regression_columns(self, query: Query) -> np.ndarray:
        """Return the columns of kernels' loops for regressions, float32; see `loop_columns`."""
        return loop_columns(query.loops)

    def shares(self, query: Query) -> np.ndarray:
        """Return the share of each part in a kernel's time, shape (kernels, parts); zeros if the loops are unknown.

        The parts are arithmetic, chains of sums, loads, each of `MOVED`, the call and the splitting of loops. The
        shares are those of the squared parts, because the largest part determines the time.
        """
        found = np.zeros((len(query), len(MOVED) + 5))
        for mine, parts, at in self._by_threads(query):
            found[mine] = parts.shares(self.log_costs[at])
        return found

    def main_costs(self, query: Query) -> np.ndarray:
        """Return for each kernel the index in `COSTS` of the cost that takes half of its time or more.

        The index is `NO_COST` if no cost takes half, if the call takes most of the time, or if the loops are unknown.
        """
        found = np.full(len(query), NO_COST)
        for mine, parts, at in self._by_threads(query):
            times = parts.times_us(self.log_costs[at])
            main = np.argmax(times, axis=1)
            found[mine] = np.where(times.max(axis=1) >= times.sum(axis=1) / 2, main, NO_COST)
        return found

    def _by_threads(self, query: Query) -> Iterator[tuple[np.ndarray, _Parts, int]]:
        """Yield for each thread count the mask of its kernels with known loops, the work of these kernels, and the
        index of the nearest fitted thread count."""
        known, used = query.has_loops, _threads_used(query)
        for count in set(used[known].tolist()):  # np.unique imports numpy.ma, which takes some hundredths of a second
            mine = known & (used == count)
            yield mine, _parts(query.take(mine), count), int(np.argmin(np.abs(self.threads - count)))


@dataclasses.dataclass(frozen=True)
class _Parts:
    """Amounts of work of kernels.

    Attributes:
        parallel, serial: amounts in loops that are split over threads, and in other loops, shape
            (kernels, len(TERMS) + len(MOVED)).
        calls: amounts of the costs of the call, shape (kernels, _CALLS): 1, the coldness of the caches from 0 to 1, and
            the number of loops that are split over threads.
    """

    parallel: np.ndarray
    serial: np.ndarray
    calls: np.ndarray

    def time_us(self, log_costs: np.ndarray) -> np.ndarray:
        """Return times in microseconds, shape (kernels,); costs are of shape (costs,) or (kernels, costs)."""
        costs = np.exp(np.minimum(log_costs, _LARGEST_LOG_COST))
        apart = costs[..., :-_CALLS]
        parallel, serial = (_norm(_overlapping(amounts * apart)) for amounts in (self.parallel, self.serial))
        return np.asarray(parallel + serial + (self.calls * costs[..., -_CALLS:]).sum(axis=1))

    def slopes_us(self, log_costs: np.ndarray) -> np.ndarray:
        """Return the derivative of the time by the logarithm of each cost, in microseconds, shape (kernels, costs).

        `log_costs` are the same for all kernels. By the derivative of a norm, a part counts more if it is a larger
        share of the time.
        """
        costs = np.exp(np.minimum(log_costs, _LARGEST_LOG_COST))
        found = np.zeros((len(self.calls), len(log_costs)))
        for amounts in (self.parallel, self.serial):
            times = amounts * costs[:-_CALLS]
            parts = _overlapping(times)
            counts = (parts / np.maximum(_norm(parts), _NOTHING_US)[:, None]) ** 2
            found[:, :-_CALLS] += times * (counts @ _IN_GROUP.T)
        found[:, -_CALLS:] = self.calls * costs[-_CALLS:]
        return found

    def times_us(self, log_costs: np.ndarray) -> np.ndarray:
        """Return the time of each amount in isolation, then that of the call; shape (kernels, costs - 2)."""
        costs = np.exp(log_costs)
        call_us = (self.calls * costs[-_CALLS:]).sum(axis=1)
        return np.column_stack([(self.parallel + self.serial) * costs[:-_CALLS], call_us])

    def shares(self, log_costs: np.ndarray) -> np.ndarray:
        costs = np.exp(log_costs)
        times = (self.parallel + self.serial) * costs[:-_CALLS]
        call, cold, split = (self.calls * costs[-_CALLS:]).T
        parts = np.column_stack([_overlapping(times), call + cold, split]) ** 2
        shares: np.ndarray = parts / parts.sum(axis=1, keepdims=True)
        return shares


def _start(like: Sequence[tuple[KernelModel, float]], threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the start of the fit at a thread count: means over other devices, or default costs without other devices.

    Each device's costs are those at its thread count nearest to `threads`.

    Returns:
        Logarithms of the costs of all kernels, and the differences from them for the costs of each kind.
    """
    start = np.log([*_START_US.values(), _CALL_US, _COLD_CALL_US, _SPLIT_US])
    if not like:
        return start, np.zeros((len(KINDS), len(start)))
    found = [(one, int(np.argmin(np.abs(one.threads - threads)))) for one, _ in like]
    counts = [count for _, count in like]
    of_all = [one.log_costs[at] for one, at in found]
    apart = [one.log_costs_of_kinds[at] - one.log_costs[at] for one, at in found]
    return np.average(of_all, axis=0, weights=counts), np.average(apart, axis=0, weights=counts)


def _drawn(rows: np.ndarray, most: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(rows)[:most]


def _fitted(
    query: Query,
    latency_us: np.ndarray,
    weight: np.ndarray,
    rows: np.ndarray,
    start: np.ndarray,
    near: float = np.inf,
    directions: np.ndarray | None = None,
) -> np.ndarray:
    """Fit costs to the measured times of some kernels, all at one thread count.

    Args:
        near: prior standard deviation of the costs around `start`: such a difference counts as much as an error of
            `_ONE_OFF` on one kernel.
        directions: directions in which costs change, shape (costs, directions); None to change each cost separately.
    """
    from scipy.optimize import least_squares

    parts = _parts(query.take(rows), int(_threads_used(query)[rows[0]]))
    target, root_weight = np.log(latency_us[rows]), np.sqrt(weight[rows])
    directions = np.eye(len(start)) if directions is None else directions

    def off(moved: np.ndarray) -> np.ndarray:
        log_costs = start + directions @ moved
        errors = np.clip(np.log(parts.time_us(log_costs)) - target, -_FARTHEST, _FARTHEST) * root_weight
        return np.concatenate([errors, moved * (_ONE_OFF / near)])

    def slopes(moved: np.ndarray) -> np.ndarray:
        log_costs = start + directions @ moved
        time_us = parts.time_us(log_costs)
        counts = np.abs(np.log(time_us) - target) < _FARTHEST
        each = parts.slopes_us(log_costs) * (counts * root_weight / time_us)[:, None]
        return np.concatenate([each @ directions, np.eye(len(moved)) * (_ONE_OFF / near)])

    nothing = np.zeros(directions.shape[1])
    loss = {"loss": "soft_l1", "f_scale": _ONE_OFF}
    # Without lsmr, each step decomposes a matrix with one row per kernel.
    found = least_squares(off, nothing, slopes, tr_solver="lsmr", max_nfev=_STEPS, **loss).x
    return np.asarray(start + directions @ found)


def _threads_used(query: Query) -> np.ndarray:
    """Return the thread counts; 1 for a kernel that splits no loop over threads, whose time does not depend on it."""
    return np.where(query.loops[:, NAMES.index("parallel_stages")] == 0, 1, query.threads)


def _norm(parts: np.ndarray) -> np.ndarray:
    """Return the norm of third order over the columns, computed by products because numpy's powers are slow."""
    return np.asarray(np.cbrt((parts * parts * parts).sum(axis=1) + 1e-30))


def _overlapping(times: np.ndarray) -> np.ndarray:
    """Return times by group, shape (kernels, len(_GROUPS)): groups overlap, times inside a group add up.

    The groups are instructions of all classes, loads, chains of sums, and the traffic of each cache.
    """
    return np.asarray(times @ _IN_GROUP)


def _parts(query: Query, threads: int) -> _Parts:
    traffic = query.loops
    width = len(TERMS) + len(MOVED)
    amounts = 2.0 ** traffic[:, : 2 * width].astype(np.float64) - 1.0
    parallel, serial = amounts[:, :width], amounts[:, width:]
    both = parallel + serial
    left = {name: 1.0 - _kept(query, both[:, _AT[name]], LEVELS[name]) for name in _SECOND}
    left |= dict.fromkeys((_LAST, "scattered"), _cold(query.traffic_bytes, LEVELS[_LAST]))
    for name, share in left.items():
        parallel[:, _AT[name]] *= share
        serial[:, _AT[name]] *= share
    blocks = np.maximum(np.round(2.0 ** traffic[:, NAMES.index("main_parallel")].astype(np.float64) - 1.0), 1.0)
    parallel *= (np.ceil(blocks / threads) / blocks)[:, None]
    splits = traffic[:, NAMES.index("parallel_stages")] * (threads > 1)
    cold = _cold(np.minimum(query.between_bytes, query.working_set_bytes), LEVELS[_LAST])
    return _Parts(parallel, serial, np.column_stack([np.ones(len(splits)), cold, splits]))


def _kept(query: Query, fetched: np.ndarray, level: CacheLevel) -> np.ndarray:
    """Return the share of the traffic from behind a second-level cache that is still in it from the previous call.

    A recurrent cell that is called repeatedly finds its weights there. Layers of one shape with different weights are
    also calls of one operator, but they move far more bytes between two calls than this cache holds.
    """
    arguments = 2.0 ** query.loops[:, NAMES.index("arguments_from_memory")].astype(np.float64) - 1.0
    once = np.minimum(arguments / np.maximum(fetched, 1.0), 1.0)
    return np.asarray(once * (1.0 - _cold(query.between_bytes, level)))


def _cold(traffic_bytes: np.ndarray, level: CacheLevel) -> np.ndarray:
    """Return the share of a kernel's data that is no longer in a cache.

    It is half if `traffic_bytes`, the bytes that went through the cache, equals the size of the cache.
    """
    octaves = np.log2(np.maximum(traffic_bytes, 1.0) / level.size_bytes)
    return np.asarray(1 / (1 + np.exp(-octaves)))
