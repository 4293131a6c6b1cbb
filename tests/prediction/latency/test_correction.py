"""What a new device changes follows what the loops of its operators do."""

from __future__ import annotations

import numpy as np
import pytest

from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency.correction import Correction
from op_profiler.prediction.latency.features import KINDS
from op_profiler.prediction.latency.kernel_model import KernelModel
from op_profiler.prediction.latency.operator_predictor import OperatorPredictor
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.traffic import MOVED, TERMS
from op_profiler.prediction.latency.traffic import NAMES as LOOP_NAMES

_LEARNED, _ASKED = 120, 60
_CAUSES = 4


@pytest.fixture(scope="module")
def alike(strangers: list[Operator]) -> tuple[Query, np.ndarray, KernelModel]:
    """Four things decide what the loops do, and one of them how much slower the new device is."""
    rng = np.random.default_rng(0)
    causes = rng.normal(size=(_LEARNED + _ASKED, _CAUSES))
    loops = 6 + causes @ rng.normal(size=(_CAUSES, len(LOOP_NAMES)))
    loops[:, 7] = 1.0  # the same everywhere: no distance may follow from it
    query = Query.of(strangers[: len(causes)], loops=loops.astype(np.float32))
    costs = np.zeros((1, len(KINDS), len(TERMS) + len(MOVED) + 3))
    return query, 0.5 + 0.4 * causes[:, 0], KernelModel(np.array([1]), costs[:, 0], costs)


def test_operators_with_loops_alike_are_off_alike(
    predictor: OperatorPredictor, alike: tuple[Query, np.ndarray, KernelModel]
) -> None:
    query, off, kernels = alike
    first, others = np.arange(_LEARNED), np.arange(_LEARNED, len(query))
    correction = Correction.fit(
        1.0,
        query.take(first),
        (off[first], np.full(_LEARNED, 0.5)),
        np.ones(_LEARNED),
        predictor.base.roofline,
        kernels,
    )
    said = correction.predict(query.take(others), predictor.base.roofline, kernels)
    assert np.sqrt(np.mean((said - off[others]) ** 2)) < 0.3 * off.std()
    unknown = correction.predict(query.take(others).without_loops(), predictor.base.roofline, kernels)
    assert np.abs(unknown - 0.5).max() < 0.1


def test_half_of_what_held_out_measurements_are_off_by_is_added(
    predictor: OperatorPredictor, alike: tuple[Query, np.ndarray, KernelModel]
) -> None:
    query, off, kernels = alike
    first, others = np.arange(_LEARNED), np.arange(_LEARNED, len(query))
    correction, left = Correction.of_held_out(query.take(first), off[first], np.ones(_LEARNED), kernels)
    said = correction.predict(query.take(others), predictor.base.roofline, kernels)
    assert np.abs(said - off[others] / 2).mean() < 0.3 * off.std()
    assert np.abs(left - off[first] / 2).mean() < 0.3 * off.std(), "each is told by the others"
    unknown = correction.predict(query.take(others).without_loops(), predictor.base.roofline, kernels)
    assert (unknown == 0).all()
