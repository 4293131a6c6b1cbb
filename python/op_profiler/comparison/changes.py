"""Intervals of changes, and the decision which of many changes are real.

All is done with logarithms of after over before. The deviation of an estimate is that of another comparison of the same
two things, never that of samples inside one run, which know nothing of where another run lies in memory and in which
state it finds the machine. Student's t is used with as many degrees of freedom as the deviation is known by.

Of hundreds of operators that did not change, one in twenty would look changed at 95 %. So p-values are adjusted by
Benjamini and Hochberg's procedure (`scipy.stats.false_discovery_control`): of the changes that are called real, 2 % are
not, on average; and where nothing changed, anything is called real in 2 % of the comparisons only. (Not in 5 %: what is
compared with every change of a project would cry wolf each month, and p-values as small as these come out of ten pairs
of times half as large as they are.) Holm's procedure keeps the second promise too, but finds less where many operators
changed, as after a new compiler. Benjamini and
Yekutieli's variant for any dependence costs a factor of the logarithm; the operators of one run depend on each other
through the state of the machine, which moves them the same way, and under that Benjamini and Hochberg's holds (1, 2).

The intervals are the ones that belong to it (3): with R of m changes real, all are at the level 1 - 0.02 R / m. A
change is then real exactly where its interval leaves out zero.

1. Benjamini, Hochberg: Controlling the false discovery rate. J. R. Stat. Soc. B 57 (1995).
2. Benjamini, Yekutieli: The control of the false discovery rate under dependency. Ann. Stat. 29 (2001).
3. Benjamini, Yekutieli: False discovery rate-adjusted multiple confidence intervals. J. Am. Stat. Assoc. 100 (2005).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

FALSE_SHARE = 0.02
"""Of the changes that are called real, how many may be none."""
_RESOLUTION_US = 0.001
"""Of the clock; a difference of one tick is none."""
_TRIMMED = 0.2
"""Of each end of what is averaged: a neighbour on the machine may spoil a fifth of it without effect (Tukey and
McLaughlin, Sankhya A 25, 1963)."""


@dataclasses.dataclass(frozen=True)
class Estimate:
    """One change before it is judged.

    Attributes:
        before_us, after_us: times, microseconds.
        log_ratio: natural logarithm of after over before.
        deviation: standard deviation of that between comparisons; None where it is not known.
        degrees: of freedom that `deviation` is known by.
    """

    before_us: float
    after_us: float
    log_ratio: float
    deviation: float | None
    degrees: float = 1.0


@dataclasses.dataclass(frozen=True)
class Change:
    """One change among all that are compared together.

    Attributes:
        before_us, after_us: times, microseconds.
        change: share of the time before: 0.05 is 5 % slower, -0.05 faster.
        low, high: its interval, adjusted for the number of comparisons; None where it is not known.
        p_value: adjusted as well.
        real: whether it is; None where that cannot be told.
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
        """Whether it really is."""
        return self.real is True and self.change > 0


def of_pairs(before_us: np.ndarray, after_us: np.ndarray) -> Estimate | None:
    """The change of something that was measured in turns, in several places of memory.

    Args:
        before_us, after_us: shape (pairs,), each pair of the same moments; what is not above zero is left out.

    Returns:
        None where fewer than four pairs are left.
    """
    from scipy.stats import mstats

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
    """All that are compared together.

    Returns:
        A change for each estimate that is not None, and the level of their intervals (1 - `FALSE_SHARE` or more).
    """
    from scipy import stats

    told = [one for one in estimates if one is not None and one.deviation is not None]
    raw = [_p_value(one) for one in told]
    adjusted = [float(p) for p in stats.false_discovery_control(raw, method="bh")] if raw else []
    real = sum(p <= FALSE_SHARE for p in adjusted)
    outside = FALSE_SHARE * max(real, 1) / max(len(told), 1)
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
    """Return the half width of an estimate's interval among this many comparisons if no change is real; inf without a
    deviation."""
    from scipy import stats

    if estimate.deviation is None:
        return math.inf
    return float(stats.t.ppf(1 - FALSE_SHARE / comparisons / 2, estimate.degrees)) * estimate.deviation


def _p_value(estimate: Estimate) -> float:
    """Two-sided, of no change."""
    from scipy import stats

    assert estimate.deviation is not None
    if estimate.deviation == 0:
        return 1.0 if estimate.log_ratio == 0 else 0.0
    return float(2 * stats.t.sf(abs(estimate.log_ratio) / estimate.deviation, estimate.degrees))
