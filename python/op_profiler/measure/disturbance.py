"""Reasons why a run is disturbed, other than background load (`measure.load`).

The reasons of a run are joined by ``; `` and stored in the field `disturbed_by` of its `Measurement`s. For runs of
earlier versions, which lack this field, the function `disturbed_by` derives the reasons from the run's details.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

APART = 2.0
"""If the exchange of data between cores takes this many times as long as usual, the cores share no cache. If they share
one, the time varies by at most half (`op_profiler.measure.host_state`)."""
SHARED = 1.1
"""If arithmetic takes this many times as long as usual, a physical core is shared. If none is shared, the time varies
by 1 %."""

COPIES_APART = 1.1
"""Largest ratio of two times of a model without a disturbance. Windows, and the readings before and after them, use
different copies of the model's tensors, whose times differ by up to a tenth (`benchmarks/placements.py`,
`benchmarks/stack_places.py`)."""

_CORES_APART = "cores further apart than usual"
CORES_SLOW = "cores slower than usual"
BACKGROUND_LOAD = "background load"
UNSTEADY = "unsteady"
"""The times of the rounds have several modes (`op_profiler.measure.quiet_rounds`), for any reason."""


def cores_were_apart(details: Mapping[str, Any]) -> bool:
    """Return whether the cores shared no cache during most of a run.

    Args:
        details: `details` of the `ModelTiming` of the run.
    """
    return _over(details.get("exchange_us"), details.get("exchange_near_us"), APART)


def disturbed_by(details: Mapping[str, Any], stored: str | None = None, *, unsteady: bool = False) -> str | None:
    """Return the reasons why a run is disturbed, joined by ``; ``; None if no reason is known.

    Args:
        details: `details` of the `ModelTiming` of the run.
        stored: reasons that the dataset stores for the run; None if it stores none.
        unsteady: whether the rounds were unsteady.
    """
    reasons = set(stored.split("; ") if stored else ())
    if cores_were_apart(details):
        reasons.add(_CORES_APART)
    elif _over((details.get("gauge_us") or {}).get("compute"), details.get("compute_usual_us"), SHARED):
        reasons.add(CORES_SLOW)
    if unsteady:
        reasons.add(UNSTEADY)
    return "; ".join(sorted(reasons)) or None


def spoils(reasons: str | None) -> bool:
    """Return whether a time with these `disturbed_by` reasons is excluded from predictors and comparisons.

    Times on slow cores are not excluded but corrected (`prediction.latency.steady_times`).
    """
    return reasons is not None and reasons != CORES_SLOW


def disturbance_of(foreign_load: bool | None, reasons: str | None) -> str | None:
    """Return why predictors and comparisons exclude a time (background load is a reason too); None if they use it.

    Args:
        foreign_load, reasons: `foreign_load` and `disturbed_by` of the `Measurement`.
    """
    return BACKGROUND_LOAD if foreign_load else reasons if spoils(reasons) else None


def disturbed_text(timings: int, disturbed: Mapping[str, int]) -> str | None:
    """Return a warning for users about disturbed times; None if no time is disturbed.

    Args:
        timings: number of times.
        disturbed: number of times by reason (`disturbance_of`).
    """
    if not disturbed:
        return None
    reasons = ", ".join(f"{reason.replace('; ', ' and ')} {disturbed[reason]}" for reason in sorted(disturbed))
    return (
        f"{sum(disturbed.values())} of {timings} timings are disturbed ({reasons}); predictors leave them out; measure "
        "them again with --remeasure noisy"
    )


def apart(one_us: float | None, other_us: float | None) -> bool:
    """Return whether the ratio of two times of a model is larger than `COPIES_APART`; False if a time is None."""
    return bool(one_us and other_us and max(one_us, other_us) > COPIES_APART * min(one_us, other_us))


def _over(time_us: float | None, reference_us: float | None, factor: float) -> bool:
    return time_us is not None and reference_us is not None and bool(time_us > factor * reference_us)
