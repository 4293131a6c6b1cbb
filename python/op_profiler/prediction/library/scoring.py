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
    """Errors of a predictor on one split, relative to the measured latency, as fractions (0.1 is 10 %).

    Attributes:
        split, predictor: names.
        trained, tested: numbers of training entries and of held-out entries.
        mape, median, p90: mean, median and 90th percentile of the absolute error.
        within_10: fraction of the entries with an absolute error of at most 10 %.
        bias: mean signed error; positive if estimates are too long.
        coverage_90: fraction of the entries inside their 90 % interval; None if no entry has an interval.
        unanswered: number of entries without an estimate, which are not counted in the errors.
        seconds: duration of fitting and predicting, seconds.
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
    """Return the errors of a predictor that is fitted to the training part of a split, on the held-out part.

    Raises:
        UnknownNameError: there is no such split or predictor.
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
    """Return the errors of one prediction.

    Args:
        split, predictor, trained, seconds: values of these fields of the result.
    """
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
