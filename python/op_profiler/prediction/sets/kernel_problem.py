"""One method for kernels of vendors' libraries: trees on the time divided by simple models of the processor.

The method predicts other sizes on measured processors, and kernels on processors that were not measured. The interval
is calibrated for both: on a part of the training rows, and on each training processor left out in turn. A new
processor's interval lies between the two, by the distance to the nearest training processor.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.lean_imports import load_xgboost
from op_profiler.prediction.latency.trees import Trees
from op_profiler.prediction.library.library_predictor import LibraryPrediction
from op_profiler.prediction.sets.kernels import Kernels, Processor, features, log_bases, plain_features
from op_profiler.prediction.sets.public_set import Published, Split

if TYPE_CHECKING:
    from xgboost import Booster

_TREES = {"max_depth": 8, "eta": 0.12, "min_child_weight": 4, "subsample": 0.8, "colsample_bytree": 0.6}
_ROUNDS, _PLAIN_ROUNDS = 150, 100
_COVERAGE = 0.9
_LEAST_DISTANCE = 0.1
_SIMILAR = 0.6  # distance of data sheets at which a processor says little of another
_MOST_ROWS = 8_000  # that the interval is calibrated on
_SHARE = 0.15  # of the training rows is held out for the interval


class KernelProblem:
    """Training rows, and the methods, which are fitted at first use.

    Args:
        train: kernels with a time.
        seed: seed of the trees and of the held-out part.
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
        """Return the rows to predict with the methods."""
        return Split(
            name=name,
            held_out=held_out,
            development="a random seventh of the training rows; each training processor in turn",
            trained=len(self._train),
            truth_us=test.time_us,
            answer=lambda method: self._answer(method, test),
            published=published,
        )

    def _answer(self, method: str, test: Kernels) -> LibraryPrediction:
        if method == "default":
            return self._default.predict(test)
        estimate = self._plain.estimate(test) if method == "trees" else np.log(test.roofline_us) + self._factor(test)
        return LibraryPrediction.without_interval(np.exp(estimate))

    @functools.cached_property
    def _default(self) -> KernelPredictor:
        return KernelPredictor.fit(self._train, self._seed)

    @functools.cached_property
    def _plain(self) -> _Plain:
        return _Plain(self._train, self._seed)

    def _factor(self, test: Kernels) -> np.ndarray:
        """Return the median logarithm of time divided by roofline for each kind."""
        ratio = np.log(self._train.time_us / self._train.roofline_us)
        kinds = {kind: np.median(ratio[self._train.kind == kind]) for kind in np.unique(self._train.kind)}
        return np.array([kinds.get(kind, np.median(ratio)) for kind in test.kind])


class _Plain:
    """Gradient boosting with the library's default settings on the logarithm of the time."""

    def __init__(self, train: Kernels, seed: int) -> None:
        self._model = boost(plain_features(train), np.log(train.time_us), {}, _PLAIN_ROUNDS, seed)

    def estimate(self, test: Kernels) -> np.ndarray:
        return np.asarray(self._model.inplace_predict(plain_features(test)), dtype=np.float64)


@dataclasses.dataclass(frozen=True)
class KernelSpread:
    """Quantile of the error divided by `margin` + disagreement; the margin is the median error."""

    quantile: np.ndarray | float
    margin: np.ndarray | float


@dataclasses.dataclass(frozen=True)
class KernelPredictor:
    """Estimates with 90 % intervals.

    Attributes:
        ensemble: computes the estimates, and the disagreement of its regressors.
        known: processors that were measured.
        near: errors on a part of the rows.
        far: errors on each processor left out in turn; None if only one was measured.
        farthest: mean distance between a processor that was left out and the nearest other one.
    """

    ensemble: Ensemble
    known: Sequence[Processor]
    near: KernelSpread
    far: KernelSpread | None
    farthest: float = 1.0

    @classmethod
    def fit(
        cls, train: Kernels, seed: int, *, own: bool = True, parts: list[np.ndarray] | None = None
    ) -> KernelPredictor:
        """Fit to kernels with a time.

        Args:
            seed: of the trees and of the part that is held out.
            own: as for `Ensemble.fit`.
            parts: masks of rows that are left out in turn to calibrate the interval; default: a random part.
        """

        def spread(parts: list[np.ndarray]) -> KernelSpread:
            return _spread(train, parts, seed, own=own)

        near = spread(parts or [np.random.default_rng(seed).random(len(train)) < _SHARE])
        present = np.unique(train.processor)
        known = [train.processors[number] for number in present]
        ensemble = Ensemble.fit(train, seed, own=own)
        if len(present) < 2:
            return cls(ensemble, known, near, None)
        on = [train.processor == processor for processor in present]
        distances = [
            _distances(train.where(part), [p for p in known if p is not one]).mean() for part, one in zip(on, known)
        ]
        return cls(ensemble, known, near, spread(on), float(np.mean(distances)))

    def predict(self, test: Kernels) -> LibraryPrediction:
        """Return times in microseconds with 90 % intervals, wider on processors that are unlike the known ones."""
        estimates = self.ensemble.estimates(test)
        centre = estimates.mean(axis=0)
        spread = self._spread_at(_distances(test, self.known))
        width = spread.quantile * (spread.margin + estimates.std(axis=0))
        return LibraryPrediction(np.exp(centre), np.exp(centre - width), np.exp(centre + width))

    def _spread_at(self, distance: np.ndarray) -> KernelSpread:
        """Interpolate by distance between the spread on known processors and the spread on processors that were left
        out."""
        near, far = self.near, self.far
        if not distance.any() or far is None:
            return near
        share = np.clip(distance / self.farthest, 0.0, 1.0)
        return KernelSpread(
            near.quantile + (np.maximum(far.quantile, near.quantile) - near.quantile) * share,
            near.margin + (np.maximum(far.margin, near.margin) - near.margin) * share,
        )


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
    """Regressors for each simple model of `log_bases`: fitted to all rows, and to each processor.

    A processor that was not measured is predicted by the regressors of other processors, weighted by similar data
    sheets.
    """

    pooled: Sequence[Trees]
    own: Mapping[Processor, Sequence[Trees]]

    @classmethod
    def fit(cls, train: Kernels, seed: int, *, own: bool = True) -> Ensemble:
        """Fit to kernels with a time.

        Args:
            own: whether each processor has its own regressors, if there are several. Without them, the size is a
                fraction.
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
        """Return the logarithms of microseconds, shape (models, rows)."""
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
    """Return weights of known processors, by the distance of their data sheets; 1 for the same processor if it is
    known."""
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


def boost(columns: np.ndarray, targets: np.ndarray, settings: dict[str, Any], rounds: int, seed: int) -> Booster:
    """Run gradient boosting, with the default settings of xgboost except for `settings`."""
    library = load_xgboost()
    return library.train({"seed": seed, **settings}, library.DMatrix(columns, targets), rounds)
