"""`LibraryPredictor`: the contract of a predictor that is fitted to a table of convolutions."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from op_profiler.dataset.checks import Finding, check_rows
from op_profiler.dataset.formats.format import Convolutions
from op_profiler.prediction.library.neighbours import work_of


@dataclasses.dataclass(frozen=True)
class LibraryPrediction:
    """Predictions in microseconds, one entry per convolution.

    Attributes:
        latency_us: the estimate.
        low_us, high_us: 90 % interval; NaN if the predictor has none.
    """

    latency_us: np.ndarray
    low_us: np.ndarray
    high_us: np.ndarray

    @classmethod
    def without_interval(cls, latency_us: np.ndarray) -> LibraryPrediction:
        """Return a prediction whose intervals are NaN."""
        unknown = np.full(len(latency_us), np.nan)
        return cls(latency_us, unknown, unknown)


def without_suspicious(table: Convolutions) -> tuple[Convolutions, list[Finding]]:
    """Return the entries with a plausible time, and the findings about the other entries.

    `op_profiler.dataset.checks` describes the findings.
    """
    flops, moved = work_of(table)
    identity = np.unique(table.matrix, axis=0, return_inverse=True)[1].ravel()
    findings = check_rows(flops, moved, table.latency_us, identity)
    usable = np.ones(len(table), dtype=bool)
    usable[[finding.row for finding in findings]] = False
    return table.where(usable), findings


class LibraryPredictor(Protocol):
    """A predictor of convolutions: fitted once, then used for any number of predictions."""

    def fit(self, table: Convolutions) -> None:
        """Fit the predictor to a table whose entries all have a time."""

    def predict(self, table: Convolutions) -> LibraryPrediction:
        """Return an estimate for each entry of the table, in the order of the entries."""


class LibraryPredictorFactory(Protocol):
    """A function or class that creates a predictor which is not fitted yet."""

    def __call__(self, seed: int = 0) -> LibraryPredictor:
        """Return a predictor; the same seed and the same table give the same estimates."""
