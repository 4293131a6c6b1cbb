"""Reasons why a run is disturbed, other than background load (`measure.load`).

The reasons of a run are one text, `disturbed_by` of its `Measurement`s, joined by ``; ``. Runs of earlier versions have
only what their details report; `disturbed_by` derives the reasons from both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

APART = 2.0
"""Where data takes so many times as long from core to core as usual, the cores are apart; while they are near its time
differs by half at most (`op_profiler.measure.host_state`)."""
SHARED = 1.1
"""Where arithmetic takes so many times as long as usual, a core is shared; while none is its time differs by 1 %."""

COPIES_APART = 1.1
"""Windows, and readings before and after them, are of different copies of the model's tensors. Copies of a model differ
by up to a tenth (`benchmarks/placements.py`, `benchmarks/stack_places.py`): what lies further apart was disturbed."""

_CORES_APART = "cores further apart than usual"
CORES_SLOW = "cores slower than usual"
BACKGROUND_LOAD = "background load"
UNSTEADY = "unsteady"
"""The rounds themselves lie apart (`op_profiler.measure.quiet_rounds`), whatever the reason."""


def cores_were_apart(details: Mapping[str, Any]) -> bool:
    """Whether the cores were further apart than usual for most of a run, by the `details` of its `ModelTiming`."""
    return _over(details.get("exchange_us"), details.get("exchange_near_us"), APART)


def disturbed_by(details: Mapping[str, Any], stored: str | None = None, *, unsteady: bool = False) -> str | None:
    """The reasons as one text; None: nothing is known.

    Args:
        details: of the `ModelTiming` of the run.
        stored: what a dataset has as the reasons.
        unsteady: whether the rounds lay apart.
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
    """Whether the reasons in `disturbed_by` exclude a time from predictors and comparisons. Slow cores are corrected
    instead (`prediction.latency.steady_times`)."""
    return reasons is not None and reasons != CORES_SLOW


def disturbance_of(foreign_load: bool | None, reasons: str | None) -> str | None:
    """Why predictors and comparisons leave a time out, background load included; None where they do not.

    Args:
        foreign_load, reasons: `foreign_load` and `disturbed_by` of the `Measurement`.
    """
    return BACKGROUND_LOAD if foreign_load else reasons if spoils(reasons) else None


def disturbed_text(timings: int, disturbed: Mapping[str, int]) -> str | None:
    """What users should know of disturbed times; None where there are none.

    Args:
        timings: how many times there are.
        disturbed: how many of them have each reason of `disturbance_of`.
    """
    if not disturbed:
        return None
    reasons = ", ".join(f"{reason.replace('; ', ' and ')} {disturbed[reason]}" for reason in sorted(disturbed))
    return (
        f"{sum(disturbed.values())} of {timings} timings are disturbed ({reasons}); predictors leave them out; measure "
        "them again with --remeasure noisy"
    )


def apart(one_us: float | None, other_us: float | None) -> bool:
    """Whether two readings of a model differ by more than its copies do; False where one is missing."""
    return bool(one_us and other_us and max(one_us, other_us) > COPIES_APART * min(one_us, other_us))


def _over(time_us: float | None, usual_us: float | None, factor: float) -> bool:
    return time_us is not None and usual_us is not None and bool(time_us > factor * usual_us)
