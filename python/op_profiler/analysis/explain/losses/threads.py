"""Losses between one thread and several: no parallel loop, uneven parts, and the cost of distributing them."""

from __future__ import annotations

import math

from op_profiler.analysis.explain.evidence import Evidence, Interval, at_least_zero, at_most
from op_profiler.analysis.explain.explanation import Cause, Loss
from op_profiler.analysis.explain.losses.memory import missing_us


def losses(evidence: Evidence) -> list[Loss]:
    """Return the time that an operator loses with several threads, compared with its time on one thread divided by the
    number of threads; empty at one thread.

    The losses are computed from hot times, so that losses to memory are not counted again.
    """
    n = evidence.threads
    if n == 1:
        return []
    one, several = evidence.samples["hot", 1], evidence.samples["hot", n]
    one_us = evidence.us("hot", 1)
    shared = max(evidence.traffic_us(n) - one_us / n, 0.0)  # threads share what memory gives
    if evidence.waits_for_far_memory:
        shared = float("inf")
    lost, low, high = at_least_zero(evidence.difference_us(several, one / n), shared)
    took = f"{one_us:.1f} us with one thread, {evidence.us('hot'):.1f} us with {n}"
    parts = evidence.parallel_loop
    if parts == 1 or (evidence.code is not None and not evidence.code.parallel):
        what = "its parallel loop has a single iteration" if parts == 1 else "its code has no parallel loop"
        return [_loss("serial", lost, low, high, f"{took}: {what}")]
    found, uneven = [], 0.0
    if parts is not None:
        longest = math.ceil(parts / n) * n / parts
        uneven = min(one_us / n * (longest - 1), lost)
        because = f"{parts} iterations for {n} threads: the longest part is {longest:.2f} times the mean; {took}"
        found.append(_loss("imbalance", uneven, min(low, uneven), min(high, uneven), because))
    waking = _waking_us(evidence)
    rest = at_least_zero((lost + waking[0], low + waking[1], high + waking[2]), uneven)
    rest = at_most(rest, evidence.us("model"))
    because = f"{took}; {n} without overhead would take {one_us / n:.1f} us"
    if waking[0] > 0:
        because += f"; waking them in the model takes {waking[0]:.1f} us"
    found.append(_loss("thread overhead", *rest, because))
    return found


def _waking_us(evidence: Evidence) -> Interval:
    """Return the part of the time in the model that neither the hot time nor missing data explains."""
    model, hot = (evidence.samples[state, evidence.threads] for state in ("model", "hot"))
    return at_least_zero(evidence.difference_us(model, hot), missing_us(evidence)[0])


def _loss(cause: Cause, lost: float, low: float, high: float, because: str) -> Loss:
    return Loss(cause=cause, lost_us=lost, low_us=low, high_us=high, basis="measured", because=because)
