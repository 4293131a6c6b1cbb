"""What regressions are told beside an operator's description: what its loops do, and what a model makes of that."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from op_profiler.predict.latency.correction import Correction
from op_profiler.predict.latency.kernel_model import KernelModel
from op_profiler.predict.latency.method import Method
from op_profiler.predict.latency.query import Query
from op_profiler.predict.latency.regression import Fitted, Regressor, fit_all
from op_profiler.predict.latency.roofline import Roofline

_FEWEST = 200
"""Measurements with known loops from which on the model is fitted."""


@dataclasses.dataclass(frozen=True)
class Base:
    """Fitted to one device.

    Attributes:
        kernels: None where the loops of too few measured operators are known.
        correction: for another device than the one that it was fitted to; None: there is none.
    """

    roofline: Roofline
    kernels: KernelModel | None
    correction: Correction | None = None

    @classmethod
    def fit(cls, roofline: Roofline, query: Query, latency_us: np.ndarray, weight: np.ndarray) -> Base:
        """From measurements, one an entry of `query`."""
        if query.has_loops.sum() < _FEWEST:
            return cls(roofline, None)
        kernels = KernelModel.fit(query, latency_us, weight)
        return cls(roofline, kernels)

    def columns(self, query: Query) -> np.ndarray:
        """What regressions see where loops are known, float32: the columns of the query, the loops, and the logarithms
        of the model's two times over the roofline bound."""
        assert self.kernels is not None
        bound = self.roofline.bound_us(query.amounts, query.threads)
        above = np.log(self.kernels.times_us(query) / bound[:, None])
        return np.concatenate([query.columns, query.loops, above.astype(np.float32)], axis=1)

    def trained(
        self, method: Method, seed: int, query: Query, target: np.ndarray, weight: np.ndarray, *, plain: bool = True
    ) -> list[Regressor]:
        """Regressions of `target`: those that see no loops; where the model was fitted, behind them as many that do.

        Args:
            plain: False: none that see no loops, where there are others.
        """
        looped = method.regressors(seed) if self.kernels is not None else []
        models = method.regressors(seed) if plain or not looped else []
        fit_all(models, query.columns, [target] * len(models), weight)
        if looped:
            told = query.has_loops
            columns = self.columns(query.take(told))
            fit_all(looped, columns, [target[told] - _start(n, columns) for n in range(len(looped))], weight[told])
        return [*models, *looped]

    def plain(self, method: Method, models: Sequence[Fitted]) -> Sequence[Fitted]:
        """Of the regressions that `trained` gave those that see no loops."""
        return models if self.kernels is None else models[: len(models) - len(method.regressors(0))]

    def regressed(self, method: Method, models: Sequence[Fitted], query: Query) -> np.ndarray:
        """What the regressions say, shape (entries,): those that see loops where these are known, else the others; NaN
        where there are none. Corrected where they are of another device."""
        if self.correction is None:
            return self._regressed(method, models, query)
        said = self._regressed(method, models, self.correction.seen(query))
        return said + self.correction.predict(query, self.roofline, self.kernels)

    def _regressed(self, method: Method, models: Sequence[Fitted], query: Query) -> np.ndarray:
        found, plain = np.full(len(query), np.nan), self.plain(method, models)
        known = query.has_loops if self.kernels is not None else np.zeros(len(query), dtype=bool)
        if plain and not known.all():
            columns = query.take(~known).columns
            found[~known] = method.combined([model.predict(columns) for model in plain])
        if known.any():
            columns = self.columns(query.take(known))
            looped = [m.predict(columns) + _start(n, columns) for n, m in enumerate(models[len(plain) :])]
            found[known] = method.combined(looped)
        return found


def _start(number: int, columns: np.ndarray) -> np.ndarray:
    """What regression `number` learns the rest of: by turns the model's time by the costs of all kernels, and by those
    of one kind.

    Trees say the same beyond what they have seen. So two that start from different laws are off there in different
    ways, and their mean less than each.
    """
    return columns[:, number % 2 - 2].astype(np.float64)
