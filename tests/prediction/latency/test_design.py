"""What tells most about a machine is measured first."""

from __future__ import annotations

import numpy as np
import pytest

from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency import design
from op_profiler.prediction.latency.correction import looped_places, spreads_of
from op_profiler.prediction.latency.features import KINDS
from op_profiler.prediction.latency.gaussian_process import alike
from op_profiler.prediction.latency.kernel_model import KernelModel
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.traffic import MOVED, TERMS
from op_profiler.prediction.latency.traffic import NAMES as LOOP_NAMES

_COSTS = np.zeros((1, len(KINDS), len(TERMS) + len(MOVED) + 3))
_KERNELS = KernelModel(np.array([1]), _COSTS[:, 0], _COSTS)


def _query(operators: list[Operator], causes: np.ndarray) -> Query:
    loops = 6 + causes @ np.random.default_rng(9).normal(size=(causes.shape[1], len(LOOP_NAMES)))
    return Query.of(operators[: len(causes)], loops=loops.astype(np.float32))


def test_each_that_is_taken_lowers_the_variance_of_what_is_wanted_most(strangers: list[Operator]) -> None:
    rng = np.random.default_rng(0)
    candidates, wanted = (_query(strangers, rng.normal(size=(count, 3))) for count in (30, 20))
    weight = rng.uniform(size=20)
    chosen = design.most_informative(candidates, wanted, weight, _KERNELS, 6)
    assert len(set(chosen)) == 6
    here, there = (looped_places(query, _KERNELS, spreads_of(wanted.loops)) for query in (candidates, wanted))

    def covariance(one: list[np.ndarray], other: list[np.ndarray]) -> np.ndarray:
        return np.sum([v * alike(a, b) for v, a, b in zip(design._VARIANCES, one, other)], axis=0)

    own, shared, prior = covariance(here, here), covariance(here, there), np.diag(covariance(there, there))

    def left(taken: list[int]) -> float:
        inverse = np.linalg.inv(own[np.ix_(taken, taken)] + design._NOISE * np.eye(len(taken)))
        return float(weight @ (prior - np.einsum("ij,ik,kj->j", shared[taken], inverse, shared[taken])))

    for count in range(6):
        others = [at for at in range(30) if at not in chosen[:count]]
        least = min(left([*chosen[:count], at]) for at in others)
        assert left(chosen[: count + 1]) == pytest.approx(least, rel=1e-5)


def test_all_are_taken_where_there_are_no_more(strangers: list[Operator]) -> None:
    few = _query(strangers, np.random.default_rng(1).normal(size=(4, 2)))
    assert sorted(design.most_informative(few, few, np.ones(4), _KERNELS, 10)) == [0, 1, 2, 3]
