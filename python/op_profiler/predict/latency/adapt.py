"""A predictor for a device of which only a few operators were measured.

Another device's predictor says how operators compare with each other; what the new device changes about that is learned
from the few: the logarithm of measured over predicted is a Gaussian process over the size and kind of the operator
(Rasmussen & Williams, 2006, chapter 2), which returns to the mean correction where nothing similar was measured.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.errors import DatasetError, MissingPackageError, OpProfilerError, UsageError
from op_profiler.predict.latency.examples import Examples
from op_profiler.predict.latency.features import KINDS, NAMES
from op_profiler.predict.latency.fit import fingerprint, measured_of
from op_profiler.predict.latency.intervals import Spread, conformal_quantile
from op_profiler.predict.latency.predictor import Predictor, query_of
from op_profiler.predict.latency.query import SETTING_NAMES
from op_profiler.predict.latency.regression import Fitted, combined

_FEWEST = 5
_FOLDS = 10
_COLUMNS = [*NAMES, *SETTING_NAMES]
_USED = [
    _COLUMNS.index(name) for name in ("flops", "input_bytes", "weight_bytes", "output_bytes", "last_out", "threads")
]
_KINDS = [_COLUMNS.index(f"is_{kind}") for kind in KINDS]
_KIND_DISTANCE = 3.0
"""How far two kinds are apart, in powers of two of an operator's size."""


class _Corrected:
    """Another device's regressions plus what the few measurements say about the difference."""

    def __init__(self, base: Sequence[Fitted], choice: str, process: Any) -> None:
        self._base = base
        self._choice = choice
        self._process = process

    def predict(self, columns: np.ndarray) -> np.ndarray:
        base = combined(self._choice, [model.predict(columns) for model in self._base])
        correction: np.ndarray = self._process.predict(_places(columns))
        return base + correction

    def to_bytes(self) -> bytes:
        raise UsageError("an adapted predictor is not kept in a file; keep the dataset and give --adapt again")


def adapted(source: Predictor, target: Examples) -> Predictor:
    """The predictor of one device for another.

    Args:
        source: with regressions.
        target: a few measurements on the new device, at thread counts that the source knows.

    Raises:
        DatasetError: too few of them.
        UsageError: the source regresses nothing.
    """
    _need_sklearn()
    query = query_of(target)
    usable = np.isin(query.threads, source.thread_counts)
    if not source.models:
        raise UsageError("only a predictor with regressions can be adapted; leave out --predictor")
    if usable.sum() < _FEWEST:
        raise DatasetError(
            f"{int(usable.sum())} measurements at {source.thread_counts} threads are too few to adapt to; "
            f"measure at least {_FEWEST} operators with op-profiler sample"
        )
    query, few = query.take(usable), target.where(usable)
    bound = source.roofline.bound_us(query.amounts, query.threads)
    base = combined(source.choice, [model.predict(query.columns) for model in source.models])
    difference = np.log(few.latency_us / bound) - base
    places = _places(query.columns)
    errors = np.empty(len(difference))
    folds = np.arange(len(difference)) % min(_FOLDS, len(difference))
    for fold in np.unique(folds):
        process = _process().fit(places[folds != fold], difference[folds != fold])
        errors[folds == fold] = difference[folds == fold] - process.predict(places[folds == fold])
    width = conformal_quantile(np.abs(errors))
    device = few.devices[int(few.device[0])]
    return dataclasses.replace(
        source,
        device=device,
        models=[_Corrected(source.models, source.choice, _process().fit(places, difference))],
        measured=measured_of(few, query),
        interpolation=None,
        spread=Spread(None, {}, source.spread.typical_above_bound + float(np.median(difference)), width),
        network_scale=1.0,
        fingerprint=fingerprint(few),
    )


def chosen_samples(examples: Examples, count: int, *, seed: int = 0) -> Examples:
    """The measurements of `count` operators that stand for all of them: the nearest to the centres of k-means.

    Raises:
        OpProfilerError: there are fewer operators.
    """
    _need_sklearn()
    from sklearn.cluster import KMeans

    present = np.unique(examples.operator)
    if count > len(present):
        raise OpProfilerError(f"--adapt {count}: the dataset has only {len(present)} operators of that device")
    query = query_of(examples)
    first = np.array([np.flatnonzero(examples.operator == operator)[0] for operator in present])
    places = _places(query.columns[first])
    means = KMeans(count, n_init=1, random_state=seed).fit(places)
    chosen = []
    for centre in range(count):
        mine = np.flatnonzero(means.labels_ == centre)
        distances = ((places[mine] - means.cluster_centers_[centre]) ** 2).sum(axis=1)
        chosen.append(present[mine[np.argmin(distances)]])
    return examples.where(np.isin(examples.operator, chosen))


def _need_sklearn() -> None:
    if importlib.util.find_spec("sklearn") is None:
        raise MissingPackageError("scikit-learn", "adapting a predictor", extra="predict")


def _places(columns: np.ndarray) -> np.ndarray:
    kinds = columns[:, _KINDS] * _KIND_DISTANCE
    return np.concatenate([columns[:, _USED], kinds], axis=1).astype(np.float64)


def _process() -> Any:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(0.3, (1e-6, 100.0)) * RBF(4.0, (0.5, 100.0)) + WhiteKernel(0.05, (1e-5, 10.0))
    return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
