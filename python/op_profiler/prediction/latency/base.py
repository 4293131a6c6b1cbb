"""`Base`: what regressions see besides an operator's description: columns of its loops, and modelled times."""

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
"""Measurements with known loops from which on the model is fitted."""
_OWN = 0
"""The device that is asked about; others that it is learned from have the numbers behind it."""


@dataclasses.dataclass(frozen=True)
class Base:
    """What regressions need of one device, fitted to it.

    Attributes:
        kernels: of a processor, or of a GPU; None where the loops of too few measured operators are known.
        correction: for another device than the one that it was fitted to, or for one that few measurements are of;
            None: there is none.
        vector_ratio: how much longer the vectors are in which regressions see operators, see
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
        """Fit to measurements, one per entry of `query`.

        Args:
            like: of other processors, see `KernelModel.fit`.
            multiprocessors: of a GPU; None of a processor.
        """
        if query.has_loops.sum() < FEWEST_WITH_LOOPS:
            return cls(roofline, None)
        if multiprocessors is not None:
            return cls(roofline, LaunchModel.fit(query, latency_us, weight, multiprocessors))
        return cls(roofline, KernelModel.fit(query, latency_us, weight, like))

    def columns(self, query: Query, device: int = _OWN) -> np.ndarray:
        """Return the float32 columns of entries with known loops: `plain_columns`, columns of the loops, and the
        logarithms of the model's two times over the roofline bound."""
        assert self.kernels is not None
        bound = self.roofline.bound_us(query.amounts, query.threads)
        above = np.log(self.kernels.times_us(query) / bound[:, None])
        told = self.kernels.told(query)
        return np.concatenate([self.plain_columns(query, device), told, above.astype(np.float32)], axis=1)

    def plain_columns(self, query: Query, device: int = _OWN) -> np.ndarray:
        """Return the float32 columns of entries without loops: those of the query, and the number of the device."""
        seen = query.columns if self.vector_ratio == 1.0 else in_other_vectors(query.columns, self.vector_ratio)
        return np.column_stack([seen, np.full(len(query), device, dtype=np.float32)])

    def models_of(self, method: Method) -> int:
        """Return the number of regressions that `trained` returns."""
        return len(method.regressors(0)) * (1 if self.kernels is None else 2)

    def plain(self, method: Method, models: Sequence[Fitted]) -> Sequence[Fitted]:
        """Return the regressions without loop columns from those of `trained`."""
        return models if self.kernels is None else models[: len(models) - len(method.regressors(0))]

    def regressed(self, method: Method, models: Sequence[Fitted], query: Query) -> np.ndarray:
        """Return the estimates of the regressions, shape (entries,), corrected if there is a correction: with loop
        columns where loops are known; NaN without regressions."""
        if self.correction is None:
            return self._regressed(method, models, query)
        said = self._regressed(method, models, self.correction.seen(query))
        return said + self.correction.predict(query, self.roofline, self.kernels)

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
class Lesson:
    """Measurements of one device, one an entry.

    Attributes:
        base: of that device.
        target: logarithm of the time over the bound of the base's roofline.
        weight: how much each counts.
    """

    base: Base
    query: Query
    target: np.ndarray
    weight: np.ndarray

    def take(self, mask: np.ndarray) -> Lesson:
        """The entries of a mask."""
        return dataclasses.replace(
            self, query=self.query.take(mask), target=self.target[mask], weight=self.weight[mask]
        )


def trained(method: Method, seed: int, lessons: Sequence[Lesson], *, plain: bool = True) -> list[Regressor]:
    """Regressions of the targets: those that see no loops; where the model was fitted, behind them as many that do.

    They learn what a device's laws leave. Much of that is the same on every processor, so measurements on others teach
    too; a column says of which device they are.

    Args:
        lessons: first those of the device that will be asked about.
        plain: False: none that see no loops, where there are others.
    """
    looped = method.regressors(seed) if lessons[_OWN].base.kernels is not None else []
    models = method.regressors(seed) if plain or not looped else []
    if models:
        columns = np.concatenate([one.base.plain_columns(one.query, device) for device, one in enumerate(lessons)])
        target, weight = (np.concatenate([getattr(one, name) for one in lessons]) for name in ("target", "weight"))
        fit_all(models, columns, [target] * len(models), weight)
    if looped:
        told = {
            device: one.take(one.query.has_loops) for device, one in enumerate(lessons) if one.base.kernels is not None
        }
        columns = np.concatenate([one.base.columns(one.query, device) for device, one in told.items()])
        target, weight = (
            np.concatenate([getattr(one, name) for one in told.values()]) for name in ("target", "weight")
        )
        fit_all(looped, columns, [target - _start(n, columns) for n in range(len(looped))], weight)
    return [*models, *looped]


def _start(number: int, columns: np.ndarray) -> np.ndarray:
    """What regression `number` learns the rest of: by turns the model's time by the costs of all kernels, and by those
    of one kind.

    Trees say the same beyond what they have seen. So two that start from different laws are off there in different
    ways, and their mean less than each.
    """
    return columns[:, number % 2 - 2].astype(np.float64)
