"""`LaunchModel`: the time of a GPU kernel from its launches, corrected by regressions.

A GPU runs as many blocks at once as its multiprocessors can hold. A launch with few blocks takes as long as one of
their threads, which executes one step after the other. A launch with many blocks takes as long as all warps need the
execution units and the memory. The model adds the two times, because launches with a medium number of blocks contain a
part of both. The time is therefore a sum of amounts, each with a cost that is fitted to measured kernels. (Hong & Kim,
An analytical model for a GPU architecture with memory-level and thread-level parallelism awareness, ISCA 2009,
distinguish the two cases by the number of warps.)
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np

from op_profiler.prediction.latency.features import KINDS
from op_profiler.prediction.latency.launched import WARP, amounts_of
from op_profiler.prediction.latency.query import Query

_CYCLE_US = 5e-4
_START_US = {
    "launch": 1.2,
    "thread_arithmetic": 4 * _CYCLE_US,
    "thread_shared": 10 * _CYCLE_US,
    "thread_fetches": 400 * _CYCLE_US,
    "warps": 2 * _CYCLE_US,
    "issued": _CYCLE_US / 4,
    "integers": _CYCLE_US / 10,
    "functions": 10 * _CYCLE_US,
    "sectors": _CYCLE_US / 5,
    "memory_sectors": 6e-6,
    "bytes": 4e-7,
}
"""Microseconds from which the fit starts: of a launch; of a step of a thread that waits for the previous step; of the
work of a multiprocessor for its warps: starting a warp, an instruction of a warp by class, and a sector of 32 bytes;
and of what all multiprocessors share: a sector from memory, and a byte of the operator's tensors."""
COSTS = tuple(_START_US)
_STEPS = ("thread_arithmetic", "thread_shared", "thread_fetches")
_THREADS_AT_ONCE, _BLOCKS_AT_ONCE, _SHARED_AT_ONCE = 2048, 32, 227 << 10
"""Limits of a multiprocessor since NVIDIA's Volta; some have less shared memory."""
_NEAR = 2.0
"""Prior spread of costs around the start of the fit, on a logarithmic scale."""
_NEAR_OF_KIND = 0.5
"""Prior spread of the costs of a kind around the costs of all kernels, on a logarithmic scale."""
_FEWEST_OF_KIND = 60
_ONE_OFF = 0.3
"""Larger errors, on a logarithmic scale, count less than quadratically (soft L1 loss)."""


@dataclasses.dataclass(frozen=True)
class LaunchModel:
    """Model of kernels on one GPU.

    Attributes:
        multiprocessors: number of multiprocessors of the GPU, an array of shape ().
        log_costs: logarithm of the microseconds of one unit of each term in `COSTS`, shape (len(COSTS),).
        log_costs_of_kinds: logarithms of the costs for kernels of each kind, shape (len(KINDS), len(COSTS)).
    """

    multiprocessors: np.ndarray
    log_costs: np.ndarray
    log_costs_of_kinds: np.ndarray

    threads: ClassVar[np.ndarray] = np.zeros(1, dtype=np.int64)
    """A GPU has no thread counts; see `KernelModel.threads`."""

    @classmethod
    def fit(cls, query: Query, latency_us: np.ndarray, weight: np.ndarray, multiprocessors: int) -> LaunchModel:
        """Fit the costs to measured kernels, one per entry of `query`; kernels with unknown loops are ignored."""
        known = query.has_loops
        asked, times_us, counts = query.take(known), latency_us[known], weight[known]
        amounts = _amounts(asked, multiprocessors)
        start = np.log([*_START_US.values()])
        of_all = _fitted(amounts, times_us, counts, start, _NEAR)
        of_kinds = []
        for kind in range(len(KINDS)):
            mine = asked.kinds == kind
            enough = mine.sum() >= _FEWEST_OF_KIND
            found = _fitted(amounts[mine], times_us[mine], counts[mine], of_all, _NEAR_OF_KIND) if enough else of_all
            of_kinds.append(found)
        return cls(np.array(multiprocessors), of_all, np.array(of_kinds))

    def times_us(self, query: Query) -> np.ndarray:
        """Return two times of each kernel in microseconds: with the costs of all kernels, and with those of its kind.

        Returns:
            Shape (kernels, 2); NaN if the loops are unknown.
        """
        amounts = _amounts(query, int(self.multiprocessors))
        of_kind = (amounts * np.exp(self.log_costs_of_kinds[query.kinds])).sum(axis=1)
        return np.column_stack([amounts @ np.exp(self.log_costs), of_kind])

    def shares(self, query: Query) -> np.ndarray:
        """Return the share of each cost in a kernel's time, shape (kernels, costs); zeros where loops are unknown."""
        times_us = _amounts(query, int(self.multiprocessors)) * np.exp(self.log_costs)
        shares: np.ndarray = np.nan_to_num(times_us / times_us.sum(axis=1, keepdims=True))
        return shares

    def regression_columns(self, query: Query) -> np.ndarray:
        """Return the features of kernels for regressions, float32: those of the launches, and the amounts of work."""
        amounts = np.log2(1e-6 + _amounts(query, int(self.multiprocessors)))
        return np.concatenate([query.loops, amounts], axis=1, dtype=np.float32, casting="same_kind")


def _fitted(
    amounts: np.ndarray, latency_us: np.ndarray, weight: np.ndarray, start: np.ndarray, near: float
) -> np.ndarray:
    """Fit costs to the measured times of kernels.

    Args:
        near: prior standard deviation of the costs around `start`: such a difference counts as much as an error of
            `_ONE_OFF` on one kernel.
    """
    from scipy.optimize import least_squares

    target, root_weight = np.log(latency_us), np.sqrt(weight)

    def off(moved: np.ndarray) -> np.ndarray:
        errors = np.log(amounts @ np.exp(start + moved)) - target
        return np.concatenate([errors * root_weight, moved * (_ONE_OFF / near)])

    def slopes(moved: np.ndarray) -> np.ndarray:
        times_us = amounts * np.exp(start + moved)
        each = times_us / times_us.sum(axis=1, keepdims=True) * root_weight[:, None]
        return np.concatenate([each, np.eye(len(moved)) * (_ONE_OFF / near)])

    found = least_squares(off, np.zeros(len(start)), slopes, loss="soft_l1", f_scale=_ONE_OFF).x
    return np.asarray(start + found)


def _amounts(query: Query, multiprocessors: int) -> np.ndarray:
    """Return the amount of work that each cost is multiplied by, shape (kernels, costs)."""
    of = amounts_of(query.loops)
    blocks, warps = (np.maximum(np.rint(of[name]), 1.0) for name in ("blocks", "warps"))
    at_once = np.minimum(_THREADS_AT_ONCE // (warps * WARP), _SHARED_AT_ONCE // np.maximum(of["shared_bytes"], 1.0))
    rounds = np.ceil(blocks / (multiprocessors * np.clip(at_once, 1.0, _BLOCKS_AT_ONCE)))
    # The multiprocessor with the most blocks determines the time.
    share = np.ceil(blocks / multiprocessors) / blocks
    steps = [of[name] * rounds for name in _STEPS]
    issued = sum(of[f"warps_{name}"] for name in ("arithmetic", "shared", "accesses"))
    busy = [blocks * warps, issued, of["warps_integers"], of["warps_functions"], of["warps_sectors"]]
    shared = [of["warps_sectors"], query.amounts.moved]
    return np.column_stack([of["launches"], *steps, *(amount * share for amount in busy), *shared])
