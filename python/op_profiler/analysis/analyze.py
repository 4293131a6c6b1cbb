"""`analyze`: from a request to the correlations and turnaround points of stored measurements."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.analysis.correlations import Correlation, correlations
from op_profiler.analysis.turnaround import Turnaround, can_turn, turnarounds
from op_profiler.analysis.unswept import TurnaroundPrediction, predict_unswept
from op_profiler.json_text import brief

if TYPE_CHECKING:
    from op_profiler.analysis.table import Factor, FactorTable


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactorAnalysis:
    """Results of an analysis of factors.

    Attributes:
        correlations: one entry for each anchor and factor.
        turnarounds: turnaround points of each factor that can be swept.
        predictions: one entry for each factor that can be swept.
        measurements_not_drawn: number of usable rows that were left out at random (`FactorTable.not_drawn`).
    """

    correlations: list[Correlation]
    turnarounds: list[Turnaround]
    predictions: list[TurnaroundPrediction]
    measurements_not_drawn: int

    __repr__ = brief


def analyze(table: FactorTable, factors: Sequence[Factor], threshold: float) -> FactorAnalysis:
    """Return correlations and turnaround points of factors, from stored measurements.

    Args:
        table: the measurements.
        factors: factors to analyze.
        threshold: share of the latency, 0 to 1; a larger value of a factor pays only if it saves more than this share.

    Raises:
        MissingPackageError: scikit-learn or SciPy is not installed.
    """
    found = correlations(table, [factor.name for factor in factors])
    turned, predicted = [], []
    for name in (factor.name for factor in factors if can_turn(factor)):
        swept = turnarounds(table, name, threshold=threshold)
        turned += swept
        predicted.append(predict_unswept(table, name, swept))
    return FactorAnalysis(
        correlations=found, turnarounds=turned, predictions=predicted, measurements_not_drawn=table.not_drawn
    )
