"""Losses to the schedule, against the best known schedule, the vendor's kernel and the predicted result of a search."""

from __future__ import annotations

from collections.abc import Sequence

from op_profiler.analysis.explain.evidence import Evidence
from op_profiler.analysis.explain.explanation import Basis, Loss

_ITS_SYMPTOMS = ("vectorization", "spills", "register tile", "stride", "serial", "imbalance")
_SPREAD = 0.1


def losses(evidence: Evidence, others: Sequence[Loss]) -> list[Loss]:
    """Return the time that another schedule would save beyond the other losses.

    Args:
        others: other losses of the same operator.

    Returns:
        One `Loss` of cause ``schedule``; empty if no time with another schedule is known or predicted.
    """
    hot, known = evidence.us("hot"), evidence.others
    found: list[tuple[float, float, float, Basis, str]] = []
    if known.best_us is not None:
        found.append((known.best_us, _SPREAD, _SPREAD, "measured", f"the best known schedule ({known.best_from})"))
    if known.vendor is not None:
        us, low, high = known.vendor
        found.append((us, max(1 - low / us, _SPREAD), max(high / us - 1, _SPREAD), "measured", "the vendor's kernel"))
    if known.tuned is not None and known.best_us is None:
        tuned, low, high = known.tuned.us, known.tuned.low_us, known.tuned.high_us
        found.append((tuned, 1 - low / tuned, high / tuned - 1, "predicted", "what a search is predicted to find"))
    if not found:
        return []
    best, below, above, basis, named = min(found)
    named_already = sum(loss.lost_us for loss in others if loss.cause in _ITS_SYMPTOMS)
    lost = max(hot - best - named_already, 0.0)
    because = f"{hot:.1f} us hot beside {best:.1f} us: {named}"
    low_us, high_us = max(lost - above * best, 0.0), lost + below * best
    return [Loss(cause="schedule", lost_us=lost, low_us=low_us, high_us=high_us, basis=basis, because=because)]
