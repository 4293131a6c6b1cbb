"""The built-in predictors of operators."""

from __future__ import annotations

from typing import Any

from op_profiler.prediction.latency.method import Method
from op_profiler.prediction.latency.regression import BoostedTrees, Regressor, SklearnTrees

_SEVERAL = 2
_DIVERSE: dict[str, Any] = {
    "rounds": 90,
    "eta": 0.2,
    "max_depth": 9,
    "colsample_bytree": 0.7,
    "colsample_bynode": 0.4,
    "num_parallel_tree": 2,
}
"""Each node chooses among a random subset of the columns, so that the errors of the trees have less in common. Two
trees per round help as much as twice as many regressions, each of which would add to the prediction time."""


def _boosted(seed: int) -> list[Regressor]:
    return [BoostedTrees(seed)]


def _forest(seed: int) -> list[Regressor]:
    return [SklearnTrees.of("random_forest", seed)]


def _tree(seed: int) -> list[Regressor]:
    return [SklearnTrees.of("decision_tree", seed)]


DEFAULT = Method(
    looks_up=True,
    corrects_samples=True,
    interpolates="where better",
    regressors=lambda seed: [BoostedTrees(seed + number, **_DIVERSE) for number in range(1, _SEVERAL + 1)],
    regressor_types=(BoostedTrees,),
)
LOOKUP = Method(looks_up=True, bounds=False)
INTERPOLATION = Method(interpolates="everywhere")
XGBOOST = Method(regressors=_boosted, regressor_types=(BoostedTrees,))
RANDOM_FOREST = Method(regressors=_forest, regressor_types=(SklearnTrees,))
DECISION_TREE = Method(regressors=_tree, regressor_types=(SklearnTrees,))
MEAN = Method(
    regressors=lambda seed: [*_boosted(seed), *_forest(seed), *_tree(seed)],
    regressor_types=(BoostedTrees, SklearnTrees),
    averages_latencies=True,
)
"""The same combination as in the TFLite latency estimator of Google Summer of Code."""
ROOFLINE = Method()
