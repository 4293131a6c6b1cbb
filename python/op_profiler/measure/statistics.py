"""Computes statistics of samples: the median and its confidence interval."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import numpy as np

from op_profiler.measure.measurement import Measurement

CONFIDENCE = 0.95
_MINIMUM_FOR_INTERVAL = 6


@functools.lru_cache(maxsize=4096)
def _interval_ranks(count: int) -> tuple[int, int]:
    """Return the zero-based ranks of the order statistics that enclose the median with probability `CONFIDENCE`.

    The number of samples below the median is binomial(count, 1/2); see David & Nagaraja, Order Statistics, 7.1. Its
    quantile is computed in integers, because importing scipy.stats would take most of a second in every measuring
    process.
    """
    ways = itertools.accumulate(math.comb(count, below) for below in range(count))
    improbable = itertools.takewhile(lambda some: some / 2**count < (1 - CONFIDENCE) / 2, ways)
    low = max(sum(1 for _ in improbable) - 1, 0)
    return low, count - 1 - low


def median_interval(samples: np.ndarray) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median, without assuming a distribution.

    Args:
        samples: shape (n,). For fewer than 6 samples no 95 % interval exists, and (-inf, inf) is returned.
    """
    if len(samples) < _MINIMUM_FOR_INTERVAL:
        return -math.inf, math.inf
    ordered = np.sort(samples)
    low, high = _interval_ranks(len(ordered))
    return float(ordered[low]), float(ordered[high])


def relative_half_width(samples: np.ndarray) -> float:
    """Return the half width of the median's interval divided by the median; inf for fewer than 6 samples."""
    low, high = median_interval(samples)
    if not math.isfinite(low):
        return math.inf
    median = float(np.median(samples))
    return (high - low) / 2 / median if median > 0 else math.inf


def is_narrow(measurement: Measurement, target: float) -> bool:
    """Return whether the half width of the median's interval is at most `target` times the median.

    The result is False if the measurement has no interval.
    """
    low, high, median = measurement.ci_low_us, measurement.ci_high_us, measurement.median_us
    return low is not None and high is not None and median is not None and (high - low) / 2 <= target * median


def summarize(rows: np.ndarray, *, quiet: np.ndarray | None = None) -> Measurement:
    """Return a measurement with raw samples and their statistics.

    Args:
        rows: samples, shape (rounds, calls of the operator), microseconds per call, without NaN; at least one round.
        quiet: mask of the rounds that the median and its interval use, shape (rounds,); None: all rounds.
    """
    rounds = rows.mean(axis=1)
    of_median = rounds if quiet is None else rounds[quiet]
    low, high = median_interval(of_median)
    return Measurement(
        samples_us=tuple(tuple(round(float(v), 3) for v in row) for row in rows),
        min_us=float(rounds.min()),
        median_us=float(np.median(of_median)),
        mean_us=float(rounds.mean()),
        std_us=float(rounds.std(ddof=1)) if len(rounds) > 1 else None,
        ci_low_us=low if math.isfinite(low) else None,
        ci_high_us=high if math.isfinite(high) else None,
    )


def widened(measurement: Measurement, uncertainty_us: float) -> Measurement:
    """Return a copy of a measurement with `uncertainty_us` added to `ci_high_us` and subtracted from `ci_low_us`."""
    low_us, high_us = measurement.ci_low_us, measurement.ci_high_us
    return dataclasses.replace(
        measurement,
        ci_low_us=None if low_us is None else max(low_us - uncertainty_us, 0.0),
        ci_high_us=None if high_us is None else high_us + uncertainty_us,
    )
