"""One method for kernels of vendors' libraries: trees on the time divided by simple models of the processor.

The method predicts other sizes on measured processors, and kernels on processors that were not measured. The interval
is calibrated on parts of the training rows that are left out: random rows, the largest kernels, and each processor. It
becomes wider with the distance of a kernel's sizes from all training sizes, and of its processor from the training
processors.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.prediction.latency.trees import Trees, boost
from op_profiler.prediction.library.library_predictor import LibraryPrediction
from op_profiler.prediction.sets.kernels import Kernels, Processor, features, log_bases, plain_features
from op_profiler.prediction.sets.public_set import Published, Split

if TYPE_CHECKING:
    from xgboost import Booster

_TREES = {"max_depth": 8, "eta": 0.12, "min_child_weight": 4, "subsample": 0.8, "colsample_bytree": 0.6}
_ROUNDS, _PLAIN_ROUNDS = 150, 100
_COVERAGE = 0.9
_LEAST_DISTANCE = 0.1
_SIMILAR = 0.6  # distance of data sheets at which the weight of a processor is small
_MOST_ROWS = 8_000  # rows that the interval is calibrated on
_SHARE = 0.15  # share of the training rows that is held out for the interval
_LARGEST = 0.3  # share of a kind's training rows that is held out for the interval of larger kernels
_FARTHEST = 2.0  # mean distances of the left-out largest kernels up to which errors grow with size


class KernelProblem:
    """Training rows with the methods of `METHODS`; each method is fitted to the rows at its first use.

    Args:
        train: kernels with a time.
        seed: seed of the trees and of the rows that are held out to calibrate the interval.
    """

    def __init__(self, train: Kernels, seed: int) -> None:
        self._train, self._seed = train, seed

    def split(
        self,
        name: str,
        test: Kernels,
        held_out: str,
        published: Published | None = None,
    ) -> Split:
        """Return a split whose methods predict the rows of `test`; for the other arguments see `Split`."""
        return Split(
            name=name,
            held_out=held_out,
            development="a random seventh of the training rows; the largest kernels; each training processor in turn",
            trained=len(self._train),
            truth_us=test.time_us,
            answer=lambda method: self._answer(method, test),
            published=published,
        )

    def _answer(self, method: str, test: Kernels) -> LibraryPrediction:
        if method == "default":
            return self._default.predict(test)
        if method == "trees":
            estimate = np.asarray(self._plain.inplace_predict(plain_features(test)), dtype=np.float64)
        else:
            estimate = np.log(test.roofline_us) + self._factor(test)
        return LibraryPrediction.without_interval(np.exp(estimate))

    @functools.cached_property
    def _default(self) -> KernelPredictor:
        return KernelPredictor.fit(self._train, self._seed)

    @functools.cached_property
    def _plain(self) -> Booster:
        """Gradient boosting with the library's default settings on the logarithm of the time."""
        return boost(plain_features(self._train), np.log(self._train.time_us), {}, _PLAIN_ROUNDS, self._seed)

    def _factor(self, test: Kernels) -> np.ndarray:
        """Return, for each test row, the median logarithm of time divided by roofline of the training rows of its kind;
        of all training rows if there are none of its kind."""
        ratio = np.log(self._train.time_us / self._train.roofline_us)
        kinds = {kind: np.median(ratio[self._train.kind == kind]) for kind in np.unique(self._train.kind)}
        return np.array([kinds.get(kind, np.median(ratio)) for kind in test.kind])


Limits = dict[int, tuple[list[float], list[float]]]
"""Smallest and largest sizes and work of the training rows, as base-2 logarithms, by kind."""


@dataclasses.dataclass(frozen=True)
class KernelSpread:
    """Half the width of an interval, in logarithms: `quantile` * (`margin` + disagreement of the regressors).

    Attributes:
        quantile: 90 % quantile of the error divided by (`margin` + disagreement); a number, or one per row.
        margin: median of the error; a number, or one per row.
    """

    quantile: np.ndarray | float
    margin: np.ndarray | float


@dataclasses.dataclass(frozen=True)
class DistantSpread:
    """Interval of rows that are unlike the training rows.

    Attributes:
        spread: the interval, calibrated on left-out rows.
        distance: mean distance of the left-out rows from the training rows.
    """

    spread: KernelSpread
    distance: float


@dataclasses.dataclass(frozen=True)
class KernelPredictor:
    """A fitted predictor of the times of kernels, with 90 % intervals.

    Attributes:
        ensemble: regressors that compute the estimates; their disagreement widens the intervals.
        known: processors that were measured.
        limits: smallest and largest sizes and work of the training rows.
        near: interval of kernels that are like the training rows, calibrated on a held-out part of these.
        beyond: interval of kernels larger than the training rows, calibrated by leaving out the largest kernels; its
            `distance` is in octaves beyond the limits. None if the kernels of each kind have equal sizes.
        far: interval on processors that were not measured, calibrated by leaving out each processor in turn; its
            `distance` is the distance of the processor's data sheet to the most similar known one. None if only one
            processor was measured.
    """

    ensemble: Ensemble
    known: Sequence[Processor]
    limits: Limits
    near: KernelSpread
    beyond: DistantSpread | None
    far: DistantSpread | None

    @classmethod
    def fit(
        cls, train: Kernels, seed: int, *, own: bool = True, parts: list[np.ndarray] | None = None
    ) -> KernelPredictor:
        """Return a predictor that is fitted to kernels with a time.

        Args:
            train: the kernels.
            seed: seed of the trees and of the part that is held out.
            own: as for `Ensemble.fit`.
            parts: masks of rows that are left out in turn to calibrate `near`; default: a random part.
        """

        def spread(parts: list[np.ndarray]) -> KernelSpread:
            return _spread(train, parts, seed, own=own)

        def distant(parts: list[np.ndarray], distances: list[np.ndarray]) -> DistantSpread:
            return DistantSpread(spread(parts), float(np.mean([each.mean() for each in distances])))

        present = np.unique(train.processor)
        known = [train.processors[number] for number in present]
        largest = _largest(train)
        beyond = far = None
        if largest.any():
            beyond = distant([largest], [_octaves_beyond(train.where(largest), _limits(train.where(~largest)))])
        if len(present) > 1:
            on = [train.processor == number for number in present]
            others = [[processor for processor in known if processor is not one] for one in known]
            far = distant(on, [_distances(train.where(part), rest) for part, rest in zip(on, others, strict=True)])
        near = spread(parts or [np.random.default_rng(seed).random(len(train)) < _SHARE])
        return cls(Ensemble.fit(train, seed, own=own), known, _limits(train), near, beyond, far)

    def predict(self, test: Kernels) -> LibraryPrediction:
        """Return times in microseconds with 90 % intervals, which are wider for sizes and processors unlike those of
        the training rows."""
        estimates = self.ensemble.estimates(test)
        centre = estimates.mean(axis=0)
        spread = self._spread_at(_octaves_beyond(test, self.limits), _distances(test, self.known))
        width = spread.quantile * (spread.margin + estimates.std(axis=0))
        return LibraryPrediction(np.exp(centre), np.exp(centre - width), np.exp(centre + width))

    def _spread_at(self, octaves: np.ndarray, distance: np.ndarray) -> KernelSpread:
        """Interpolate from `near` to `beyond` and from `near` to `far`, and return the larger of the two results."""
        quantile, margin = (np.full(len(octaves), value) for value in (self.near.quantile, self.near.margin))
        for errors, away, most in ((self.beyond, octaves, _FARTHEST), (self.far, distance, 1.0)):
            if errors is not None and errors.distance:
                share = np.clip(away / errors.distance, 0.0, most)
                for values, near, there in (
                    (quantile, self.near.quantile, errors.spread.quantile),
                    (margin, self.near.margin, errors.spread.margin),
                ):
                    np.maximum(values, near + (there - near) * share, out=values)
        return KernelSpread(quantile, margin)


def _largest(train: Kernels) -> np.ndarray:
    """Return a mask of the share `_LARGEST` of each kind's rows that have the most work."""
    work = train.flops + train.moved
    mask = np.zeros(len(train), dtype=bool)
    for kind in np.unique(train.kind):
        rows = train.kind == kind
        mask[rows] = work[rows] > np.quantile(work[rows], 1 - _LARGEST)
    return mask


def _axes(table: Kernels) -> np.ndarray:
    """Return sizes and work in octaves, shape (rows, axes)."""
    return np.log2(np.column_stack([table.sizes, table.flops, table.moved]))


def _limits(train: Kernels) -> Limits:
    axes = _axes(train)
    rows = {int(kind): axes[train.kind == kind] for kind in np.unique(train.kind)}
    return {kind: (each.min(axis=0).tolist(), each.max(axis=0).tolist()) for kind, each in rows.items()}


def _octaves_beyond(test: Kernels, limits: Limits) -> np.ndarray:
    """Return, for each row, the largest number of octaves by which one of its sizes or its work is outside of the
    limits of its kind; infinity for a kind without limits."""
    axes, beyond = _axes(test), np.full(len(test), np.inf)
    for kind, (least, greatest) in limits.items():
        rows = test.kind == kind
        beyond[rows] = np.maximum(np.maximum(least - axes[rows], axes[rows] - greatest).max(axis=1), 0.0)
    return beyond


def _spread(train: Kernels, parts: list[np.ndarray], seed: int, *, own: bool) -> KernelSpread:
    errors, disagreements = [], []
    drawn = np.random.default_rng(seed + 1).random(len(train)) < _MOST_ROWS / len(train)
    for hidden in parts:
        asked = train.where(hidden & drawn)
        estimates = Ensemble.fit(train.where(~hidden & drawn), seed, own=own).estimates(asked)
        errors.append(np.abs(estimates.mean(axis=0) - np.log(asked.time_us)))
        disagreements.append(estimates.std(axis=0))
    error, disagreement = np.concatenate(errors), np.concatenate(disagreements)
    margin = float(np.median(error))
    return KernelSpread(float(np.quantile(error / (margin + disagreement), _COVERAGE)), margin)


@dataclasses.dataclass(frozen=True)
class Ensemble:
    """Regressors of the error of each analytic model of `log_bases`: one set for all rows, and one for each processor.

    For a processor that was not measured, the regressors of the measured processors are weighted by the similarity of
    the data sheets.

    Attributes:
        pooled: regressors that are fitted to all rows.
        own: regressors that are fitted to the rows of one processor, by processor.
    """

    pooled: Sequence[Trees]
    own: Mapping[Processor, Sequence[Trees]]

    @classmethod
    def fit(cls, train: Kernels, seed: int, *, own: bool = True) -> Ensemble:
        """Return regressors that are fitted to kernels with a time.

        Args:
            train: the kernels.
            seed: seed of the trees.
            own: whether each processor has its own regressors, if there are several processors. Without these
                regressors, the ensemble needs a fraction of the bytes.
        """
        columns, left = features(train), np.log(train.time_us) - log_bases(train)

        def fitted(rows: np.ndarray) -> list[Trees]:
            models = [boost(columns[rows], each[rows], _TREES, _ROUNDS, seed + at) for at, each in enumerate(left)]
            return [Trees.of_xgboost(model) for model in models]

        numbers = [int(number) for number in np.unique(train.processor)]
        several = numbers if own and len(numbers) > 1 else []
        each = {train.processors[number]: fitted(train.processor == number) for number in several}
        return cls(fitted(np.ones(len(train), dtype=bool)), each)

    def estimates(self, test: Kernels) -> np.ndarray:
        """Return the estimate of each regressor, as logarithms of microseconds, shape (models, rows)."""
        columns, bases = features(test), log_bases(test)

        def answers(models: Sequence[Trees]) -> np.ndarray:
            return np.stack([model.predict(columns) for model in models]) + bases

        pooled = answers(self.pooled)
        if not self.own:
            return pooled
        weights = np.array([_likeness(processor, list(self.own)) for processor in test.processors])[test.processor]
        own = np.stack([answers(models) for models in self.own.values()])
        return np.concatenate([pooled, np.einsum("rp,pmr->mr", weights, own)])


def _likeness(test: Processor, known: list[Processor]) -> np.ndarray:
    """Return the weights of the known processors, by the distance of their data sheets from that of `test`; if `test`
    is known, its weight is 1."""
    same = np.array([float(processor.name == test.name) for processor in known])
    distance = np.array([np.linalg.norm(processor.description - test.description) for processor in known])
    weights: np.ndarray = same if same.any() else np.exp(-((distance - distance.min()) ** 2) / (2 * _SIMILAR**2))
    return np.asarray(weights / weights.sum())


def _distances(test: Kernels, known: Sequence[Processor]) -> np.ndarray:
    """Return the distance of each row's processor to the nearest known one, in logarithms of data sheets; 0 if it is
    known.

    Processors with the same data sheet differ in clocks and power limits, so an unknown one is at least
    `_LEAST_DISTANCE` away.
    """
    names = {processor.name for processor in known}
    there = np.stack([processor.description for processor in known])
    each = [
        0.0
        if processor.name in names
        else max(np.linalg.norm(there - processor.description, axis=1).min(), _LEAST_DISTANCE)
        for processor in test.processors
    ]
    return np.array(each)[test.processor]
