"""One method for a new device with few known times: a Gaussian process over the times of known devices.

Devices are draws of one distribution over the items. Its mean and covariance are those of the known devices' times in
the logarithm. The times of the new device condition it (a Gaussian process whose kernel is learned: Minka and Picard,
1997); the level of the device is free. Deviations from the known devices may also be similar for items with similar
features. The size of this similarity, the noise of times, and the quantile of the interval are chosen by leaving out
each known device in turn.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from op_profiler.prediction.latency.trees import boost
from op_profiler.prediction.library.library_predictor import LibraryPrediction
from op_profiler.prediction.sets.public_set import Published, Split

_COVERAGE = 0.9
_NOISES = (0.02, 0.05, 0.1, 0.2)  # standard deviations of the logarithm
_LIKENESSES = (0.0, 0.1, 0.2, 0.4)  # standard deviations of the part that similar items share
_PRIOR_SAMPLES = (2.0, 8.0, 32.0, np.inf)  # weight of the known devices' misfit, in samples of the new device
_DRAWS = 5
_CANDIDATES = 300  # items of a draw, from which the measured items are chosen
_DESIGN = (0.05, 0.1)  # noise and likeness that this choice assumes
_LEVEL = 1.0  # standard deviation of a device's level that this choice assumes
_LEFT_OUT, _JUDGED = 40, 300  # largest numbers of left-out devices, and of items on each
_MOST_ROWS = 50_000
_PASSES = 30  # iterations that fill in the missing times of a table


class TransferProblem:
    """Prediction of the times of items (networks or operators) on new devices, on which a few items are measured.

    Args:
        known: by device, an array for each of its settings (such as batch or threads): microseconds of each item, NaN
            if the item was not measured. All settings of a device are left out together.
        samples: number of items that are measured on a new device.
        items: shape (items, features): features of an item, without a time.
        seed: seed of random choices.
    """

    def __init__(self, known: Mapping[str, Sequence[np.ndarray]], samples: int, items: np.ndarray, seed: int) -> None:
        table = np.concatenate([np.stack(settings) for settings in known.values()])
        self._known, self._measured = completed(np.log(table)), np.isfinite(table)
        self._device = np.repeat(np.arange(len(known)), [len(settings) for settings in known.values()])
        self._samples, self._items, self._seed = samples, items, seed

    def split(self, name: str, times: Sequence[np.ndarray], held_out: str, published: Published | None = None) -> Split:
        """Return a split that predicts the times of items on new devices.

        For each device, several random subsets of the items are drawn. `samples` items of a draw count as measured, and
        the times of all other items are predicted. Rank correlations are computed for each draw separately. If all
        items fit into a draw, there is only one draw.

        Args:
            name, held_out, published: see `Split`.
            times: for each new device, microseconds of each item; NaN if the item was not measured.
        """
        draws = range(_DRAWS if len(self._items) > _CANDIDATES else 1)  # a single draw contains all items otherwise
        asked = [(device, *self._drawn(self._known, device, draw)) for device in times for draw in draws]
        asked = [(device, sampled, rest) for device, sampled, rest in asked if len(rest)]
        return Split(
            name=name,
            held_out=held_out,
            development="each known device in turn",
            trained=int(self._measured.sum()),
            truth_us=np.concatenate([device[rest] for device, _, rest in asked]),
            answer=lambda method: _joined([self._answer(method, *each) for each in asked]),
            published=published,
            ranked=np.repeat(np.arange(len(asked)), [len(rest) for *_, rest in asked]),
        )

    def _drawn(self, known: np.ndarray, device: np.ndarray, draw: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the items that are measured on the new device, and those that are predicted.

        The measured items are those of the draw that leave the smallest variance (greedy design: Krause et al., 2008).
        """
        there = np.random.default_rng((self._seed, draw)).permutation(np.flatnonzero(np.isfinite(device)))
        drawn = there[:_CANDIDATES]
        parts = _parts(known)[:, drawn]
        covariance = _LEVEL**2 + parts.T @ parts + _DESIGN[1] ** 2 * self._alike(drawn, drawn)
        sampled: list[int] = []
        for _ in range(min(self._samples, len(drawn))):
            gain = (covariance**2).sum(axis=0) / (covariance.diagonal() + _DESIGN[0] ** 2)
            gain[sampled] = -np.inf
            best = int(np.argmax(gain))
            sampled.append(best)
            column = covariance[:, best]
            covariance = covariance - np.outer(column, column) / (column[best] + _DESIGN[0] ** 2)
        return drawn[sampled], np.setdiff1d(there, drawn[sampled])

    def _answer(self, method: str, device: np.ndarray, sampled: np.ndarray, rest: np.ndarray) -> LibraryPrediction:
        seen = np.log(device[sampled])
        if method == "default":
            centre, spread, misfit = self._conditioned(self._known, sampled, seen, rest, *self._chosen)
            weight, usual, quantile = self._interval
            width = quantile * spread * _scale(misfit, len(sampled), weight, usual)
            return LibraryPrediction(np.exp(centre), np.exp(centre - width), np.exp(centre + width))
        shape = self._plain if method == "trees" else self._known.mean(axis=0)
        return LibraryPrediction.without_interval(np.exp(shape[rest] + np.median(seen - shape[sampled])))

    @functools.cached_property
    def _plain(self) -> np.ndarray:
        """Return the predictions of trees, from an item's features, for its time relative to the level of a known
        device."""
        devices, items = np.nonzero(self._measured)
        drawn = np.random.default_rng(self._seed).permutation(len(items))[:_MOST_ROWS]
        relative = (self._known - self._known.mean(axis=1, keepdims=True))[devices, items]
        model = boost(self._items[items[drawn]], relative[drawn], {}, 100, self._seed)
        return np.asarray(model.inplace_predict(self._items), dtype=np.float64)

    @functools.cached_property
    def _chosen(self) -> tuple[float, float]:
        """Return noise and likeness with the smallest error on known devices that were left out."""

        def error(choice: tuple[float, float]) -> float:
            return float(np.concatenate([trial.error for trial in self._left_out(*choice)]).mean())

        return min(itertools.product(_NOISES, _LIKENESSES), key=error)

    @functools.cached_property
    def _interval(self) -> tuple[float, float, float]:
        """Return the weight of the known devices' misfit, that misfit, and the quantile of the error divided by the
        scaled standard deviation, on known devices that were left out.

        The weight has the smallest mean interval score (Gneiting and Raftery, 2007).
        """
        left_out = self._left_out(*self._chosen)
        usual = float(np.mean([trial.misfit for trial in left_out]))
        errors = np.concatenate([trial.error for trial in left_out])

        def judged(weight: float) -> tuple[float, float, float, float]:
            scales = [_scale(trial.misfit, self._samples, weight, usual) for trial in left_out]
            spread = np.concatenate([trial.spread * scale for trial, scale in zip(left_out, scales, strict=True)])
            quantile = float(np.quantile(errors / spread, _COVERAGE))
            beyond = np.maximum(errors - quantile * spread, 0.0)
            return float((quantile * spread + beyond / (1 - _COVERAGE)).mean()), weight, usual, quantile

        return min(judged(weight) for weight in _PRIOR_SAMPLES)[1:]

    def _left_out(self, noise: float, likeness: float) -> list[_LeftOut]:
        """Return the errors on each left-out device of `_trials`, predicted from the other known devices."""
        results = []
        for number, sampled, rest in self._trials:
            device, others = self._known[number], self._known[self._device != self._device[number]]
            centre, spread, misfit = self._conditioned(others, sampled, device[sampled], rest, noise, likeness)
            results.append(_LeftOut(np.abs(centre - device[rest]), spread, misfit))
        return results

    @functools.cached_property
    def _trials(self) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """Return known devices that are left out, with the items that are measured on them and those that are
        predicted."""
        drawn = np.random.default_rng(self._seed).permutation(len(self._known))[:_LEFT_OUT]
        trials = []
        for number, draw in itertools.product(drawn, range(_DRAWS)):
            others = self._known[self._device != self._device[number]]
            device = np.where(self._measured[number], self._known[number], np.nan)
            sampled, rest = self._drawn(others, device, draw)
            trials.append((int(number), sampled, rest[:: max(len(rest) // _JUDGED, 1)]))
        return trials

    def _conditioned(
        self,
        known: np.ndarray,
        sampled: np.ndarray,
        seen: np.ndarray,
        wanted: np.ndarray,
        noise: float,
        likeness: float,
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Return mean and standard deviation of the predicted items' logarithms on a new device, and the misfit of the
        measured ones: their variance divided by the assumed variance.

        Args:
            known: shape (devices, items), logarithms, none missing.
            sampled, seen: items that are measured on the new device, and their logarithms.
            wanted: items to predict.
            noise: standard deviation of a time, beyond the common parts of devices and items.
            likeness: standard deviation of the part that items with equal features share.
        """
        mean = (known - known.mean(axis=1, keepdims=True)).mean(axis=0)
        parts = _parts(known)
        covariance = parts[:, sampled].T @ parts[:, sampled] + likeness**2 * self._alike(sampled, sampled)
        inverse = np.linalg.inv(covariance + noise**2 * np.eye(len(sampled)))
        level = (inverse @ (seen - mean[sampled])).sum() / inverse.sum()
        residual = seen - mean[sampled] - level
        misfit = float(residual @ inverse @ residual) / max(len(sampled) - 1, 1)
        cross = parts[:, wanted].T @ parts[:, sampled] + likeness**2 * self._alike(wanted, sampled)
        centre = level + mean[wanted] + cross @ inverse @ residual
        own = (parts[:, wanted] ** 2).sum(axis=0) + likeness**2 - np.einsum("as,st,at->a", cross, inverse, cross)
        unknown_level = (1 - (cross @ inverse).sum(axis=1)) ** 2 / inverse.sum()
        return centre, np.sqrt(np.maximum(own, 0) + unknown_level + noise**2), misfit

    def _alike(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the similarity of items by their features, 1 for equal ones, shape (one, other)."""
        distance = ((self._scaled[one][:, None] - self._scaled[other][None]) ** 2).sum(axis=2)
        alike: np.ndarray = np.exp(-distance / max(self._scaled.shape[1], 1))
        return alike

    @functools.cached_property
    def _scaled(self) -> np.ndarray:
        spread = self._items.std(axis=0)
        scaled: np.ndarray = self._items[:, spread > 0] / spread[spread > 0]
        return scaled


@dataclasses.dataclass(frozen=True)
class _LeftOut:
    """A known device that was left out: errors and standard deviations of logarithms, and the misfit of its samples."""

    error: np.ndarray
    spread: np.ndarray
    misfit: float


def _scale(misfit: float, samples: int, weight: float, usual: float) -> float:
    """Return the factor of a device's standard deviations: the square root of the weighted mean of its misfit and the
    usual misfit."""
    share = (samples - 1) / (samples - 1 + weight)
    return float(np.sqrt(share * misfit + (1 - share) * usual))


def _parts(known: np.ndarray) -> np.ndarray:
    """Return P of the covariance P^T P: logarithms of the known devices without their levels and their mean, scaled."""
    shapes = known - known.mean(axis=1, keepdims=True)
    parts: np.ndarray = (shapes - shapes.mean(axis=0)) / np.sqrt(max(len(known) - 1, 1))
    return parts


def completed(table: np.ndarray) -> np.ndarray:
    """Return a table of logarithms with its missing entries filled.

    A missing entry is estimated from the level of its row, the mean of its column, and the table's main principal
    components.

    Args:
        table: shape (rows, columns); a missing entry is not finite.
    """
    missing = ~np.isfinite(table)
    if not missing.any():
        return table
    columns = np.nanmean(table - np.nanmean(table, axis=1, keepdims=True), axis=0)
    levels = np.nanmean(table - columns, axis=1, keepdims=True)
    filled = np.where(missing, levels + columns, table)
    for _ in range(_PASSES):
        centre = filled.mean(axis=0)
        left, sizes, right = np.linalg.svd(filled - centre, full_matrices=False)
        kept = np.maximum(sizes - np.median(sizes), 0.0)
        filled = np.where(missing, centre + (left * kept) @ right, table)
    return filled


def _joined(parts: Sequence[LibraryPrediction]) -> LibraryPrediction:
    fields = [field.name for field in dataclasses.fields(LibraryPrediction)]
    return LibraryPrediction(*(np.concatenate([getattr(part, name) for part in parts]) for name in fields))
