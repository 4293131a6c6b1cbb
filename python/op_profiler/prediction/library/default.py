"""The default predictor of convolutions: a weighted mean of two tree ensembles and interpolation.

The error depends on how an entry is missing from the table. Each entry is therefore classified by its *gap*: ``cell``
(all its values occur in the table), the name of an axis (the entry's value lies between values of the table), or
``beyond`` (a value lies outside of the table's range). For each gap, part of the table is held out in the same way. On
this part, the weights of the three estimates are chosen (stacking: Wolpert, 1992), and the error for the interval is
measured (split conformal prediction with errors normalised by the disagreement of the estimates: Papadopoulos et al.,
2008; Lei et al., 2018). Weights and errors are separate for depthwise convolutions, which have other kernels. All three
estimate the logarithm of latency over a roofline:

- *shape*: gradient boosting (Chen and Guestrin, 2016) on features of the shape only, averaged over models that each
  correct another simple model of the device;
- *grid*: interpolation along each axis with neighbours on both sides, averaged; otherwise the nearest;
- *neighbours*: gradient boosting on the error of grid, from the shape and the neighbours, fitted to entries with the
  same gap.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from op_profiler.dataset.formats.format import Convolutions
from op_profiler.lean_imports import load_xgboost
from op_profiler.prediction.latency.trees import boost
from op_profiler.prediction.library.library_predictor import LibraryPrediction
from op_profiler.prediction.library.neighbours import TableRoofline, bases_us, blocked_us, shape_features, surroundings

_LEVELLED = ("batch", "size", "out_channels", "ratio")  # axes on which a value may be missing from the table
_GAPS = ("cell", *_LEVELLED, "beyond")
_KINDS = (0, 1)  # values of the column depthwise
_COVERAGE = 0.9
_STEPS = 10  # steps of the weights from 0 to 1
_SMALLEST = 0.01  # added to values of an axis, since the ratio of a depthwise convolution may be 0
_FEWEST = 20  # least number of entries for weights and calibration
_LEAFWISE = {"grow_policy": "lossguide", "max_depth": 0, "max_leaves": 1500}
_SHAPE = {**_LEAFWISE, "max_bin": 64, "eta": 0.15, "min_child_weight": 2}
_NEIGHBOURS = {"max_depth": 8, "eta": 0.1, "colsample_bytree": 0.5, "min_child_weight": 4}
_ROUNDS, _NEIGHBOUR_ROUNDS = 120, 250


_COUNTS = range(2, 162, 2)  # GPUs have an even number of multiprocessors
_COMPUTED = 0.7  # from this ratio of compute to memory time on, a time depends on the number of parallel units
_SHORTEST_US = 15.0  # shorter times are mostly the start of the kernel
_FEWEST_UNITS = 500


@dataclasses.dataclass(frozen=True)
class _Calibration:
    """Weights and errors of the entries with one kind of gap.

    Attributes:
        weights: weights of the estimates shape, grid and neighbours; they sum to 1.
        quantile: 90 % quantile of the error in the logarithm divided by (`margin` + disagreement of the estimates).
        margin: median of the error in the logarithm.
        octaves: mean width of the gaps that were created in the table.
        error: mean absolute error in the logarithm.
    """

    weights: np.ndarray
    quantile: float
    margin: float
    octaves: float
    error: float


_Calibrations = dict[int, _Calibration]  # by value of depthwise; empty if the gap cannot be created


class DefaultPredictor:
    """The default `LibraryPredictor`: a weighted mean of two tree ensembles and interpolation, with 90 % intervals."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._calibrations: dict[str, _Calibrations] = {}
        self._estimators: _Estimators | None = None

    def fit(self, table: Convolutions) -> None:
        """Fit the estimate *shape* (see the module).

        Weights and errors for a gap are computed when `predict` first needs them.
        """
        self._estimators = _Estimators(table, self._seed, parallel_units(table, TableRoofline.of(table)))
        self._calibrations = {}

    def _calibration(self, gap: str, depthwise: int) -> _Calibration | None:
        """Return the calibration of a gap; None if the table is too small to create the gap in it."""
        assert self._estimators is not None
        if gap not in self._calibrations:
            self._calibrations[gap] = self._learned(self._estimators, gap)
        return self._calibrations[gap].get(depthwise)

    def _learned(self, whole: _Estimators, gap: str) -> _Calibrations:
        """Return the calibrations of a gap, by value of depthwise; a kind with too few entries shares that of all
        entries. Empty if too few or too many entries would be held out."""
        table = whole.table
        held_out = _made_gap(table, gap, self._seed)
        if held_out.sum() < _FEWEST or held_out.mean() > 0.7:
            return {}
        inner = _Estimators(table.where(~held_out), self._seed, whole.units)
        asked = table.where(held_out)
        estimates = inner.estimates(asked, gap)
        truth = np.log(asked.latency_us) - inner.log_roofline(asked)
        octaves = _octaves(inner.table, asked, gap)
        learned = {}
        for kind in _KINDS:
            rows = asked.column("depthwise") == kind
            if rows.sum() < _FEWEST:
                rows[:] = True
            learned[kind] = _calibrate(estimates[rows], truth[rows], float(octaves[rows].mean()))
        return learned

    def predict(self, table: Convolutions) -> LibraryPrediction:
        """Estimate each entry with the weights for its gap: how it is missing from the fitted table (see the module).

        Returns:
            Microseconds with 90 % intervals; the ends of an interval are NaN if the fitted table is too small to
            calibrate the gap of the entry.

        Raises:
            RuntimeError: the predictor is not fitted.
        """
        if self._estimators is None:
            raise RuntimeError("fit before predict")
        latency, width = np.full(len(table), np.nan), np.full(len(table), np.nan)
        gaps, depthwise = self._gaps(table), table.column("depthwise")
        for gap, kind in itertools.product(_GAPS, _KINDS):
            which = np.flatnonzero((gaps == gap) & (depthwise == kind))
            if not len(which):
                continue
            asked = table.where(which)
            estimates = self._estimators.estimates(asked, gap)
            calibration = self._calibration(gap, kind)
            weights = np.array([1.0, 0.0, 0.0]) if calibration is None else calibration.weights
            latency[which] = estimates @ weights + self._estimators.log_roofline(asked)
            if calibration is not None:
                margin, quantile = self._spread(asked, gap, kind, calibration)
                width[which] = quantile * (margin + _disagreement(estimates))
        return LibraryPrediction(np.exp(latency), np.exp(latency - width), np.exp(latency + width))

    def _spread(
        self, table: Convolutions, gap: str, depthwise: int, made: _Calibration
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return margin and quantile of each entry of one gap, interpolated by the width of its gap, from an entry
        without a gap to the gaps that calibration created.

        A gap that calibration creates in the table is wider than the gap of the entry that it represents.
        """
        assert self._estimators is not None
        none = self._calibration("cell", depthwise)
        if none is None or made.octaves == 0:
            return np.full(len(table), made.margin), np.full(len(table), made.quantile)
        share = np.clip(_octaves(self._estimators.table, table, gap) / made.octaves, 0.0, 1.0)
        margin = none.margin + np.maximum(made.margin - none.margin, 0.0) * share
        return margin, none.quantile + (made.quantile - none.quantile) * share

    def _gaps(self, table: Convolutions) -> np.ndarray:
        """Return the gap of each entry; if an entry has several gaps, the one with the largest error."""
        assert self._estimators is not None
        gaps, error = np.full(len(table), "cell", dtype=object), np.full(len(table), -1.0)
        for gap, kind in itertools.product(_GAPS[1:], _KINDS):
            rows = _has_gap(self._estimators.table, table, gap) & (table.column("depthwise") == kind)
            calibration = self._calibration(gap, kind) if rows.any() else None
            if calibration is not None:
                larger = rows & (calibration.error > error)
                gaps[larger], error[larger] = gap, calibration.error
        return gaps


class _Estimators:
    """The estimates *shape*, *grid* and *neighbours*, fitted to one table; *neighbours* is fitted to each gap at its
    first use."""

    def __init__(self, table: Convolutions, seed: int, units: int) -> None:
        self.table = table
        self.units = units
        self._seed = seed
        self._roofline = TableRoofline.of(table)
        self._values = np.log(table.latency_us) - self.log_roofline(table)
        self._features = shape_features(table, self._roofline, self.units)
        self._shapes = [
            _boost(self._features, np.log(table.latency_us) - base, _SHAPE, _ROUNDS, seed + number)
            for number, base in enumerate(self._log_bases(table))
        ]
        self._neighbours: dict[str, Any] = {}

    def log_roofline(self, table: Convolutions) -> np.ndarray:
        logarithm: np.ndarray = np.log(self._roofline.latency_us(table))
        return logarithm

    def _log_bases(self, table: Convolutions) -> np.ndarray:
        logarithms: np.ndarray = np.log(bases_us(table, self._roofline, self.units))
        return logarithms

    def estimates(self, table: Convolutions, gap: str) -> np.ndarray:
        """Return the logarithms of latency over roofline by shape, grid and neighbours, shape (entries, 3)."""
        self.prepare(gap)
        features = shape_features(table, self._roofline, self.units)
        around = surroundings(self.table, self._values, table)
        both = np.column_stack([features, around.features, around.estimate]).astype(np.float32)
        left = _ask(self._neighbours[gap], both)
        answers = [_ask(model, features) for model in self._shapes]
        shape = (answers + self._log_bases(table)).mean(axis=0) - self.log_roofline(table)
        return np.column_stack([shape, around.estimate, around.estimate + left])

    def prepare(self, gap: str) -> None:
        """Fit the estimate *neighbours* for a gap, to entries of the table whose neighbours were removed as in the gap;
        do nothing if it is already fitted."""
        if gap in self._neighbours:
            return
        inputs, targets = [], []
        for hidden in _hidden(self.table, gap):
            kept = np.ones(len(self.table), dtype=bool) if gap == "cell" else ~hidden
            around = surroundings(self.table.where(kept), self._values[kept], self.table.where(hidden))
            inputs.append(np.column_stack([self._features[hidden], around.features, around.estimate]))
            targets.append(self._values[hidden] - around.estimate)
        learned = np.concatenate(inputs).astype(np.float32), np.concatenate(targets)
        self._neighbours[gap] = _boost(*learned, _NEIGHBOURS, _NEIGHBOUR_ROUNDS, self._seed)


def _hidden(table: Convolutions, gap: str) -> Iterator[np.ndarray]:
    """Yield masks of entries to fit the estimate *neighbours* of a gap to; the other entries are their neighbours."""
    if gap == "cell":
        yield np.ones(len(table), dtype=bool)  # an entry is never its own neighbour, so nothing has to be hidden
        return
    places = _places(table, "size" if gap == "beyond" else gap)
    levels = np.unique(places)
    if gap == "beyond":
        for end in range(len(levels), max(len(levels) // 2, 2), -2):
            yield np.isin(places, levels[max(end - 2, 1) : end])
        if len(levels) <= 2:
            yield np.isin(places, levels[1:])
        return
    apart = min(len(levels), 4)
    for start in range(apart):
        yield np.isin(places, levels[start::apart])


def _made_gap(table: Convolutions, gap: str, seed: int) -> np.ndarray:
    """Return a mask of entries to hold out for weights and calibration; no entry if the table is too small."""
    if gap == "cell":
        chosen: np.ndarray = np.random.default_rng(seed).random(len(table)) < 0.2
        return chosen
    places = _places(table, "size" if gap == "beyond" else gap)
    levels = np.unique(places)
    if len(levels) < 3:
        return np.zeros(len(table), dtype=bool)
    if gap == "beyond":
        return np.isin(places, levels[-min(2, len(levels) - 2) :])
    chosen = np.isin(places, _removable(levels))
    for kind in (0, 1):  # depthwise entries have one ratio: none would be left
        rows = table.column("depthwise") == kind
        if len(np.unique(places[rows])) < 3:
            chosen &= ~rows
    return chosen


def _removable(levels: np.ndarray) -> np.ndarray:
    """Return levels that can be removed without creating a gap wider than the widest one of the table.

    No two of them are adjacent. If there are fewer than three such levels, every third inner level is returned.
    """
    octaves = np.log2(levels + _SMALLEST)
    widest = np.diff(octaves[levels > 0]).max(initial=0)
    chosen: list[int] = []
    for index in range(1, len(levels) - 1):
        if octaves[index + 1] - octaves[index - 1] <= widest + 1e-6 and index - 1 not in chosen:
            chosen.append(index)
    if len(chosen) >= 3:
        return levels[chosen]
    inside = levels[1:-1]
    return inside[1::3] if len(inside) > 2 else inside[-1:]


def _has_gap(known: Convolutions, wanted: Convolutions, gap: str) -> np.ndarray:
    """Return the mask of the entries of `wanted` that have the gap in the table `known`."""
    if gap == "beyond":
        outside = np.zeros(len(wanted), dtype=bool)
        for axis in _LEVELLED:
            places = _places(wanted, axis)
            outside |= (places < _places(known, axis).min()) | (places > _places(known, axis).max())
        return outside
    places, levels = _places(wanted, gap), _places(known, gap)
    missing: np.ndarray = ~np.isin(places, levels) & (places >= levels.min()) & (places <= levels.max())
    return missing


def _places(table: Convolutions, axis: str) -> np.ndarray:
    return table.ratio if axis == "ratio" else table.column(axis)


def _octaves(known: Convolutions, wanted: Convolutions, gap: str) -> np.ndarray:
    """Return the width of each entry's gap: between the values on both sides, or from the nearest known value."""
    if gap == "cell":
        return np.zeros(len(wanted))
    axis = "size" if gap == "beyond" else gap
    levels, places = (np.log2(each + _SMALLEST) for each in (np.unique(_places(known, axis)), _places(wanted, axis)))
    # A held-out value may still be a level: depthwise convolutions stay when a ratio of the others is held out.
    before, after = np.searchsorted(levels, places, "left") - 1, np.searchsorted(levels, places, "right")
    low, high = (np.clip(at, 0, len(levels) - 1) for at in (before, after))
    width: np.ndarray = np.maximum(levels[high], places) - np.minimum(levels[low], places)
    return width


def _calibrate(estimates: np.ndarray, truth: np.ndarray, octaves: float) -> _Calibration:
    """Return the weights with the smallest error, and the quantile that reaches the coverage."""
    options = [
        np.array([i, j, _STEPS - i - j]) / _STEPS
        for i, j in itertools.product(range(_STEPS + 1), repeat=2)
        if i + j <= _STEPS
    ]
    errors = [float(np.abs(estimates @ weights - truth).mean()) for weights in options]
    weights = options[int(np.argmin(errors))]
    error = np.abs(estimates @ weights - truth)
    margin = float(np.median(error))
    rank = min(1.0, _COVERAGE * (1 + 1 / len(truth)))
    quantile = float(np.quantile(error / (margin + _disagreement(estimates)), rank))
    return _Calibration(weights, quantile, margin, octaves, float(error.mean()))


def _disagreement(estimates: np.ndarray) -> np.ndarray:
    spread: np.ndarray = estimates.std(axis=1)
    return spread


def _boost(features: np.ndarray, targets: np.ndarray, settings: dict[str, Any], rounds: int, seed: int) -> Any:
    chosen = {"subsample": 0.7, "tree_method": "hist", "max_bin": 128, **settings}
    rounds = int(np.clip(len(targets) // 20, 100, rounds))  # few entries need fewer rounds
    return boost(features, targets, chosen, rounds, seed)


def _ask(model: Any, features: np.ndarray) -> np.ndarray:
    xgboost = load_xgboost()

    answers: np.ndarray = model.predict(xgboost.DMatrix(features))
    return answers.astype(np.float64)


def parallel_units(table: Convolutions, roofline: TableRoofline) -> int:
    """Return the number of multiprocessors that explains the times best, by least squares on logarithms.

    The result may be twice the true number: twice as many units that compute blocks of half the size take equally long.
    Each kernel size, stride and fusion has its own coefficients.

    Returns:
        1 if too few times are limited by the arithmetic.
    """
    compute_us, memory_us = roofline.bounds_us(table)
    heavy = (table.column("depthwise") == 0) & (compute_us > _COMPUTED * memory_us) & (table.latency_us > _SHORTEST_US)
    table = table.where(heavy)
    if len(table) < _FEWEST_UNITS:
        return 1
    rooflines_us = roofline.latency_us(table)
    times = np.log(table.latency_us / rooflines_us)
    group = np.zeros(len(table), dtype=np.int64)
    for name in ("kernel", "stride", "fused"):
        group = group * (table.column(name).max() + 1) + table.column(name)

    def error(units: int) -> float:
        blocks = np.log(blocked_us(table, roofline, units) / rooflines_us)
        columns = np.vstack([np.ones(len(table)), blocks, blocks.min(axis=0)]).T
        left = 0.0
        for one in np.unique(group):
            rows = group == one
            coefficients = np.linalg.lstsq(columns[rows], times[rows], rcond=None)[0]
            left += float(np.abs(times[rows] - columns[rows] @ coefficients).sum())
        return left

    return min(_COUNTS, key=error)
