"""Trees as arrays say what xgboost says of them."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from op_profiler.lean_imports import load_xgboost
from op_profiler.prediction.latency.trees import Trees

from ...command_line import ROOT

_MANY = 1500


def _boosted(rows: np.ndarray, target: np.ndarray, **parameters: Any) -> Any:
    xgboost = load_xgboost()
    parameters = {"tree_method": "hist", "verbosity": 0, "nthread": 1} | parameters
    return xgboost.train(parameters, xgboost.DMatrix(rows, target), 20)


def _whole_numbers() -> np.ndarray:
    """Rows that stand exactly where nodes part them."""
    return np.random.default_rng(0).integers(-5, 20, (_MANY, 7)).astype(np.float32)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"max_depth": 9, "num_parallel_tree": 3, "subsample": 0.8}, {"max_depth": 1}, {"max_depth": 7, "gamma": 1.0}],
    ids=str,
)
@pytest.mark.parametrize("count", [0, 1, 40, _MANY])
def test_they_say_what_xgboost_says(parameters: dict[str, Any], count: int) -> None:
    rows = _whole_numbers()
    target = rows[:, 0] * rows[:, 1] + np.where(rows[:, 2] > 3, 40.0, rows[:, 3])
    booster = _boosted(rows, target, **parameters)
    expected = booster.inplace_predict(rows[:count]) if count else np.empty(0)
    np.testing.assert_allclose(Trees.of_xgboost(booster).predict(rows[:count]), expected, rtol=1e-5, atol=1e-4)


def test_trees_without_a_branch() -> None:
    rows = _whole_numbers()
    booster = _boosted(rows, np.full(_MANY, 3.25))
    np.testing.assert_allclose(Trees.of_xgboost(booster).predict(rows), booster.inplace_predict(rows), rtol=1e-6)


def test_they_are_kept_as_bytes() -> None:
    rows = _whole_numbers()
    trees = Trees.of_xgboost(_boosted(rows, rows[:, 0] ** 2))
    again = Trees.from_bytes(trees.to_bytes())
    np.testing.assert_array_equal(again.predict(rows), trees.predict(rows))


@pytest.mark.parametrize(
    "change",
    [
        {"columns": np.full(6, -1, dtype=np.int16)},
        {"columns": np.zeros(6)},
        {"columns": np.zeros(5, dtype=np.int16)},
        {"bounds": np.zeros(7, dtype=np.float32)},
        {"leaves": np.zeros((2, 3), dtype=np.float32)},
        {"leaves": np.zeros((2, 4), dtype=object)},
        {"leaves": np.zeros(8, dtype=np.float32)},
        {"start": np.array("none")},
    ],
    ids=lambda change: "-".join(f"{name}-{value.dtype}-{value.shape}" for name, value in change.items()),
)
def test_others_are_refused(change: dict[str, np.ndarray]) -> None:
    whole: dict[str, np.ndarray] = {
        "columns": np.zeros(6, dtype=np.int16),
        "bounds": np.zeros(6, dtype=np.float32),
        "leaves": np.ones((2, 4), dtype=np.float32),
        "start": np.array(1.0),
    }

    def stored(arrays: dict[str, np.ndarray]) -> bytes:
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]  # the stubs take allow_pickle for an array
        return buffer.getvalue()

    assert Trees.from_bytes(stored(whole)).predict(np.zeros((1, 1), dtype=np.float32)) == [3.0]
    with pytest.raises(ValueError):
        Trees.from_bytes(stored(whole | change))


def test_what_ships_answers_without_xgboost() -> None:
    line = (
        "import sys; from op_profiler import Predictor;"
        "from op_profiler.operators.kinds.described import described;"
        "from op_profiler.operators.kinds.products import Dense;"
        "print(Predictor.from_dataset().predict([described(Dense(3, 77, 555))]).tiers(), 'xgboost' in sys.modules)"
    )
    own = {"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"}
    found = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True, env=own).stdout
    assert found.split() == ["['regressed']", "False"]
