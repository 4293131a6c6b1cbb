"""`Base`: inputs of regressions besides an operator's description: columns of its loops, and modelled times."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from op_profiler.prediction.latency.correction import Correction
from op_profiler.prediction.latency.kernel_model import KernelModel
from op_profiler.prediction.latency.launch_model import LaunchModel
from op_profiler.prediction.latency.method import Method
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.regression import Fitted, Regressor, fit_all
from op_profiler.prediction.latency.roofline import Roofline
from op_profiler.prediction.latency.vectors import in_other_vectors

FEWEST_WITH_LOOPS = 200
"""If fewer measurements have known loops, no model of kernels is fitted."""
_OWN = 0
"""Index of the device to predict for; the other devices in the training data have higher indices."""


@dataclasses.dataclass(frozen=True)
class Base:
    """Analytic models of one device, fitted to its measurements; regressions use their results as inputs.

    Attributes:
        kernels: model of kernels on a processor or a GPU; None if the loops of too few measured operators are known.
        correction: correction for another device than the one that the models were fitted to, or for a device with few
            measurements; None without a correction.
        vector_ratio: factor by which the vectors in operator descriptions are lengthened for the regressions, see
            `op_profiler.prediction.latency.vectors`.
    """

    roofline: Roofline
    kernels: KernelModel | LaunchModel | None
    correction: Correction | None = None
    vector_ratio: float = 1.0

    @classmethod
    def fit(
        cls,
        roofline: Roofline,
        query: Query,
        latency_us: np.ndarray,
        weight: np.ndarray,
        like: Sequence[tuple[KernelModel, float]] = (),
        multiprocessors: int | None = None,
    ) -> Base:
        """Fit the models to measurements, one per entry of `query`.

        Args:
            like: kernel models of other processors, see `KernelModel.fit`.
            multiprocessors: number of multiprocessors of a GPU; None for a processor.
        """
        if query.has_loops.sum() < FEWEST_WITH_LOOPS:
            return cls(roofline, None)
        if multiprocessors is not None:
            return cls(roofline, LaunchModel.fit(query, latency_us, weight, multiprocessors))
        return cls(roofline, KernelModel.fit(query, latency_us, weight, like))

    def columns(self, query: Query, device: int = _OWN) -> np.ndarray:
        """Return the columns of entries that all have known loops, float32, shape (entries, columns).

        These are the columns of `plain_columns`, the columns of the loops, and the logarithms of the two times of
        `KernelModel.times_us`, each divided by the roofline bound.

        Args:
            device: index of the device that the entries ran on.
        """
        assert self.kernels is not None
        bound = self.roofline.bound_us(query.amounts, query.threads)
        above = np.log(self.kernels.times_us(query) / bound[:, None])
        of_loops = self.kernels.regression_columns(query)
        return np.concatenate([self.plain_columns(query, device), of_loops, above.astype(np.float32)], axis=1)

    def all_columns(self, query: Query) -> np.ndarray:
        """Return the columns of all entries of `query`, float32, shape (entries, columns).

        These are the columns of the method `columns`. Columns that need loops are zero for entries whose loops are
        unknown. If there is no kernel model, these are the columns of `plain_columns`.
        """
        if self.kernels is None:
            return self.plain_columns(query)
        if query.has_loops.all():
            return self.columns(query)
        return np.nan_to_num(self.columns(query))

    def plain_columns(self, query: Query, device: int = _OWN) -> np.ndarray:
        """Return the columns that do not depend on loops, float32: those of `Query.columns`, and the index `device`."""
        seen = query.columns if self.vector_ratio == 1.0 else in_other_vectors(query.columns, self.vector_ratio)
        return np.column_stack([seen, np.full(len(query), device, dtype=np.float32)])

    def models_of(self, method: Method) -> int:
        """Return the number of regressions that `trained` returns."""
        return len(method.regressors(0)) * (1 if self.kernels is None else 2)

    def plain(self, method: Method, models: Sequence[Fitted]) -> Sequence[Fitted]:
        """Return the regressions of `models` (result of `trained`) that use no loop columns."""
        return models if self.kernels is None else models[: len(models) - len(method.regressors(0))]

    def regressed(self, method: Method, models: Sequence[Fitted], query: Query) -> np.ndarray:
        """Return log(time over roofline bound) of each entry, estimated by `models` and then corrected by `correction`
        if there is one.

        Regressions with loop columns are used for entries whose loops are known, the others for the other entries.

        Args:
            models: result of `trained`.

        Returns:
            NaN for entries without a suitable regression.
        """
        if self.correction is None:
            return self._regressed(method, models, query)
        estimates = self._regressed(method, models, self.correction.seen(query))
        return estimates + self.correction.predict(query, self.roofline, self.kernels)

    def _regressed(self, method: Method, models: Sequence[Fitted], query: Query) -> np.ndarray:
        found, plain = np.full(len(query), np.nan), self.plain(method, models)
        known = query.has_loops if self.kernels is not None else np.zeros(len(query), dtype=bool)
        if plain and not known.all():
            columns = self.plain_columns(query.take(~known))
            found[~known] = method.combined([model.predict(columns) for model in plain])
        if known.any():
            columns = self.columns(query.take(known))
            looped = [m.predict(columns) + _start(n, columns) for n, m in enumerate(models[len(plain) :])]
            found[known] = method.combined(looped)
        return found


@dataclasses.dataclass(frozen=True)
class TrainingSet:
    """Measurements of one device to train regressions on, one per entry.

    Attributes:
        base: analytic models of that device.
        query: the measured operators.
        target: logarithm of the time over the roofline bound.
        weight: weight of each entry.
    """

    base: Base
    query: Query
    target: np.ndarray
    weight: np.ndarray

    def take(self, mask: np.ndarray) -> TrainingSet:
        """Return the training set of the entries that a mask selects."""
        return dataclasses.replace(
            self, query=self.query.take(mask), target=self.target[mask], weight=self.weight[mask]
        )


def trained(method: Method, seed: int, sets: Sequence[TrainingSet], *, plain: bool = True) -> list[Regressor]:
    """Train regressions without loop columns and, if the kernel model was fitted, as many with loop columns.

    The regressions learn the difference between the measured times and the analytic models of a device. Much of this
    difference is the same on all processors, so measurements on other processors help; a column identifies the device
    of an entry.

    Args:
        sets: first the measurements of the device to predict for, then those of other devices.
        plain: whether to train regressions without loop columns even if regressions with loop columns are trained.
    """
    looped = method.regressors(seed) if sets[_OWN].base.kernels is not None else []
    models = method.regressors(seed) if plain or not looped else []
    if models:
        columns = np.concatenate([one.base.plain_columns(one.query, device) for device, one in enumerate(sets)])
        target, weight = (np.concatenate([getattr(one, name) for one in sets]) for name in ("target", "weight"))
        fit_all(models, columns, [target] * len(models), weight)
    if looped:
        looped_sets = {
            device: one.take(one.query.has_loops) for device, one in enumerate(sets) if one.base.kernels is not None
        }
        columns = np.concatenate([one.base.columns(one.query, device) for device, one in looped_sets.items()])
        target, weight = (
            np.concatenate([getattr(one, name) for one in looped_sets.values()]) for name in ("target", "weight")
        )
        fit_all(looped, columns, [target - _start(n, columns) for n in range(len(looped))], weight)
    return [*models, *looped]


def _start(number: int, columns: np.ndarray) -> np.ndarray:
    """Return the modelled time whose error regression `number` learns.

    Odd and even regressions use two models of the time: by the costs of all kernels, and by those of one kind of
    kernels. Beyond the sizes that were measured, trees predict a constant. Two regressions that start from different
    models are then wrong in different ways, and the mean of both has a smaller error than each.
    """
    return columns[:, number % 2 - 2].astype(np.float64)
