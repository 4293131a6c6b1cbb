"""Prediction intervals: locally weighted conformal prediction.

Errors of held-out operators are computed on a logarithmic scale. A small model predicts the expected size of an
operator's error; the interval is this size times a quantile of error over expected error (Papadopoulos et al.,
Normalized nonconformity measures, 2008; Lei et al., Distribution-free predictive inference for regression, JASA 113,
2018, section 5.2).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.regression import BoostedTrees

COVERAGE = 0.9
WITHOUT_LOOPS = "regressed without loops"
"""Source of an estimate: a regression for an operator whose loops are unknown, for example without TVM."""
IN_NO_NETWORK = "regressed of no network"
"""Source of an estimate: a regression for an operator that is unlike all operators of measured networks."""
_ABOVE_LEAST = 0.99
_NO_ESTIMATE = ("bound", "unsupported")
_SMALLEST_ERROR = 0.003
_FEWEST_ERRORS = 20
_SCALE: dict[str, Any] = {"rounds": 30, "max_depth": 6, "min_child_weight": 20.0}
NOT_HELD = -1
"""`HeldOutErrors.fold` of entries that were never held out."""


@dataclasses.dataclass(frozen=True)
class HeldOutErrors:
    """Errors of estimates for held-out models, one per entry of a query.

    Attributes:
        by_source: log(estimate over measured) by source; NaN where the source has no estimate.
        fold: number of the fold in which an entry was held out; all entries of a family of models are in one fold.
        weight: weight of each entry, larger for operators that take more of the time of their network.
    """

    by_source: dict[str, np.ndarray]
    fold: np.ndarray
    weight: np.ndarray


@dataclasses.dataclass
class Spread:
    """Distribution of the errors of estimates on a device.

    Attributes:
        scale: predicts the logarithm of the size of an error from `Base.all_columns`; None if too little was held out.
        quantiles: quantile of error over expected error, by source and for `WITHOUT_LOOPS` and `IN_NO_NETWORK`.
        typical_above_bound: median of log(time over roofline bound).
        bound_width: half-width around `typical_above_bound` that covers 90 % of the measurements; all intervals have
            this half-width if `scale` is None.
        fastest: lower limit of log(time over `Roofline.least_us`).
    """

    scale: BoostedTrees | None
    quantiles: dict[str, float]
    typical_above_bound: float
    bound_width: float
    fastest: float

    def least_us(self, of_roofline: np.ndarray) -> np.ndarray:
        """Return the least time of operators on this device, computed from `of_roofline` (`Roofline.least_us`)."""
        return np.asarray(of_roofline * np.exp(self.fastest))

    def widened(self, factor: float) -> Spread:
        """Return the same spread with the half-widths of all estimates multiplied by a factor."""
        quantiles = {name: factor * quantile for name, quantile in self.quantiles.items()}
        return dataclasses.replace(self, quantiles=quantiles)

    def half_width(
        self, query: Query, columns: np.ndarray, tiers: str | np.ndarray, in_no_network: bool | np.ndarray = False
    ) -> np.ndarray:
        """Return half of the interval of each entry, on a logarithmic scale; NaN without an estimate.

        Args:
            columns: `Base.all_columns` of the entries.
            tiers: source of the estimate of all entries, or of each entry.
            in_no_network: whether all entries, or each entry, are unlike all operators of measured networks.
        """
        names = np.broadcast_to(np.asarray(tiers), (len(query),))
        if self.scale is None:
            return np.where(np.isin(names, _NO_ESTIMATE), np.nan, self.bound_width)
        if IN_NO_NETWORK in self.quantiles:
            names = np.where((names == "regressed") & in_no_network, IN_NO_NETWORK, names)
        names = np.where((names == "regressed") & ~query.has_loops, WITHOUT_LOOPS, names)
        found = np.full(len(query), np.nan)
        for name in set(names.tolist()).difference(_NO_ESTIMATE):
            found[names == name] = self.quantiles[name]
        # One call for all sources: trees take about as long for few entries as for many.
        return np.asarray(found * np.exp(self.scale.predict(columns)))

    @classmethod
    def of(
        cls,
        query: Query,
        columns_of: Callable[[Query], np.ndarray],
        errors: HeldOutErrors,
        above_bound: np.ndarray,
        above_least: np.ndarray,
        in_no_network: np.ndarray,
    ) -> tuple[Spread, np.ndarray]:
        """Return the spread that is fitted to the errors of held-out operators, and half-widths to calibrate sums.

        The quantiles are those of errors over expected errors of a scale that was fitted to the other folds: a scale
        that had seen other operators of the same family of models would expect the errors of this family.

        Args:
            query: the operators.
            columns_of: `Base.all_columns`.
            above_bound, above_least: log(measured over roofline bound), and over the least time of the roofline.
            in_no_network: mask of the operators that are unlike all operators of networks, whose errors are larger.

        Returns:
            The spread, and the half-width of each entry for a regression, from a scale that was fitted to other folds;
            NaN for entries that no regression was tested with.
        """
        typical = float(np.median(above_bound))
        width = conformal_quantile(np.abs(above_bound - typical))
        spread = cls(None, {}, typical, width, fastest(above_least))
        regressed = errors.by_source["regressed"]
        if np.isfinite(regressed).sum() < _FEWEST_ERRORS:
            return spread, np.full(len(query), np.nan)
        spread.scale, expected, expected_blind = _fitted_scale(query, columns_of, errors)
        ratios = {
            name: np.abs(error) / (expected_blind if name == WITHOUT_LOOPS else expected)
            for name, error in errors.by_source.items()
        }
        known = {name: ratio[_in_networks(query, np.isfinite(ratio))] for name, ratio in ratios.items()}
        pooled = conformal_quantile(known["regressed"])
        for name, ratio in known.items():
            spread.quantiles[name] = conformal_quantile(ratio) if len(ratio) >= _FEWEST_ERRORS else pooled
        odd = ratios["regressed"][in_no_network & np.isfinite(ratios["regressed"])]
        if len(odd) >= _FEWEST_ERRORS:
            spread.quantiles[IN_NO_NETWORK] = max(conformal_quantile(odd), pooled)
        return spread, pooled * expected


def _fitted_scale(
    query: Query, columns_of: Callable[[Query], np.ndarray], errors: HeldOutErrors
) -> tuple[BoostedTrees, np.ndarray, np.ndarray]:
    """Return the scale of all regression errors, and for each entry the error that a scale of other folds expects, with
    loops and without; NaN for entries without a fold."""
    regressed = errors.by_source["regressed"]
    columns, blind = columns_of(query), columns_of(query.without_loops())
    seen = np.isfinite(regressed)
    sizes = np.log(np.maximum(np.abs(regressed), _SMALLEST_ERROR))
    expected, expected_blind = np.full((2, len(query)), np.nan)

    def scale_of(mask: np.ndarray) -> BoostedTrees:
        scale = BoostedTrees(**_SCALE)
        scale.fit(columns[mask], sizes[mask], errors.weight[mask])
        return scale

    for number in np.unique(errors.fold[errors.fold != NOT_HELD]):
        held = errors.fold == number
        others = seen & ~held
        if others.any():
            scale = scale_of(others)
            expected[held] = np.exp(scale.predict(columns[held]))
            expected_blind[held] = np.exp(scale.predict(blind[held]))
    return scale_of(seen), expected, expected_blind


def sum_half_width(parts: np.ndarray, correlation: float) -> float:
    """Return half of the interval of a sum of operators.

    With half-widths as standard deviations, errors of which a share `correlation` has a common cause add up to a
    variance of correlation (sum of parts)^2 + (1 - correlation) (sum of squared parts). The ratio of both sums is the
    effective number of operators (Kish, Survey Sampling, 1965). The interval of a sum with one operator is that of the
    operator.

    Args:
        parts: half-width of each operator times its share of the sum; all calls of an operator are one part, since they
            share its error.
    """
    return float(np.sqrt(correlation * parts.sum() ** 2 + (1 - correlation) * (parts**2).sum()))


def sum_correlation(parts: np.ndarray, error: float) -> float:
    """Return the correlation, at least 0, for which `sum_half_width(parts, correlation)` is `error`; NaN for a sum of
    one operator."""
    together, apart = parts.sum() ** 2, (parts**2).sum()
    return max((error**2 - apart) / (together - apart), 0.0) if len(parts) > 1 else math.nan


def _in_networks(query: Query, known: np.ndarray) -> np.ndarray:
    """Return the mask of the `known` entries in networks; of all `known` entries if too few are in networks.

    Users predict networks, and the errors of sampled operators are larger.
    """
    inside = known & query.network
    return inside if inside.sum() >= _FEWEST_ERRORS else known


def first_half(query: Query) -> np.ndarray:
    """Return the mask of the entries of one half of the operators, selected by their keys, which are hashes."""
    return np.asarray(query.keys % np.uint64(2) == 0)


def fastest(above_least: np.ndarray) -> float:
    """Return a lower limit that 99 % of new values exceed; the smallest value if there are too few.

    Args:
        above_least: log(measured over least time) of each operator.
    """
    return -conformal_quantile(-above_least, _ABOVE_LEAST)


def conformal_quantile(scores: np.ndarray, coverage: float = COVERAGE) -> float:
    """Return the least score such that the share `coverage` of new scores is expected to be at most as large.

    This is the ceil((n + 1) coverage)-th smallest score, or the largest one if there are too few.
    """
    ordered = np.sort(scores)
    rank = math.ceil((len(ordered) + 1) * coverage)
    return float(ordered[min(rank, len(ordered)) - 1]) if len(ordered) else math.inf
