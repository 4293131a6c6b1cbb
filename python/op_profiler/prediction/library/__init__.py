"""Predictors of convolution latency that are fitted to a table of convolutions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.registry import Entry, Registry

if TYPE_CHECKING:
    from op_profiler.prediction.library.library_predictor import LibraryPredictorFactory

_HERE = "op_profiler.prediction.library"

PREDICTORS: Registry[LibraryPredictorFactory] = Registry(
    "library_predictors",
    "predictor",
    f"{_HERE}.library_predictor:LibraryPredictorFactory",
    {
        "default": Entry(
            f"{_HERE}.default:DefaultPredictor",
            "the weighted mean of trees on the shape, trees on the neighbours and interpolation",
        ),
        "original": Entry(f"{_HERE}.original:OriginalPredictor", "interpolation in planes, as in TinyNAS"),
        "xgboost": Entry(f"{_HERE}.regressors:xgboost", "gradient boosting with the library's own settings"),
        "random_forest": Entry(f"{_HERE}.regressors:random_forest", "a forest with the library's own settings"),
        "decision_tree": Entry(f"{_HERE}.regressors:decision_tree", "a tree with the library's own settings"),
        "mean": Entry(
            f"{_HERE}.regressors:mean",
            "the mean of xgboost, random_forest and decision_tree, as in the TFLite latency estimator",
        ),
    },
)
