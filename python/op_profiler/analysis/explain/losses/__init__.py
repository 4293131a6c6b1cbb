"""Losses of an operator's time: one module for each kind of evidence, each with `losses(evidence)`."""

from __future__ import annotations

import msgspec

from op_profiler.analysis.explain.evidence import Evidence
from op_profiler.analysis.explain.explanation import Loss
from op_profiler.analysis.explain.losses import fusion, instructions, memory, schedule, threads

_LEAST_OF_CAPPED = 0.5
"""Lower end of the interval of a loss that was limited to what can be removed, as a share of the loss."""


def losses_of(evidence: Evidence) -> list[Loss]:
    """Return the losses of an operator, the largest first, followed by losses whose order of magnitude is unknown.

    The sum of the losses is at most the time that can be removed: all of the time for a change of layout; all except
    the arithmetic at the peak for operators that could be fused or wait for far memory; all except `Evidence.bound_us`
    for other operators.
    """
    of_instructions = instructions.losses(evidence)
    of_neighbours = fusion.losses(evidence, of_instructions)
    found = [
        *of_neighbours,  # first: where it loses all its time, nothing else loses more
        *of_instructions,
        *memory.losses(evidence),
        *threads.losses(evidence),
    ]
    found += schedule.losses(evidence, found)
    bound = evidence.bound_us
    if of_neighbours or evidence.waits_for_far_memory:
        bound = evidence.ideal_us / evidence.threads
    if any(loss.cause == "layout" for loss in of_neighbours):
        bound = 0.0
    kept, room = [], max(evidence.us("model") - bound, 0.0)
    for loss in sorted(found, key=lambda loss: (loss.vague, -loss.lost_us)):
        lost, low, high = (min(us, room) for us in (loss.lost_us, loss.low_us, loss.high_us))
        if lost > 0:
            if low < loss.low_us:  # the evidence says more than there is: of what is left it says little
                low = _LEAST_OF_CAPPED * lost
            kept.append(msgspec.structs.replace(loss, lost_us=lost, low_us=low, high_us=high))
            room -= lost
    return sorted(kept, key=lambda loss: (loss.vague, -loss.lost_us))
