"""Predictors of a convolution's latency that learn from a table of convolutions."""

from op_profiler.predict.library._base import (
    PREDICTORS,
    LibraryPredictor,
    Prediction,
    make_predictor,
    without_suspicious,
)

__all__ = ["PREDICTORS", "LibraryPredictor", "Prediction", "make_predictor", "without_suspicious"]
