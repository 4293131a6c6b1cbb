"""What every predictor that learns from a table offers."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from op_profiler.dataset.checks import Finding, check_rows
from op_profiler.dataset.formats.format import Convolutions
from op_profiler.errors import UnknownNameError

PREDICTORS = ("default", "original", "xgboost", "random_forest", "decision_tree", "mean")


@dataclasses.dataclass(frozen=True)
class LibraryPrediction:
    """One entry a convolution, microseconds.

    Attributes:
        latency_us: the estimate.
        low_us, high_us: 90 % interval; NaN where the predictor gives none.
    """

    latency_us: np.ndarray
    low_us: np.ndarray
    high_us: np.ndarray

    @classmethod
    def without_interval(cls, latency_us: np.ndarray) -> LibraryPrediction:
        """For predictors that do not know how far off they are."""
        unknown = np.full(len(latency_us), np.nan)
        return cls(latency_us, unknown, unknown)


def without_suspicious(table: Convolutions) -> tuple[Convolutions, list[Finding]]:
    """What can be learned from, and what looks wrong; see `op_profiler.dataset.checks`."""
    from op_profiler.predict.library.neighbours import work_of

    flops, moved = work_of(table)
    identity = np.unique(table.matrix, axis=0, return_inverse=True)[1].ravel()
    findings = check_rows(flops, moved, table.latency_us, identity)
    usable = np.ones(len(table), dtype=bool)
    usable[[finding.row for finding in findings]] = False
    return table.where(usable), findings


class LibraryPredictor(Protocol):
    """Fitted once, asked many times."""

    def fit(self, table: Convolutions) -> None:
        """Learn from the entries, all of which have a time."""

    def predict(self, table: Convolutions) -> LibraryPrediction:
        """Estimates, in the order of the entries."""


def make_predictor(name: str, seed: int = 0) -> LibraryPredictor:
    """A predictor that has not learned anything yet.

    Raises:
        UnknownNameError: not one of `PREDICTORS`.
    """
    if name not in PREDICTORS:
        raise UnknownNameError("predictor", name, PREDICTORS)
    if name == "default":
        from op_profiler.predict.library.default import DefaultPredictor

        return DefaultPredictor(seed)
    if name == "original":
        from op_profiler.predict.library.original import OriginalPredictor

        return OriginalPredictor()
    from op_profiler.predict.library.regressors import RegressionPredictor

    return RegressionPredictor(name, seed)
