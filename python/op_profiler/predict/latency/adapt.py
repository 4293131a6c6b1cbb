"""A predictor for a device of which only a few operators were measured.

Another device's predictor says how operators compare with each other; what the new device changes about that is learned
from the few, as the logarithm of measured over predicted. First come the few things that make one device differ from
another in everything (arithmetic against memory, the number of threads) and each kind of operator, all shrunk towards
one common factor as far as the few say too little: Bayesian ridge regression (MacKay, Bayesian interpolation, Neural
Computation 4, 1992). Boosted trees of the shape then learn what is left. The description of an operator is put in the
vectors of the device that is known first, see `op_profiler.predict.latency.vectors`.
"""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Sequence

import numpy as np

from op_profiler.errors import DatasetError, MissingPackageError, OpProfilerError, UsageError
from op_profiler.operators.operator import Operator
from op_profiler.predict.latency.corrected import Corrected
from op_profiler.predict.latency.devices import DeviceName
from op_profiler.predict.latency.examples import Examples
from op_profiler.predict.latency.features import KINDS, NAMES
from op_profiler.predict.latency.fit import fingerprint, measured_of, weights_of
from op_profiler.predict.latency.intervals import COVERAGE, Spread, conformal_quantile
from op_profiler.predict.latency.predictor import Predictor, query_of
from op_profiler.predict.latency.query import SETTING_NAMES, Query

_FEWEST = 5
_FOLDS = 10
_COLUMNS = [*NAMES, *SETTING_NAMES]
_USED = [
    _COLUMNS.index(name) for name in ("flops", "input_bytes", "weight_bytes", "output_bytes", "last_out", "threads")
]
_KINDS = [_COLUMNS.index(f"is_{kind}") for kind in KINDS]
_KIND_DISTANCE = 3.0
"""How far two kinds are apart, in powers of two of an operator's size."""


def adapted(source: Predictor, target: Examples) -> Predictor:
    """The predictor of one device for another.

    Args:
        source: with regressions.
        target: a few measurements on the new device, at thread counts that the source knows, in its usual state
            (`op_profiler.predict.latency.steady_times.steady`).

    Raises:
        DatasetError: too few of them.
        UsageError: the source regresses nothing.
    """
    _need_sklearn()
    query = query_of(target)
    usable = np.isin(query.threads, source.thread_counts)
    if not source.models:
        raise UsageError("only a predictor with regressions can be adapted; leave out --predictor")
    query, few = query.take(usable), target.where(usable)
    count = len(np.unique(few.operator))
    if count < _FEWEST:
        raise DatasetError(
            f"{count} operators at {source.thread_counts} threads are too few to adapt to; measure at least {_FEWEST} "
            "with op-profiler sample, and give --adapt as many"
        )
    device = few.devices[int(few.device[0])]
    above_bound = np.log(few.latency_us / source.roofline.bound_us(query.amounts, query.threads))
    # Nothing is said of its loops: the source has not learned what they mean on the new device.
    plain = source.base.plain(source.method, source.models)
    corrected = Corrected(source.choice, plain, source.roofline, _vector_ratio(source.device, device))
    # The source is closer than usual on operators that it has learned from.
    learned = source.measured.find(query)[0] | source.measured.find(query.sampled())[0]
    seen = np.where(learned, source.spread.half_width(query, "regressed"), 0.0)
    width = _half_width(corrected, few.operator, query.columns, above_bound, weights_of(few), seen)
    corrected.fit(query.columns, above_bound, weights_of(few))
    return dataclasses.replace(
        source,
        device=device,
        base=dataclasses.replace(source.base, kernels=None),
        models=[corrected],
        measured=measured_of(few, query),
        interpolation=None,
        spread=Spread(None, {}, float(np.median(above_bound)), width),
        network_scale=1.0,
        fingerprint=fingerprint(few),
    )


def _vector_ratio(known: DeviceName, new: DeviceName) -> float:
    """How much longer the vectors of the device are that is known; 1 where one of the two is no processor."""
    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.targets import TARGETS
    from op_profiler.targets.target import resolve_target

    processors = {name for name, kind in TARGETS.available() if kind.on_host}
    if known.target == new.target or not {known.kind, new.kind} <= processors:
        return 1.0
    lanes = compiler_in_use().vector_lanes
    return lanes(resolve_target(known.target)) / lanes(resolve_target(new.target))


def _half_width(
    model: Corrected,
    operator: np.ndarray,
    columns: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    hidden: np.ndarray,
) -> float:
    """What covers the errors of operators that were held out, with all their thread counts together.

    `hidden` is the part of each error that does not show, for another reason than those that do: their squares add up.

    The quantile is taken over operators, by the largest error of each: two times of one operator say little more than
    one (Dunn, Wasserman & Ramdas, Distribution-free prediction sets for two-layer hierarchical models, JASA 118, 2023).
    """
    distinct, group = np.unique(operator, return_inverse=True)
    fold = np.random.default_rng(0).permutation(len(distinct))[group] % min(_FOLDS, len(distinct))
    errors = np.empty(len(target))
    for number in np.unique(fold):
        held = fold == number
        model.fit(columns[~held], target[~held], weight[~held])
        errors[held] = np.hypot(model.predict(columns[held]) - target[held], hidden[held])
    largest = np.zeros(len(distinct))
    np.maximum.at(largest, group, errors)
    return conformal_quantile(largest, COVERAGE)


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


def places_of(operators: Sequence[Operator]) -> np.ndarray:
    """Operators as points, those that behave alike near each other; shape (operators, dimensions)."""
    return _places(Query.of(operators).columns)


def _places(columns: np.ndarray) -> np.ndarray:
    kinds = columns[:, _KINDS] * _KIND_DISTANCE
    return np.concatenate([columns[:, _USED], kinds], axis=1).astype(np.float64)
