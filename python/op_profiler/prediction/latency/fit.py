"""`fit`: computes held-out errors, for intervals and the choice of sources; then fits a predictor to all examples."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence

import numpy as np

from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.errors import DatasetError
from op_profiler.prediction.latency import PREDICTORS
from op_profiler.prediction.latency.base import Base, TrainingSet, trained
from op_profiler.prediction.latency.correction import MOST_LEARNED, Correction
from op_profiler.prediction.latency.coverage import Coverage, operators_with, ops_in
from op_profiler.prediction.latency.devices import DeviceName, measure_with
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.held_out_errors import TrainingSetOf, held_out_errors
from op_profiler.prediction.latency.interpolation import Interpolation, families_of
from op_profiler.prediction.latency.intervals import Spread, conformal_quantile, first_half, sum_correlation
from op_profiler.prediction.latency.kernel_model import KernelModel
from op_profiler.prediction.latency.launching import Launching
from op_profiler.prediction.latency.likeness import as_if_here, likeness
from op_profiler.prediction.latency.method import Method
from op_profiler.prediction.latency.operator_predictor import MeasuredTimes, OperatorPredictor, query_of
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.roofline import Roofline
from op_profiler.prediction.latency.steady_times import at_reference_state
from op_profiler.prediction.latency.vectors import vector_ratio
from op_profiler.targets.target import kind_of

_FOLDS = 5
_FEWEST_ROWS = 25
_FEWEST_IN_FAMILY = 15
_FEWEST_NETWORKS = 9
_LENGTHS_US = (5.0, 20.0, 100.0)
_FEWEST_REPEATED = 20
_UNKNOWN_SPREAD = 0.1
_LIGHT_US = 5.0
"""The time of a shorter operator is mostly call overhead; shorter operators have a smaller weight in a fit."""
_LEAST_WEIGHT, _IN_NETWORK, _MOST_OF_PART = 0.3, 3.0, 3.0
_ELSEWHERE = 0.3
"""Smallest weight of a measurement on another device, relative to a measurement on the device itself."""
_FEW_NETWORKS = 40
"""If fewer networks of a processor were measured, all measurements of other processors are added to its training data.
This reduced the errors on a processor with 18 networks much; on one with 66 networks it made no difference."""
_FEW_WITH_OP = 50
"""If fewer operators of a processor have an op, other processors' operators with this op are added to its training
data, independent of the number of its networks."""
_DIGESTED = (
    *("threads", "latency_us", "half_width", "steady_us", "occurrences", "traffic_bytes", "working_set_bytes"),
    *("reference_bytes", "whole_model_us"),
)
"""Fields of a measurement that a fit depends on, besides its operator, its model and the reference kernels."""


def fit(
    examples: Examples,
    *,
    choice: str = "default",
    seed: int = 0,
    folds: int = _FOLDS,
    others: Sequence[Examples] = (),
) -> OperatorPredictor:
    """Fit a predictor to the measurements of one device.

    Args:
        choice: one of `PREDICTORS`.
        folds: number of groups into which the models are divided to compute held-out errors.
        others: measurements of other devices, one device each, under targets that all have the same vector length. They
            are used only to train the regressions (`_training_sets`), not for look-ups, interpolation or the analytic
            models. If `examples` has at most `MOST_LEARNED` measurements, the regressions are corrected by their errors
            on held-out measurements of `examples`.

    Raises:
        DatasetError: there are no or too few measurements, or several devices.
        UnknownNameError: there is no such choice.
    """
    method = PREDICTORS.get(choice)
    device = _only_device(examples)
    examples = at_reference_state(examples)
    query = query_of(examples)
    training_set_of, elsewhere = _training_sets(examples, query, others)
    own = training_set_of(examples, query)
    target, families = own.target, families_of(query)
    measured = measured_of(examples, query)
    held = held_out_errors(examples, own, training_set_of, elsewhere, measured, families, method, seed, folds)
    base, held.by_source["regressed"] = _corrected(own, elsewhere, held.by_source["regressed"])
    trusted, judged, used = _chosen_sources(method, families, held.by_source, first_half(query))
    least_us = own.base.roofline.least_us(query.amounts, query.threads, device.cache_bytes)
    main_costs = base.kernels.main_costs(query) if isinstance(base.kernels, KernelModel) else None
    coverage = Coverage.of(query, [one.query for one in elsewhere], main_costs)
    above_least, odd = np.log(examples.latency_us / least_us), coverage.in_no_network(query)
    judged_errors = dataclasses.replace(held, by_source=judged)
    spread, half_width = Spread.of(query, base.all_columns, judged_errors, target, above_least, odd)
    correlation, widening = _of_networks(examples, used, half_width)
    return OperatorPredictor(
        device=device,
        choice=choice,
        base=base,
        measured=measured,
        models=trained(method, seed, [own, *elsewhere]),
        interpolation=Interpolation(query, families, target) if method.interpolates != "nowhere" else None,
        interpolated_families=trusted,
        coverage=coverage,
        spread=spread.widened(widening),
        correlation=correlation,
        median_traffic_bytes=_median_traffic_bytes(examples),
        fingerprint=fingerprint(examples),
        launching=Launching.of(examples),
    )


def _chosen_sources(
    method: Method, families: np.ndarray, errors: Mapping[str, np.ndarray], chosen_on: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Choose the families of operators that are interpolated; all others are estimated by regressions.

    Families are chosen on one half of the operators, and their errors are those of the other half.

    Args:
        errors: held-out errors by source.
        chosen_on: mask of the half that families are chosen on.

    Returns:
        The chosen families, the errors by source that determine intervals, and the error of each entry's source.
    """
    regressed = errors["regressed"]
    if not method.regressor_types and method.interpolates != "nowhere":
        regressed = errors["interpolated"]
    trusted = _better_interpolated(families, errors, chosen_on)
    selects = method.interpolates == "where better"
    usable = np.isin(families, trusted) if selects else np.ones(len(families), dtype=bool)
    interpolated = np.where(usable, errors["interpolated"], np.nan)
    judged = np.where(chosen_on & selects, np.nan, interpolated)
    used = np.where(np.isfinite(interpolated), interpolated, regressed)
    return trusted, {**errors, "regressed": regressed, "interpolated": judged}, used


def _only_device(examples: Examples) -> DeviceName:
    """Return the device of all measurements.

    Raises:
        DatasetError: as `fit`, for too few measurements or several devices.
    """
    devices = [examples.devices[at] for at in np.unique(examples.device)]
    if len(devices) != 1 or len(examples) < _FEWEST_ROWS:
        compiler = devices[0].compiler if devices else DEFAULT_COMPILER
        raise DatasetError(
            f"a predictor needs at least {_FEWEST_ROWS} measurements on one device; there are {len(examples)} on "
            f"{len(devices)}. Measure operators with: {measure_with(compiler)}"
        )
    return devices[0]


def examples_of_other_processors(examples: Examples, ships: Sequence[Examples]) -> list[Examples]:
    """Return those of `ships` that are of another processor than `examples`; they are suitable as `others` of `fit`.

    Args:
        ships: included measurements, of one processor each.
    """
    own = examples.only_device.processor
    return [one for one in ships if one.only_device.processor != own]


def _training_sets(
    examples: Examples, query: Query, others: Sequence[Examples]
) -> tuple[TrainingSetOf, list[TrainingSet]]:
    """Return a function that creates training data from measurements of the device to predict for, and the training
    data of the other devices.

    If fewer than `_FEW_NETWORKS` networks of the device were measured, all measurements of the other devices are used.
    Otherwise, only operators with ops that few operators of the device have are used, and only of devices with the same
    vector length.

    Args:
        query: `query_of` of all `examples`.
    """
    others = [at_reference_state(one) for one in others if len(one)]
    first, *_ = [one.only_device for one in (*others, examples)]
    ratio = vector_ratio(first, examples.only_device)
    here, *peaks_of = (one.only_device.peaks for one in (examples, *others))
    elsewhere = [
        _training_set(one, query_of(one), weight=max(_ELSEWHERE, likeness(peaks, here)))
        for one, peaks in zip(others, peaks_of)
    ]
    if len({examples.models[at] for at in np.unique(examples.model) if not examples.sampled[at]}) >= _FEW_NETWORKS:
        alike = elsewhere if ratio == 1.0 else []  # a few operators do not justify a conversion of own vectors
        return _training_set, [one.take(_has_rare_op(one.query, query)) for one in alike]
    like = [
        (as_if_here(one.base.kernels, peaks, here), likeness(peaks, here))
        for one, peaks in zip(elsewhere, peaks_of)
        if isinstance(one.base.kernels, KernelModel)
    ]
    return functools.partial(_training_set, vector_ratio=ratio, like=like), elsewhere


def _has_rare_op(query: Query, own: Query) -> np.ndarray:
    """Return the mask of the entries of `query` with an op that fewer than `_FEW_WITH_OP` operators of `own` have."""
    counts = operators_with(own)
    rare = [any(counts[op] < _FEW_WITH_OP for op in ops_in(words)) for words in query.op_sets]
    return np.array(rare, dtype=bool)[query.vocabulary]


def _training_set(
    examples: Examples,
    query: Query,
    vector_ratio: float = 1.0,
    weight: float = 1.0,
    like: Sequence[tuple[KernelModel, float]] = (),
) -> TrainingSet:
    """Return the training data from one device's measurements; `like` is the argument of `KernelModel.fit`."""
    device = examples.only_device
    roofline = Roofline.of(query.amounts, query.threads, examples.latency_us, device.peaks, device.cache_bytes)
    weights = weights_of(examples)
    # If the number of multiprocessors is unknown, costs are those of all multiprocessors together.
    multiprocessors = (device.cores or 1) if kind_of(device.target).on_gpu else None
    base = Base.fit(roofline, query, examples.latency_us, weights, like, multiprocessors)
    base = dataclasses.replace(base, vector_ratio=vector_ratio)
    target = np.log(examples.latency_us / roofline.bound_us(query.amounts, query.threads))
    return TrainingSet(base, query, target, weight * weights)


def weights_of(examples: Examples) -> np.ndarray:
    """Return the weight of each measurement in a fit, shape (entries,).

    In a batch of sampled operators, the weight is between 0.3 and 1 and increases with the time, because the time of a
    short operator is mostly call overhead. In a network, the weight is three times the square root of a ratio: the
    operator's share of the network's time over the mean share. Operators that take most of the time must be predicted
    most accurately; in a network of microseconds, these are short operators.
    """
    short = np.clip(examples.latency_us / _LIGHT_US, _LEAST_WEIGHT, 1.0)
    run, time = examples.run, examples.latency_us * examples.occurrences
    part = time / np.bincount(run, time)[run] * np.bincount(run)[run]
    of_network = _IN_NETWORK * np.clip(np.sqrt(part), _LEAST_WEIGHT, _MOST_OF_PART)
    return np.where(examples.sampled[examples.model], short, of_network)


def fingerprint(examples: Examples) -> str:
    """Return a digest (16 hex digits) of the measurements without their loops; their order does not matter."""
    keys = np.array([int(o.key, 16) for o in examples.operators], dtype=np.uint64)[examples.operator]
    columns = [examples.launches[examples.operator], examples.sampled[examples.model]]
    columns += [getattr(examples, name) for name in _DIGESTED]
    rows = np.column_stack([keys.view(np.float64), examples.reference_us, *columns])  # a view, which keeps all 64 bits
    digest = hashlib.sha256(b"".join(sorted(row.tobytes() for row in rows)))
    devices = [dataclasses.asdict(examples.devices[at]) for at in np.unique(examples.device)]
    digest.update(json.dumps(devices, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _corrected(own: TrainingSet, elsewhere: Sequence[TrainingSet], errors: np.ndarray) -> tuple[Base, np.ndarray]:
    """Return the base models with a correction of the regressions, and the regressions' errors after the correction.

    The correction is fitted to the held-out errors on own measurements, because most of the training data is from other
    devices. Without other devices, or with more than `MOST_LEARNED` own measurements, nothing is corrected.
    """
    known = np.isfinite(errors) & own.query.has_loops
    if not elsewhere or len(own.query) > MOST_LEARNED or own.base.kernels is None or not known.any():
        return own.base, errors
    part = own.take(known)
    correction, left = Correction.of_held_out(part.query, -errors[known], part.weight, own.base.kernels)
    found = errors.copy()
    found[known] = -left
    return dataclasses.replace(own.base, correction=correction), found


def _better_interpolated(families: np.ndarray, errors: Mapping[str, np.ndarray], judged: np.ndarray) -> np.ndarray:
    """Return the families in which interpolation had smaller held-out errors than regression.

    Args:
        judged: mask of the entries whose errors are compared.
    """
    interpolated, regressed = np.abs(errors["interpolated"]), np.abs(errors["regressed"])
    both = np.isfinite(interpolated) & np.isfinite(regressed) & judged
    better = []
    for family in np.unique(families[both]):
        mine = both & (families == family)
        if mine.sum() >= _FEWEST_IN_FAMILY and interpolated[mine].mean() < regressed[mine].mean():
            better.append(family)
    return np.array(better, dtype=np.uint64)


def measured_of(examples: Examples, query: Query) -> MeasuredTimes:
    """Return the look-up table of operator times, with the spread between measurements of the same operator.

    An operator has one entry for networks, with the median time over the networks, and one entry for batches of sampled
    operators, with the time in the batch that has the median time.

    Args:
        query: result of `query_of` for `examples`.
    """
    keys = MeasuredTimes.mixed(query)
    order = np.lexsort((examples.latency_us, keys))
    names, starts = np.unique(keys[order], return_index=True)
    groups = np.split(order, starts[1:])
    middle = np.array([g[(len(g) - 1) // 2] for g in groups], dtype=np.intp)
    medians = np.array([np.median(examples.latency_us[g]) for g in groups])
    latency_us = np.where(query.network[middle], medians, examples.latency_us[middle])
    context = query.traffic_bytes[middle], query.working_set_bytes[middle], query.calls[middle]
    noise = np.array([np.max(np.nan_to_num(examples.half_width[g])) for g in groups])
    spread = np.maximum(noise, _between_models([examples.latency_us[g] for g in groups]))
    return MeasuredTimes(names, latency_us, *context, spread)


def _between_models(groups: list[np.ndarray]) -> np.ndarray:
    """Return by how much an operator's time differs between models, one entry per group, on a logarithmic scale.

    The differences are computed from operators that occur in several models, separately for short and long operators:
    the time of a short operator depends more on the operators before and after it.
    """
    repeated = [g for g in groups if len(g) > 1]
    if not repeated:
        return np.full(len(groups), _UNKNOWN_SPREAD)
    errors = np.concatenate([np.abs(np.log(_without_each(g) / g)) for g in repeated])
    lengths = np.concatenate([np.full(len(g), np.searchsorted(_LENGTHS_US, np.median(g))) for g in repeated])
    pooled = conformal_quantile(errors)
    widths = np.array(
        [
            conformal_quantile(errors[lengths == length]) if (lengths == length).sum() >= _FEWEST_REPEATED else pooled
            for length in range(len(_LENGTHS_US) + 1)
        ]
    )
    return np.asarray(widths[np.searchsorted(_LENGTHS_US, [np.median(g) for g in groups])])


def _without_each(values: np.ndarray) -> np.ndarray:
    """Return for each value the median of all other values."""
    return np.array([np.median(np.delete(values, i)) for i in range(len(values))])


def _median_traffic_bytes(examples: Examples) -> float:
    """Return the median traffic of the networks; of the batches of sampled operators if there are no networks."""
    inside = ~examples.sampled[examples.model]
    rows = np.flatnonzero(inside if inside.any() else ~inside)
    _, first = np.unique(examples.model[rows], return_index=True)
    return float(np.median(examples.traffic_bytes[rows[first]]))


def _of_networks(examples: Examples, errors: np.ndarray, half_width: np.ndarray) -> tuple[float, float]:
    """Return the correlation of errors and the factor on half-widths with which the intervals of 90 % of the held-out
    networks contain the measured time.

    Args:
        errors: held-out error of each measurement, log(estimate over measured).
        half_width: half-width of each measurement, from a scale that was fitted to other families; NaN without a scale.

    Returns:
        The correlation, at most 1 (`OperatorPredictor.correlation`), and the factor, which exceeds 1 if the intervals
        are too narrow even with a correlation of 1.
    """
    shares, factors = [], []
    for mine in examples.network_runs():
        known = mine[np.isfinite(errors[mine] * half_width[mine])]
        if not len(known):
            continue
        share = examples.latency_us[known] * examples.occurrences[known]
        share = share / share.sum()
        off = abs(float(np.log((share * np.exp(errors[known])).sum())))
        parts = share * half_width[known]
        shares.append(sum_correlation(parts, off))
        factors.append(off / parts.sum())
    several = np.isfinite(shares)
    if several.sum() < _FEWEST_NETWORKS:
        return 1.0, 1.0
    correlation = conformal_quantile(np.array(shares)[several])
    return min(correlation, 1.0), max(conformal_quantile(np.array(factors)[several]), 1.0)
