"""Experimental design: the most informative operators to measure first on an unknown machine.

The similarity of two operators is the covariance of `op_profiler.prediction.latency.correction`: if a processor is
faster or slower at one operator than predicted, it is so at other operators whose kernels spend their time on the same
work and whose loops do similar work. Each step selects the operator that most reduces the variance of the operators of
networks. This is a greedy I-optimal design (Atkinson, Donev & Tobias, Optimum Experimental Designs, 2007, section 10.6;
for Gaussian processes Seo et al., Gaussian process regression: active data selection and test point rejection, IJCNN
2000). The selection needs no measured times, so it is computed before any machine is known.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from op_profiler.prediction.latency.correction import looped_places, spreads_of
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.gaussian_process import alike
from op_profiler.prediction.latency.kernel_model import KernelModel
from op_profiler.prediction.latency.launch_model import LaunchModel
from op_profiler.prediction.latency.operator_predictor import query_of
from op_profiler.prediction.latency.query import Query

_VARIANCES = (0.02, 0.01, 0.02, 0.01, 0.03, 0.002, 0.02, 0.3)
"""Variances of the parts of the covariance, of logarithms of times: approximately those fitted to the included
processors."""
_NOISE = 0.1
"""Variance of the logarithm of one measurement: more than the fitted 0.03, so that no single measurement dominates."""


def most_informative(
    candidates: Query, wanted: Query, weight: np.ndarray, kernels: KernelModel | LaunchModel, count: int
) -> list[int]:
    """Return the indices of `count` candidates, the most informative first.

    Args:
        candidates, wanted: operators to select from, and operators to predict; all at one thread, with known loops.
        weight: importance of each operator of `wanted`, shape (wanted,).
        kernels: kernel model of any processor, which gives the work that kernels spend their time on.
    """
    spreads = spreads_of(wanted.loops)
    here, there = (looped_places(query, kernels, spreads) for query in (candidates, wanted))
    shared = np.zeros((len(candidates), len(wanted)), dtype=np.float32)
    for variance, one, other in zip(_VARIANCES, here, there, strict=True):
        shared += np.float32(variance) * alike(one, other)
    # Only the covariance columns of selected candidates are needed, so each is computed after its selection.
    own = np.full(len(candidates), sum(_VARIANCES) + _NOISE)
    known = np.zeros((len(candidates), 0))
    open_ = np.ones(len(candidates), dtype=bool)
    chosen: list[int] = []
    for _ in range(min(count, len(candidates))):
        information = np.square(shared) @ weight / own
        best = int(np.argmax(np.where(open_, information, -np.inf)))
        column = sum(v * alike(one, one[[best]])[:, 0] for v, one in zip(_VARIANCES, here, strict=True))
        root = np.sqrt(own[best])
        column = (column - known @ known[best]) / root
        shared -= np.outer(column, shared[best] / root).astype(np.float32)
        own -= column**2
        known = np.column_stack([known, column])
        open_[best] = False
        chosen.append(best)
    return chosen


def of_networks(processors: Iterable[Examples]) -> tuple[Query, np.ndarray]:
    """Return the distinct operators with known loops of each processor's networks, at one thread, and their weights.

    The weight of an operator is the square root of its share of its network's time, so that operators with small shares
    are not ignored.
    """
    queries, weights = [], []
    for examples in processors:
        mine = examples.where(~examples.sampled[examples.model] & (examples.threads == 1))
        spent = mine.latency_us * mine.occurrences
        share = spent / np.bincount(mine.model, spent)[mine.model]
        used, first = np.unique(mine.operator, return_index=True)
        query = query_of(mine).take(first)
        queries.append(query.take(query.has_loops))
        weights.append(np.sqrt(np.bincount(mine.operator, share)[used])[query.has_loops])
    return Query.joined(queries), np.concatenate(weights)
