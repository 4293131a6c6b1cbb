"""Turnaround points: the smallest value of a factor beyond which no larger value pays, for each operator.

**The rule.** cost(x) is the median latency at the value x. For the batch and the input size, it is the latency per unit
of work (FLOP; byte for operators without FLOPs), because larger inputs always take longer. A larger value x' *pays*
over x if both conditions are true:

1. cost(x') < (1 - threshold) cost(x); the threshold is 5 % by default.
2. The 95 % intervals of the two do not overlap: high(x') < low(x).

The turnaround point is the smallest measured value over which no larger one pays. All larger values are compared, not
only the next one, so that a plateau before a further decrease, or a slow decrease in many small steps, is not mistaken
for the end. If the turnaround point would be the largest measured value, the end was not measured, and there is no
turnaround point. If it is the smallest, no larger measured value paid. Intervals that do not overlap are a stricter
condition than a test at 5 % (Schenker & Gentleman 2001, The American Statistician 55, 182), which is appropriate
because several values are compared. A measurement without an interval (of one round) is judged by the first condition
only and counted in `Turnaround.without_interval`.

**Why not a knee detector.** Kneedle (Satopää et al. 2011, "Finding a Kneedle in a Haystack"; package kneed) finds the
point farthest from the chord after scaling both axes to their range. Its result therefore changes if larger values are
measured on the same plateau, it finds a knee in a gain of 1 % as well as of 90 %, and it ignores the uncertainty of the
points. Segmented regression (Muggeo 2003; tested by Davies 1987) estimates where a slope changes, and needs more points
than the two to eight of a sweep over threads. Both detect a shape. A user who sets threads or a batch needs to know
whether a larger value pays, which is the rule above: it does not depend on the range, and its threshold has a meaning.

On an Amdahl curve with the serial share s, T(n) = s + (1 - s) / n, the rule returns the smallest n for which T(n) (1 -
threshold) <= T(largest), which the tests check.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.analysis.table import PLACE, SETTINGS, Factor, FactorTable
from op_profiler.errors import UsageError

if TYPE_CHECKING:
    import pandas
    from numpy.typing import ArrayLike

_THRESHOLD = 0.05
"""Share of the cost that a larger value must save."""

SIZES = ("batch", "input_size", "past")
"""Factors of the operator that can be swept: operators that differ in nothing else are one family."""


@dataclasses.dataclass(frozen=True)
class Knee:
    """The turnaround point of one curve.

    Attributes:
        value: the turnaround point; None if the curve has no turnaround point.
        reason: why the curve has no turnaround point, or a note if this point is the smallest measured value; otherwise
            None.
    """

    value: float | None
    reason: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Turnaround:
    """The turnaround point of one operator in one factor, under one device and settings.

    Attributes:
        anchor: heavy op of the operator.
        operator_key: workload key of the operator; for `SIZES`, that of the family's smallest member.
        members: workload keys of all operators of the curve; a single key except for `SIZES`.
        factor: name of the factor.
        context: device, model and settings, which are the same for all values.
        values: measured values, increasing.
        cost: cost at each value: microseconds; for `SIZES` nanoseconds per FLOP (per byte for operators without FLOPs).
        low, high: 95 % interval of each cost; None if unknown.
        per_work: whether the cost is per unit of work.
        without_interval: number of costs without an interval.
        value, reason: see `Knee`.
    """

    anchor: str
    operator_key: str
    operator_name: str
    members: tuple[str, ...]
    factor: str
    context: dict[str, Any]
    values: tuple[float, ...]
    cost: tuple[float, ...]
    low: tuple[float | None, ...]
    high: tuple[float | None, ...]
    per_work: bool
    without_interval: int
    value: float | None
    reason: str | None


def find_knee(
    values: ArrayLike,
    cost: ArrayLike,
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    threshold: float = _THRESHOLD,
) -> Knee:
    """Return the turnaround point of one curve, by the rule of this module.

    Args:
        values: distinct values of the factor, in increasing order.
        cost: one positive cost per value, in any unit.
        low, high: ends of the interval of each cost; NaN if an interval is unknown, None if all are.
        threshold: share of the cost that a larger value must save.

    Raises:
        ValueError: the values do not increase, or there is not one cost per value.
    """
    x, y = np.asarray(values, dtype=float), np.asarray(cost, dtype=float)
    if len(x) != len(y) or (np.diff(x) <= 0).any():
        raise ValueError("one cost a value is needed, and values that rise")
    if len(x) < 2:
        return Knee(None, "not enough: a single value was measured" if len(x) else "not enough: nothing was measured")
    lows = np.full(len(x), np.nan) if low is None else np.asarray(low, dtype=float)
    highs = np.full(len(x), np.nan) if high is None else np.asarray(high, dtype=float)
    for i in range(len(x) - 1):
        saves = y[i + 1 :] < (1 - threshold) * y[i]
        touches = highs[i + 1 :] >= lows[i]  # False where either is unknown
        if not (saves & ~touches).any():
            smallest = f"more never pays: no larger value surely saves {threshold:.0%} over the smallest measured"
            return Knee(float(x[i]), smallest if i == 0 else None)
    return Knee(None, f"still pays at the largest value measured, {x[-1]:g}")


def turnarounds(table: FactorTable, factor: str, *, threshold: float = _THRESHOLD) -> list[Turnaround]:
    """Return the turnaround points of all operators that were measured at two values of a factor or more.

    Threads and other settings are compared within one schedule. Sizes are compared between operators that differ in
    nothing else, with schedules of one origin. A factor of the schedule (a tile) is compared within one operator; the
    cost at a value is the lowest over all schedules with that value.

    Raises:
        UnknownNameError: there is no such factor; the message names the most similar one.
        UsageError: the factor has no order, or cannot be swept.
    """
    (chosen,) = table.choose([factor])
    if not can_turn(chosen):
        allowed = [name for name, known in table.factors.items() if can_turn(known)]
        raise UsageError(f"{factor} has no turnaround point; these can have one: {', '.join(allowed)}")
    return [_turnaround(series, chosen, threshold) for series in _series(table.frame, chosen)]


def can_turn(factor: Factor) -> bool:
    """Return whether a factor has an order and can be swept while everything else stays the same."""
    return factor.kind == "number" and (factor.level != "operator" or factor.name in SIZES)


def _series(frame: pandas.DataFrame, factor: Factor) -> Iterator[pandas.DataFrame]:
    """Yield groups of measurements that differ only in the factor: the fastest at each value, in the order of the
    values."""
    known = frame[frame[factor.name].notna() & frame["work"].notna()]
    subject = {
        "operator": [f"family.{factor.name}", "anchor", "origin"],
        "schedule": ["operator_key"],
        "setting": ["operator_key", "schedule_key"],
    }[factor.level]
    place = ("device_key",) if factor.level == "operator" else PLACE  # another size is another model
    held = [name for name in SETTINGS if name != factor.name]
    columns = [*subject, *place, *held]
    swept = known[known.groupby(columns, dropna=False)[factor.name].transform("nunique") > 1]
    for _, group in swept.groupby(columns, dropna=False, sort=True):
        cost = group["latency_us"] / group["work"] if factor.level == "operator" else group["latency_us"]
        yield group.loc[cost.groupby(group[factor.name]).idxmin()].sort_values(factor.name)


def _turnaround(series: pandas.DataFrame, factor: Factor, threshold: float) -> Turnaround:
    first = series.iloc[0]
    sized = factor.level == "operator"
    scale = 1e3 / series["work"].to_numpy() if sized else np.ones(len(series))
    cost, low, high = (series[name].to_numpy(float) * scale for name in ("latency_us", "low_us", "high_us"))
    values = tuple(float(v) for v in series[factor.name])
    knee = find_knee(values, cost, low=low, high=high, threshold=threshold)
    return Turnaround(
        anchor=str(first["anchor"]),
        operator_key=str(first["operator_key"]),
        operator_name=str(first["operator_name"]),
        members=tuple(dict.fromkeys(str(key) for key in series["operator_key"])),
        factor=factor.name,
        context={
            name: _plain(first[name]) for name in (*PLACE, *SETTINGS) if name != factor.name and first[name] != ""
        },
        values=values,
        cost=tuple(float(c) for c in cost),
        low=tuple(None if np.isnan(v) else float(v) for v in low),
        high=tuple(None if np.isnan(v) else float(v) for v in high),
        per_work=sized,
        without_interval=int(np.isnan(low).sum()),
        value=knee.value,
        reason=knee.reason,
    )


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
