"""Losses of an operator's time: one module for each kind of evidence, each with `losses(evidence)`."""

from __future__ import annotations

from op_profiler.analysis.explain.evidence import Evidence
from op_profiler.analysis.explain.explanation import Loss
from op_profiler.analysis.explain.losses import fusion, instructions, memory, schedule, threads


def losses_of(evidence: Evidence) -> list[Loss]:
    """Largest first."""
    found = [
        *fusion.losses(evidence),  # first: where it loses all its time, nothing else loses more
        *instructions.losses(evidence),
        *memory.losses(evidence),
        *threads.losses(evidence),
    ]
    found += schedule.losses(evidence, found)
    return sorted((loss for loss in found if loss.lost_us > 0), key=lambda loss: -loss.lost_us)
