"""Predictors of a convolution's latency that learn from a table of convolutions."""

from op_profiler.predict.library.library_predictor import (
    PREDICTORS,
    LibraryPrediction,
    LibraryPredictor,
    make_predictor,
    without_suspicious,
)

__all__ = ["PREDICTORS", "LibraryPredictor", "LibraryPrediction", "make_predictor", "without_suspicious"]
