"""Regressions of an operator's time over its roofline bound, on the logarithm of the two.

``mean`` is the mean of the three estimates, as the TFLite latency estimator of Google Summer of Code has it.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from op_profiler.errors import UnknownNameError

REGRESSORS = ("xgboost", "random_forest", "decision_tree", "mean")
_TREES = {
    "max_depth": 7,
    "eta": 0.06,
    "subsample": 0.8,
    "colsample_bytree": 0.5,
    "min_child_weight": 2.0,
    "lambda": 2.0,
    "tree_method": "hist",
    "max_bin": 512,
}
_ROUNDS = 350


class Regressor(Protocol):
    """Fitted once, asked many times."""

    def fit(self, columns: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        """Learn `target` (shape (rows,)) from `columns` (shape (rows, columns))."""

    def predict(self, columns: np.ndarray) -> np.ndarray:
        """Shape (rows,)."""


class Boosted:
    """Gradient-boosted trees (Chen & Guestrin, XGBoost, KDD 2016); also kept in xgboost's own format."""

    def __init__(self, seed: int = 0, rounds: int = _ROUNDS, **parameters: Any) -> None:
        self._parameters = _TREES | {"seed": seed, "verbosity": 0} | parameters
        self._rounds = rounds
        self.booster: Any = None

    def fit(self, columns: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        import xgboost

        data = xgboost.DMatrix(columns, target, weight=weight)
        self.booster = xgboost.train(self._parameters, data, self._rounds)

    def predict(self, columns: np.ndarray) -> np.ndarray:
        return np.asarray(self.booster.inplace_predict(columns), dtype=np.float64)

    def to_bytes(self) -> bytes:
        """In xgboost's binary JSON."""
        return bytes(self.booster.save_raw("ubj"))

    @classmethod
    def from_bytes(cls, content: bytes) -> Boosted:
        """What `to_bytes` wrote; raises xgboost's error for anything else."""
        import xgboost

        found = cls()
        found.booster = xgboost.Booster()
        found.booster.load_model(bytearray(content))
        return found


class _Sklearn:
    """A tree or a forest of scikit-learn."""

    def __init__(self, name: str, seed: int) -> None:
        from sklearn.ensemble import RandomForestRegressor
        from sklearn.tree import DecisionTreeRegressor

        forest = name == "random_forest"
        self.model: Any = (
            RandomForestRegressor(100, min_samples_leaf=1, max_features=0.5, n_jobs=-1, random_state=seed)
            if forest
            else DecisionTreeRegressor(min_samples_leaf=2, random_state=seed)
        )

    def fit(self, columns: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        self.model.fit(columns, target, sample_weight=weight)

    def predict(self, columns: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.predict(columns), dtype=np.float64)


class _Mean:
    """The mean of the latencies that the three estimate."""

    def __init__(self, seed: int) -> None:
        self.parts = [make_regressor(name, seed) for name in REGRESSORS if name != "mean"]

    def fit(self, columns: np.ndarray, target: np.ndarray, weight: np.ndarray) -> None:
        for part in self.parts:
            part.fit(columns, target, weight)

    def predict(self, columns: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.log(np.mean([np.exp(part.predict(columns)) for part in self.parts], axis=0))
        return found


def make_regressor(name: str, seed: int = 0) -> Regressor:
    """One of `REGRESSORS`.

    Raises:
        UnknownNameError: no such regressor.
    """
    if name not in REGRESSORS:
        raise UnknownNameError("regressor", name, REGRESSORS)
    if name == "xgboost":
        return Boosted(seed)
    return _Mean(seed) if name == "mean" else _Sklearn(name, seed)
