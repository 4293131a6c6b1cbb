"""Tree regressors on plain features of a convolution, as in the TFLite estimator, and their mean."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from op_profiler.dataset.formats.format import Convolutions
from op_profiler.errors import needing
from op_profiler.prediction.latency.trees import boost
from op_profiler.prediction.library.library_predictor import LibraryPrediction


class RegressionPredictor:
    """A `LibraryPredictor` whose regressors estimate the logarithm of the latency; it has no intervals.

    Args:
        names: some of ``xgboost``, ``random_forest`` and ``decision_tree``; their estimates are averaged.
    """

    def __init__(self, names: tuple[str, ...], seed: int = 0) -> None:
        self._models = [_model(name, seed) for name in names]

    def fit(self, table: Convolutions) -> None:
        """Fit each regressor to the logarithm of the latency."""
        features, target = _plain_features(table), np.log(table.latency_us)
        for model in self._models:
            model.fit(features, target)

    def predict(self, table: Convolutions) -> LibraryPrediction:
        """Return the mean estimate of the regressors, in microseconds."""
        features = _plain_features(table)
        estimates = [np.exp(model.predict(features)) for model in self._models]
        return LibraryPrediction.without_interval(np.mean(estimates, axis=0))


xgboost = functools.partial(RegressionPredictor, ("xgboost",))
random_forest = functools.partial(RegressionPredictor, ("random_forest",))
decision_tree = functools.partial(RegressionPredictor, ("decision_tree",))
mean = functools.partial(RegressionPredictor, ("decision_tree", "random_forest", "xgboost"))


def _plain_features(table: Convolutions) -> np.ndarray:
    """Return the features, shape (entries, 8): sizes as logarithms, kernel, stride and the two flags unchanged."""
    log = ("batch", "in_channels", "size", "out_channels")
    plain = ("kernel", "stride", "depthwise", "fused")
    columns = [np.log1p(table.column(name)) for name in log] + [table.column(name) for name in plain]
    return np.column_stack(columns).astype(np.float64)


class _DefaultBoosting:
    """Equivalent of `xgboost.XGBRegressor` with default settings: a hundred rounds of `xgboost.train`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._booster: Any = None

    def fit(self, features: np.ndarray, targets: np.ndarray) -> None:
        self._booster = boost(features, targets, {}, 100, self._seed)

    def predict(self, features: np.ndarray) -> np.ndarray:
        return np.asarray(self._booster.inplace_predict(features))


def _model(name: str, seed: int) -> Any:
    """Return a regressor with the default settings of its library, as in the original estimator."""
    if name == "xgboost":
        return _DefaultBoosting(seed)
    with needing("scikit-learn", f"the predictor {name}", extra="predict"):
        from sklearn import ensemble, tree
    if name == "random_forest":
        return ensemble.RandomForestRegressor(random_state=seed, n_jobs=-1)
    return tree.DecisionTreeRegressor(random_state=seed)
