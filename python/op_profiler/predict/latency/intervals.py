"""Intervals that hold: locally weighted conformal prediction.

Errors are taken on operators that were held out, on a logarithmic scale. A small model of their size says how hard an
operator is; the quantile of error over expected error makes the interval (Papadopoulos et al., Normalized nonconformity
measures, 2008; Lei et al., Distribution-free predictive inference for regression, JASA 113, 2018, section 5.2).
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from op_profiler.predict.latency.query import Query
from op_profiler.predict.latency.regression import Boosted

COVERAGE = 0.9
WITHOUT_LOOPS = "regressed without loops"
"""Among the tiers of errors: what regressions say of an operator whose loops nobody knows, as where no TVM is."""
_SMALLEST_ERROR = 0.003
_FEWEST_ERRORS = 20
_SCALE_ROUNDS = 30


@dataclasses.dataclass
class Spread:
    """How far off estimates may be.

    Attributes:
        scale: predicts the log of the size of an error from `Query.columns`; None where too little was held out.
        quantiles: by tier and for `WITHOUT_LOOPS`, the quantile of error over expected error.
        typical_above_bound: median of log(time over roofline bound); `bound_width`: what covers 90 % around it.
    """

    scale: Boosted | None
    quantiles: dict[str, float]
    typical_above_bound: float
    bound_width: float

    def half_width(self, query: Query, tiers: str | np.ndarray) -> np.ndarray:
        """Half of the interval of each entry, on a logarithmic scale; NaN for what is unsupported.

        Args:
            tiers: name of the tier of all entries, or of each.
        """
        names = np.broadcast_to(np.asarray(tiers), (len(query),))
        if self.scale is None:
            return np.where(names == "unsupported", np.nan, self.bound_width)
        names = np.where((names == "regressed") & ~query.has_loops, WITHOUT_LOOPS, names)
        found = np.full(len(query), np.nan)
        for name in set(names.tolist()) - {"bound", "unsupported"}:
            found[names == name] = self.quantiles[name]
        # Once for all tiers: trees take about as long for few entries as for many.
        return np.where(names == "bound", self.bound_width, found * np.exp(self.scale.predict(query.columns)))

    @classmethod
    def of(cls, query: Query, errors: dict[str, np.ndarray], above_bound: np.ndarray) -> Spread:
        """From errors on held-out operators.

        Args:
            query: the operators. What is learned from some of them is judged by others: all entries of one operator,
                such as its thread counts, are on one side.
            errors: by tier, log(estimate over measured), one an entry of `query`; NaN where that tier does not answer.
            above_bound: log(measured over bound).
        """
        typical = float(np.median(above_bound))
        width = conformal_quantile(np.abs(above_bound - typical))
        spread = cls(None, {}, typical, width)
        regressed = errors["regressed"]
        seen = np.flatnonzero(np.isfinite(regressed))
        if len(seen) < _FEWEST_ERRORS:
            return spread
        scale = Boosted(rounds=_SCALE_ROUNDS, max_depth=4, min_child_weight=20.0)
        sizes = np.log(np.maximum(np.abs(regressed[seen]), _SMALLEST_ERROR))
        halves = first_half(query)[seen]  # the quantile is taken on errors that the scale has not seen
        columns = query.take(seen).columns
        expected = np.full(len(query), np.nan)
        for half in (halves, ~halves):
            if half.any() and not half.all():
                scale.fit(columns[half], sizes[half], np.ones(int(half.sum())))
                expected[seen[~half]] = np.exp(scale.predict(columns[~half]))
        scale.fit(columns, sizes, np.ones(len(seen)))
        spread.scale = scale
        ratios = {name: np.abs(error) / expected for name, error in errors.items()}
        known = {name: ratio[_in_networks(query, np.isfinite(ratio))] for name, ratio in ratios.items()}
        pooled = conformal_quantile(known["regressed"])
        for name, ratio in known.items():
            spread.quantiles[name] = conformal_quantile(ratio) if len(ratio) >= _FEWEST_ERRORS else pooled
        return spread


def _in_networks(query: Query, known: np.ndarray) -> np.ndarray:
    """Those of some entries that are of networks, where there are enough: it is networks that will be asked about, and
    operators drawn at random are farther off."""
    inside = known & query.network
    return inside if inside.sum() >= _FEWEST_ERRORS else known


def first_half(query: Query) -> np.ndarray:
    """Mask of the entries of one half of the operators, chosen by their keys, which are random numbers."""
    return np.asarray(query.keys % np.uint64(2) == 0)


def conformal_quantile(scores: np.ndarray, coverage: float = COVERAGE) -> float:
    """The least score that covers the share `coverage` of new ones: the ceil((n + 1) coverage)-th smallest; the largest
    where there are too few."""
    ordered = np.sort(scores)
    rank = math.ceil((len(ordered) + 1) * coverage)
    return float(ordered[min(rank, len(ordered)) - 1]) if len(ordered) else math.inf
