"""Intervals of changes, and the decision which of many changes are real.

All computations use the logarithm of the time after over the time before. The standard deviation of an estimate is that
between repeated comparisons of the same two runs. The spread of samples inside one run is not used: it does not include
the effects of other addresses in memory and of another state of the machine in the next run. Intervals use Student's t
with as many degrees of freedom as the deviation was estimated with.

Of hundreds of unchanged operators, one in twenty would appear changed at the 95 % level. P-values are therefore
adjusted by Benjamini and Hochberg's procedure (`scipy.stats.false_discovery_control`). On average, at most 2 % of the
changes that are called real are not real; and if nothing changed, at most 2 % of the comparisons call some change real.
(A level of 5 % would raise a false alarm every month in a project that compares each of its changes, and p-values this
small come out half as large as they really are if they are computed from ten pairs of times.) Holm's procedure also
guarantees the second property, but detects less if many operators changed, for example after an update of the compiler.
Benjamini and Yekutieli's variant for arbitrary dependence costs a logarithmic factor. The operators of one run depend
on each other through the state of the machine, which shifts them in the same direction; under this dependence,
Benjamini and Hochberg's procedure is valid (1, 2).

The intervals are those that belong to the procedure (3): if R of m changes are real, the level of all intervals is 1 -
0.02 R / m (R counts as 1 if no change is real). A change is then real if and only if its interval excludes zero.

1. Benjamini, Hochberg: Controlling the false discovery rate. J. R. Stat. Soc. B 57 (1995).
2. Benjamini, Yekutieli: The control of the false discovery rate under dependency. Ann. Stat. 29 (2001).
3. Benjamini, Yekutieli: False discovery rate-adjusted multiple confidence intervals. J. Am. Stat. Assoc. 100 (2005).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats
from scipy.stats import mstats

FALSE_SHARE = 0.02
"""Largest expected share of changes called real that are not real."""
_RESOLUTION_US = 0.001
"""Resolution of the clock; a difference of one tick is not a change."""
_TRIMMED = 0.2
"""Share of values that is left out at each end of a mean: other virtual machines may disturb a fifth of the values
without effect (Tukey and McLaughlin, Sankhya A 25, 1963).
"""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """One estimated change, before the decision whether it is real.

    Attributes:
        before_us, after_us: times, microseconds.
        log_ratio: natural logarithm of after over before.
        deviation: standard deviation of `log_ratio` between repeated comparisons of the same runs; None if unknown.
        degrees: degrees of freedom of `deviation`.
    """

    before_us: float
    after_us: float
    log_ratio: float
    deviation: float | None
    degrees: float = 1.0


@dataclasses.dataclass(frozen=True)
class Change:
    """One change, judged together with all changes of the comparison.

    Attributes:
        before_us, after_us: median times, microseconds.
        change: change as a share of the time before: 0.05 is 5 % slower, -0.05 is 5 % faster. It is the trimmed mean of
            the pairs' ratios (of their logarithms), so it may differ from the ratio of the two medians.
        low, high: interval of `change`, adjusted for the number of comparisons; None if unknown.
        p_value: p-value of the hypothesis that nothing changed, adjusted in the same way; None if unknown.
        real: whether the change is real; None if this cannot be decided.
    """

    before_us: float
    after_us: float
    change: float
    low: float | None
    high: float | None
    p_value: float | None
    real: bool | None

    @property
    def slower(self) -> bool:
        """Whether the change is real and a slow-down."""
        return self.real is True and self.change > 0


def of_pairs(before_us: np.ndarray, after_us: np.ndarray) -> Estimate | None:
    """Estimate a change from pairs of times that were measured alternately, each pair at other addresses in memory.

    Args:
        before_us, after_us: shape (pairs,), microseconds; the two times of a pair were measured together. Pairs with a
            time that is not finite and positive are ignored.

    Returns:
        The estimate; None if fewer than four pairs are left.
    """
    timed = np.isfinite(before_us) & np.isfinite(after_us) & (before_us > 0) & (after_us > 0)
    before_us, after_us = before_us[timed], after_us[timed]
    count = len(before_us)
    if count < 4:
        return None
    logs = np.log(after_us / before_us)
    cut = int(_TRIMMED * count)
    middle = float(np.sort(logs)[cut : count - cut].mean())
    ends = (cut + 0.5) / count  # `winsorize` rounds down
    spread = float(np.std(np.asarray(mstats.winsorize(logs, limits=(ends, ends))), ddof=1))
    deviation = spread / ((1 - 2 * cut / count) * math.sqrt(count))
    floor = _RESOLUTION_US / min(float(np.median(before_us)), float(np.median(after_us)))
    return Estimate(
        float(np.median(before_us)),
        float(np.median(after_us)),
        middle,
        math.hypot(deviation, floor),
        count - 2 * cut - 1,
    )


def judge(estimates: Sequence[Estimate | None]) -> tuple[list[Change | None], float]:
    """Decide which of the changes that are compared together are real.

    Returns:
        A change for each estimate, None where the estimate is None, and the confidence level of all intervals
        (1 - `FALSE_SHARE` or more).
    """
    known = [one for one in estimates if one is not None and one.deviation is not None]
    raw = [_p_value(one) for one in known]
    adjusted = [float(p) for p in stats.false_discovery_control(raw, method="bh")] if raw else []
    real = sum(p <= FALSE_SHARE for p in adjusted)
    outside = FALSE_SHARE * max(real, 1) / max(len(known), 1)
    p_values = iter(adjusted)
    changes: list[Change | None] = []
    for one in estimates:
        if one is None:
            changes.append(None)
        elif one.deviation is None:
            change = math.expm1(one.log_ratio)
            changes.append(Change(one.before_us, one.after_us, change, None, None, None, None))
        else:
            half = float(stats.t.ppf(1 - outside / 2, one.degrees)) * one.deviation
            low, high = (math.expm1(one.log_ratio + side * half) for side in (-1, 1))
            p = next(p_values)
            change = math.expm1(one.log_ratio)
            changes.append(Change(one.before_us, one.after_us, change, low, high, p, p <= FALSE_SHARE))
    return changes, 1 - outside


def half_width(estimate: Estimate, comparisons: int) -> float:
    """Return half the width of an estimate's interval, on a logarithmic scale; infinite if the deviation is unknown.

    The confidence level is the one that applies if at most one of the compared changes is real.

    Args:
        comparisons: number of changes that are compared together.
    """
    if estimate.deviation is None:
        return math.inf
    return float(stats.t.ppf(1 - FALSE_SHARE / comparisons / 2, estimate.degrees)) * estimate.deviation


def _p_value(estimate: Estimate) -> float:
    """Return the two-sided p-value of no change."""
    assert estimate.deviation is not None
    if estimate.deviation == 0:
        return 1.0 if estimate.log_ratio == 0 else 0.0
    return float(2 * stats.t.sf(abs(estimate.log_ratio) / estimate.deviation, estimate.degrees))
