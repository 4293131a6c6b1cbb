"""Checks that report suspicious rows of a table: too fast for the hardware, in a wrong unit, or contradictory.

The checks change and remove nothing; predictors leave the reported rows out.
"""

from __future__ import annotations

import dataclasses

import numpy as np

DISAGREEMENT = 1.5
"""Rows with the same identity disagree if their largest latency is more than this factor times the smallest. Two valid
runs of a kernel on a shared processor differ by up to 40 %."""

MARGIN = 5.0
QUANTILE = 0.95
"""Limit for rows if the peak of the device is not known: `MARGIN` times this quantile of the table's rates. The best
convolutions of a device come within a small factor of its peak, so the fastest twentieth of the table gives a bound."""

MINIMUM_ROWS = 20
"""If fewer rows have a time, no bound is derived from them."""

_UNIT = 3.0  # decades of a factor of 1000
_UNIT_TOLERANCE = 0.5  # decades
_SPREAD_LIMIT = 0.35  # decades; where the table scatters more, a factor of 1000 is no evidence


@dataclasses.dataclass(frozen=True)
class Finding:
    """One suspicious row.

    Attributes:
        row: index of the row, from 0.
        kind: ``failed``, ``compute`` (more FLOP/s than possible), ``memory`` (more bytes/s than possible), ``unit`` (a
            factor of 1000 off), or ``duplicate`` (contradicts rows of the same identity).
        reason: why the row is suspicious, with the numbers.
    """

    row: int
    kind: str
    reason: str


def check_rows(
    flops: np.ndarray,
    bytes_moved: np.ndarray,
    latency_us: np.ndarray,
    identity: np.ndarray,
    *,
    peak_flops_per_s: float | None = None,
    peak_bytes_per_s: float | None = None,
) -> list[Finding]:
    """Return the suspicious rows of a table, ordered by kind and then by row; a row may have several findings.

    Args:
        flops, bytes_moved: floating-point operations and bytes of one call, shape (rows,).
        latency_us: shape (rows,), microseconds; NaN, infinite, 0 or negative is a failure.
        identity: shape (rows,), equal for rows that measure the same operator under the same conditions.
        peak_flops_per_s, peak_bytes_per_s: peaks of the device (with warm caches, the bandwidth of the fastest cache
            that the tensors fit into); None: a bound derived from the table, see `QUANTILE`.
    """
    latency_us = np.asarray(latency_us, dtype=np.float64)
    flops, bytes_moved = np.asarray(flops, dtype=np.float64), np.asarray(bytes_moved, dtype=np.float64)
    valid = np.isfinite(latency_us) & (latency_us > 0)
    seconds = np.where(valid, latency_us, np.nan) * 1e-6
    found = [Finding(int(row), "failed", "no time") for row in np.flatnonzero(~valid)]
    found += _too_fast("compute", "FLOP/s", flops / seconds, peak_flops_per_s)
    found += _too_fast("memory", "B/s", bytes_moved / seconds, peak_bytes_per_s)
    found += _units(flops, bytes_moved, seconds)
    found += _disagreements(latency_us, np.asarray(identity), valid)
    return found


def _too_fast(kind: str, unit: str, rate: np.ndarray, peak: float | None) -> list[Finding]:
    """Return findings for rows whose rate is above the peak; without a peak, above a bound derived from the table."""
    known = rate[np.isfinite(rate) & (rate > 0)]
    if peak is not None:
        limit, origin = peak, "the device's peak"
    elif len(known) >= MINIMUM_ROWS:
        limit, origin = MARGIN * float(np.quantile(known, QUANTILE)), f"{MARGIN:g} times what 95 % of the table reach"
    else:
        return []
    rows = np.flatnonzero(rate > limit)
    return [Finding(int(row), kind, f"{rate[row]:.3g} {unit}, above {origin} of {limit:.3g} {unit}") for row in rows]


def _units(flops: np.ndarray, bytes_moved: np.ndarray, seconds: np.ndarray) -> list[Finding]:
    """Return findings for rows whose time would fit the other rows if it were multiplied or divided by 1000."""
    usable = np.flatnonzero(np.isfinite(seconds) & (bytes_moved > 0))
    if len(usable) < MINIMUM_ROWS:
        return []
    features = np.stack(
        [np.ones(len(usable)), np.log10(np.maximum(flops[usable], 1.0)), np.log10(bytes_moved[usable])], axis=1
    )
    logarithm = np.log10(seconds[usable])
    residual = _robust_residual(features, logarithm)
    spread = 1.4826 * float(np.median(np.abs(residual)))
    if spread > _SPREAD_LIMIT:
        return []
    suspicious = np.flatnonzero(np.abs(np.abs(residual) - _UNIT) < _UNIT_TOLERANCE)
    words = {True: "slower", False: "faster"}
    return [
        Finding(int(usable[i]), "unit", f"about 1000 times {words[bool(residual[i] > 0)]} than rows of its size")
        for i in suspicious
    ]


def _robust_residual(features: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the distances from a linear fit, in the unit of `values`; outliers have little weight in the fit."""
    residual = values - np.median(values)
    for _ in range(10):
        scale = max(1.4826 * float(np.median(np.abs(residual))), 1e-3)
        weight = 1.0 / np.maximum(1.0, np.abs(residual) / scale) ** 2
        root = np.sqrt(weight)
        coefficients = np.linalg.lstsq(features * root[:, None], values * root, rcond=None)[0]
        residual = values - features @ coefficients
    return np.asarray(residual)


def _disagreements(latency_us: np.ndarray, identity: np.ndarray, valid: np.ndarray) -> list[Finding]:
    """Return findings for rows far from the median of their identity, if its times differ by over `DISAGREEMENT`."""
    rows = np.flatnonzero(valid)
    if not len(rows):
        return []
    _, group = np.unique(identity[rows], return_inverse=True)
    order = np.lexsort((latency_us[rows], group))
    group, values, rows = group[order], latency_us[rows][order], rows[order]
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    count = np.diff(np.r_[first, len(group)])
    last = first + count - 1
    ratio = values[last] / values[first]
    middle = np.sqrt(values[first + (count - 1) // 2] * values[first + count // 2])
    away = np.abs(np.log(values / np.repeat(middle, count))) > np.log(DISAGREEMENT) / 2
    chosen = np.flatnonzero(away & np.repeat(ratio > DISAGREEMENT, count))
    found = [
        Finding(
            int(rows[i]),
            "duplicate",
            f"{values[i]:.6g} us, and {values[first[group[i]]]:.6g} to {values[last[group[i]]]:.6g} us for the same",
        )
        for i in chosen
    ]
    return sorted(found, key=lambda finding: finding.row)
