"""Predictors for a device with few measured operators, adapted from another device's predictor.

The other device's predictor estimates the relative times of operators, from their loops if these are known. A
correction of these estimates is fitted to the few measurements on the new device
(`op_profiler.prediction.latency.correction`). The description of an operator is first converted to the vector length of
the other device, see `op_profiler.prediction.latency.vectors`.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from op_profiler.errors import DatasetError, UsageError
from op_profiler.prediction.latency.correction import MOST_LEARNED, Correction
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.fit import fingerprint, measured_of, weights_of
from op_profiler.prediction.latency.intervals import COVERAGE, Spread, conformal_quantile, fastest
from op_profiler.prediction.latency.operator_predictor import OperatorPredictor, query_of
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.vectors import vector_ratio
from op_profiler.targets.target import kind_of

_FEWEST = 5


def adapted(source: OperatorPredictor, target: Examples) -> OperatorPredictor:
    """Adapt the predictor of one device to another device.

    Args:
        source: predictor of the other device, with regressions.
        target: measurements on the new device at its reference state
            (`op_profiler.prediction.latency.steady_times.at_reference_state`), at thread counts of `source`.
            For an operator in `target`, the adapted predictor returns the measured time. The correction is fitted to
            at most `MOST_LEARNED` measurements, those of randomly chosen operators.

    Raises:
        DatasetError: there are too few measurements.
        UsageError: `source` has no regressions.
    """
    query = query_of(target)
    if kind_of(source.device.target).on_gpu != kind_of(target.only_device.target).on_gpu:
        query = query.without_loops()  # loops of a GPU and of a processor have different columns
    usable = np.isin(query.threads, source.thread_counts)
    if not source.models:
        raise UsageError("only a predictor with regressions can be adapted; leave out --predictor")
    query, few = query.take(usable), target.where(usable)
    count = len(np.unique(few.operator))
    if count < _FEWEST:
        raise DatasetError(
            f"{count} operators at {source.thread_counts} threads are too few to adapt to; measure at least {_FEWEST} "
            "with op-profiler calibrate"
        )
    device = few.only_device
    drawn = np.zeros(len(query), dtype=bool)
    drawn[np.argsort(query.keys, kind="stable")[:MOST_LEARNED]] = True  # keys are hashes: a reproducible sample
    asked, some = query.take(drawn), few.where(drawn)
    above_bound = np.log(some.latency_us / source.roofline.bound_us(asked.amounts, asked.threads))
    least_us = source.roofline.least_us(asked.amounts, asked.threads, device.cache_bytes)
    correction = _correction(source, vector_ratio(source.device, device), asked, above_bound, weights_of(some))
    # The source's errors are smaller than usual on operators that it was fitted to.
    learned = source.measured.find(asked)[0] | source.measured.find(asked.sampled())[0]
    seen = np.where(learned, source.half_width(asked), 0.0)
    return dataclasses.replace(
        source,
        device=device,
        base=dataclasses.replace(source.base, correction=correction),
        measured=measured_of(few, query),
        interpolation=None,
        spread=Spread(
            None,
            {},
            float(np.median(above_bound)),
            _half_width(correction, some.operator, asked, seen),
            fastest(np.log(some.latency_us / least_us)),
        ),
        correlation=1.0,  # the source's correlation was calibrated with other half-widths
        fingerprint=fingerprint(few),
    )


def _correction(
    source: OperatorPredictor, ratio: float, query: Query, above_bound: np.ndarray, weight: np.ndarray
) -> Correction:
    """Fit the correction of the source's estimates to the measurements, on a logarithmic scale."""
    as_source = Correction.seen_in(ratio, query)
    base = dataclasses.replace(source.base, correction=None)
    estimates = (base.regressed(source.method, source.models, one) for one in (as_source, as_source.without_loops()))
    looped, plain = (above_bound - one for one in estimates)
    return Correction.fit(ratio, query, (looped, plain), weight, source.roofline, base.kernels)


def _half_width(correction: Correction, operator: np.ndarray, query: Query, hidden: np.ndarray) -> float:
    """Return the half width that covers the errors of operators that were left out, each with all its thread counts.

    The quantile is taken over operators, of the largest error of each: two times of one operator contain little more
    information than one (Dunn, Wasserman & Ramdas, Distribution-free prediction sets for two-layer hierarchical models,
    JASA 118, 2023).

    Args:
        hidden: the part of each error that the left-out measurements do not show. Its cause is independent of the
            visible part, so the squares are added.
    """
    distinct, group = np.unique(operator, return_inverse=True)
    errors = np.hypot(correction.off_if_left_out(query, group), hidden)
    largest = np.zeros(len(distinct))
    np.maximum.at(largest, group, errors)
    return conformal_quantile(largest, COVERAGE)
