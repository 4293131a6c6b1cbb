"""Predictors for a device with only few measured operators, adapted from another device's predictor.

Another device's predictor says how operators compare with each other, from their loops where these are known; what the
new device changes about that is learned from the few (`op_profiler.prediction.latency.correction`). The description
of an operator is put in the vectors of the device that is known first, see `op_profiler.prediction.latency.vectors`.
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
    """The predictor of one device for another.

    Args:
        source: with regressions.
        target: measurements on the new device, at thread counts that the source knows, in its usual state
            (`op_profiler.prediction.latency.steady_times.steady`). All are looked up; of more than `MOST_LEARNED`,
            whose operators are drawn by chance, the others teach nothing.

    Raises:
        DatasetError: too few of them.
        UsageError: the source regresses nothing.
    """
    query = query_of(target)
    if kind_of(source.device.target).on_gpu != kind_of(target.devices[int(target.device[0])].target).on_gpu:
        query = query.without_loops()  # those of a GPU say nothing to a processor's predictor, nor the other way round
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
    device = few.devices[int(few.device[0])]
    drawn = np.zeros(len(query), dtype=bool)
    drawn[np.argsort(query.keys, kind="stable")[:MOST_LEARNED]] = True  # keys are random numbers, the same each time
    asked, some = query.take(drawn), few.where(drawn)
    above_bound = np.log(some.latency_us / source.roofline.bound_us(asked.amounts, asked.threads))
    least_us = source.roofline.least_us(asked.amounts, asked.threads, device.cache_bytes)
    correction = _correction(source, vector_ratio(source.device, device), asked, above_bound, weights_of(some))
    # The source is closer than usual on operators that it has learned from.
    learned = source.measured.find(asked)[0] | source.measured.find(asked.sampled())[0]
    seen = np.where(learned, source.spread.half_width(asked, "regressed"), 0.0)
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
        correlation=1.0,  # the source's was calibrated with its own widths, and these are not among them
        fingerprint=fingerprint(few),
    )


def _correction(
    source: OperatorPredictor, ratio: float, query: Query, above_bound: np.ndarray, weight: np.ndarray
) -> Correction:
    """What is left of the logarithms of time over the source's bound, learned."""
    as_source = Correction.seen_in(ratio, query)
    base = dataclasses.replace(source.base, correction=None)
    said = (base.regressed(source.method, source.models, one) for one in (as_source, as_source.without_loops()))
    looped, plain = (above_bound - one for one in said)
    return Correction.fit(ratio, query, (looped, plain), weight, source.roofline, base.kernels)


def _half_width(correction: Correction, operator: np.ndarray, query: Query, hidden: np.ndarray) -> float:
    """What covers the errors of operators that were left out, with all their thread counts together.

    `hidden` is the part of each error that does not show, for another reason than those that do: their squares add up.

    The quantile is taken over operators, by the largest error of each: two times of one operator say little more than
    one (Dunn, Wasserman & Ramdas, Distribution-free prediction sets for two-layer hierarchical models, JASA 118, 2023).
    """
    distinct, group = np.unique(operator, return_inverse=True)
    errors = np.hypot(correction.off_if_left_out(query, group), hidden)
    largest = np.zeros(len(distinct))
    np.maximum.at(largest, group, errors)
    return conformal_quantile(largest, COVERAGE)
