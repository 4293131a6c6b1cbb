"""Errors of convolution predictors on held-out entries."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from op_profiler.dataset.formats.format import Convolutions
from op_profiler.prediction.library import PREDICTORS
from op_profiler.prediction.library.library_predictor import LibraryPrediction
from op_profiler.prediction.library.splits import held_out


@dataclasses.dataclass(frozen=True)
class Score:
    """Errors relative to the measured latency.

    Attributes:
        mape, median, p90: mean, median and 90th percentile of the absolute error; shares, not per cent.
        within_10: share of the entries within 10 %.
        bias: mean signed error.
        coverage_90: share of the entries inside their 90 % interval; None if none has one.
        unanswered: number of entries without an estimate, which are not counted in the other figures.
        seconds: duration of fitting and predicting.
    """

    split: str
    predictor: str
    trained: int
    tested: int
    mape: float
    median: float
    p90: float
    within_10: float
    bias: float
    coverage_90: float | None
    unanswered: int
    seconds: float


def evaluate(table: Convolutions, split: str, predictor: str, seed: int = 0) -> Score:
    """Fit to the training part of a split and predict the held-out part.

    Raises:
        UnknownNameError: no such split or predictor.
        DatasetError: the table has nothing to hold out.
    """
    mask = held_out(table, split, seed)
    train, test = table.where(~mask), table.where(mask)
    started = time.perf_counter()
    model = PREDICTORS.get(predictor)(seed)
    model.fit(train)
    predicted = model.predict(test)
    return score(test.latency_us, predicted, split, predictor, len(train), time.perf_counter() - started)


def score(
    measured_us: np.ndarray, predicted: LibraryPrediction, split: str, predictor: str, trained: int, seconds: float
) -> Score:
    """Return the figures of one prediction."""
    known = np.isfinite(predicted.latency_us)
    errors = predicted.latency_us[known] / measured_us[known] - 1
    absolute = np.abs(errors) if known.any() else np.array([np.nan])
    bounded = known & np.isfinite(predicted.low_us) & np.isfinite(predicted.high_us)
    inside = (predicted.low_us <= measured_us) & (measured_us <= predicted.high_us)
    return Score(
        split=split,
        predictor=predictor,
        trained=trained,
        tested=len(measured_us),
        mape=float(absolute.mean()),
        median=float(np.median(absolute)),
        p90=float(np.quantile(absolute, 0.9)),
        within_10=float((absolute <= 0.1).mean()),
        bias=float(errors.mean()) if known.any() else float("nan"),
        coverage_90=float(inside[bounded].mean()) if bounded.any() else None,
        unanswered=int((~known).sum()),
        seconds=round(seconds, 1),
    )
