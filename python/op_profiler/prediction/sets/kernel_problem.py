"""One method for kernels of vendors' libraries: trees on the time over simple models of the processor.

What is learned on processors that were measured is asked of these, at other sizes, or of processors that were not. The
interval is calibrated for either: on a part of the training rows, and on each training processor left out in turn; an
asked processor lies between the two by its distance to the nearest training processor.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.lean_imports import load_xgboost
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
    """Training rows, and the methods that are fitted to them when first asked.

    Args:
        train: kernels with a time.
        seed: of the trees and of the part that is held out.
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
        """What is asked of the methods."""
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
        return KernelPredictor(self._train, self._seed)

    @functools.cached_property
    def _plain(self) -> _Plain:
        return _Plain(self._train, self._seed)

    def _factor(self, test: Kernels) -> np.ndarray:
        """Median of time over roofline of each kind; logarithm."""
        ratio = np.log(self._train.time_us / self._train.roofline_us)
        kinds = {kind: np.median(ratio[self._train.kind == kind]) for kind in np.unique(self._train.kind)}
        return np.array([kinds.get(kind, np.median(ratio)) for kind in test.kind])


class _Plain:
    """Gradient boosting with the library's own settings on the logarithm of the time."""

    def __init__(self, train: Kernels, seed: int) -> None:
        self._model = boost(plain_features(train), np.log(train.time_us), {}, _PLAIN_ROUNDS, seed)

    def estimate(self, test: Kernels) -> np.ndarray:
        return np.asarray(self._model.inplace_predict(plain_features(test)), dtype=np.float64)


@dataclasses.dataclass(frozen=True)
class _Spread:
    """Quantile of the error over `margin` + disagreement; the margin is the median error."""

    quantile: np.ndarray | float
    margin: np.ndarray | float


class KernelPredictor:
    """Estimates with 90 % intervals.

    Args:
        train: kernels with a time.
        seed: of the trees and of the part that is held out.
    """

    def __init__(self, train: Kernels, seed: int) -> None:
        self._train, self._seed = train, seed
        self._ensemble = _Ensemble(train, seed)

    def predict(self, test: Kernels) -> LibraryPrediction:
        """Return times in microseconds with 90 % intervals, wider on processors that are unlike the known ones."""
        estimates = self._ensemble.estimates(test)
        centre = estimates.mean(axis=0)
        spread = self._spread_at(_distances(test, self._train))
        width = spread.quantile * (spread.margin + estimates.std(axis=0))
        return LibraryPrediction(np.exp(centre), np.exp(centre - width), np.exp(centre + width))

    def _spread_at(self, distance: np.ndarray) -> _Spread:
        """Between the spread on known processors and that on processors that were left out, by the distance."""
        near = self._near
        if not distance.any() or self._far is None:
            return near
        far, farthest = self._far
        share = np.clip(distance / farthest, 0.0, 1.0)
        return _Spread(
            near.quantile + (np.maximum(far.quantile, near.quantile) - near.quantile) * share,
            near.margin + (np.maximum(far.margin, near.margin) - near.margin) * share,
        )

    @functools.cached_property
    def _near(self) -> _Spread:
        """On a part of the rows."""
        return self._spread([np.random.default_rng(self._seed).random(len(self._train)) < _SHARE])

    @functools.cached_property
    def _far(self) -> tuple[_Spread, float] | None:
        """On each processor left out in turn, and how far these are from the others; None of one processor."""
        present = np.unique(self._train.processor)
        if len(present) < 2:
            return None
        parts = [self._train.processor == processor for processor in present]
        distances = [_distances(self._train.where(part), self._train.where(~part)).mean() for part in parts]
        return self._spread(parts), float(np.mean(distances))

    def _spread(self, parts: list[np.ndarray]) -> _Spread:
        errors, disagreements = [], []
        drawn = np.random.default_rng(self._seed + 1).random(len(self._train)) < _MOST_ROWS / len(self._train)
        for hidden in parts:
            asked = self._train.where(hidden & drawn)
            estimates = _Ensemble(self._train.where(~hidden & drawn), self._seed).estimates(asked)
            errors.append(np.abs(estimates.mean(axis=0) - np.log(asked.time_us)))
            disagreements.append(estimates.std(axis=0))
        error, disagreement = np.concatenate(errors), np.concatenate(disagreements)
        margin = float(np.median(error))
        return _Spread(float(np.quantile(error / (margin + disagreement), _COVERAGE)), margin)


class _Ensemble:
    """Regressors for each simple model of `log_bases`: of all rows, and of each processor's own.

    A processor that was not measured is asked of the others' own regressors, those of similar data sheets above all.
    """

    def __init__(self, train: Kernels, seed: int) -> None:
        columns, left = features(train), np.log(train.time_us) - log_bases(train)

        def fitted(rows: np.ndarray) -> list[Booster]:
            return [boost(columns[rows], each[rows], _TREES, _ROUNDS, seed + at) for at, each in enumerate(left)]

        self._pooled = fitted(np.ones(len(train), dtype=bool))
        numbers = [int(number) for number in np.unique(train.processor)]
        self._own = {
            train.processors[number]: fitted(train.processor == number) for number in numbers if len(numbers) > 1
        }

    def estimates(self, test: Kernels) -> np.ndarray:
        """Logarithms of microseconds, shape (models, rows)."""
        columns, bases = features(test), log_bases(test)

        def answers(models: list[Booster]) -> np.ndarray:
            return np.stack([model.inplace_predict(columns) for model in models]) + bases

        pooled = answers(self._pooled)
        if not self._own:
            return pooled
        weights = np.array([_likeness(processor, list(self._own)) for processor in test.processors])[test.processor]
        own = np.stack([answers(models) for models in self._own.values()])
        return np.concatenate([pooled, np.einsum("rp,pmr->mr", weights, own)])


def _likeness(asked: Processor, known: list[Processor]) -> np.ndarray:
    """Weights of known processors, by the distance of their data sheets; 1 for the asked one if it is known."""
    same = np.array([float(processor.name == asked.name) for processor in known])
    distance = np.array([np.linalg.norm(processor.description - asked.description) for processor in known])
    weights: np.ndarray = same if same.any() else np.exp(-((distance - distance.min()) ** 2) / (2 * _SIMILAR**2))
    return np.asarray(weights / weights.sum())


def _distances(asked: Kernels, known: Kernels) -> np.ndarray:
    """From the processor of each row to the nearest that is known, in the logarithms of data sheets; 0 if it is known.

    Processors of one data sheet differ in clocks and power limits: an unknown one is at least `_LEAST_DISTANCE` away.
    """
    numbers = np.unique(known.processor)
    names = {known.processors[number].name for number in numbers}
    there = np.stack([known.processors[number].description for number in numbers])
    each = [
        0.0
        if processor.name in names
        else max(np.linalg.norm(there - processor.description, axis=1).min(), _LEAST_DISTANCE)
        for processor in asked.processors
    ]
    return np.array(each)[asked.processor]


def boost(columns: np.ndarray, targets: np.ndarray, settings: dict[str, Any], rounds: int, seed: int) -> Booster:
    """Gradient boosting, with the settings of xgboost where `settings` has none."""
    library = load_xgboost()
    return library.train({"seed": seed, **settings}, library.DMatrix(columns, targets), rounds)
