"""Losses to data that is not in a near cache, does not fit into a near cache, or maps to few of its sets."""

from __future__ import annotations

from op_profiler.analysis.explain.evidence import Evidence, Interval, at_least_zero, at_most
from op_profiler.analysis.explain.explanation import Basis, Loss

_FEW = 0.1
_OFF = 1.5


def losses(evidence: Evidence) -> list[Loss]:
    """Return the time that an operator loses while it waits for data.

    Returns:
        A `Loss` of cause ``memory`` for data in far caches or memory, and a `Loss` of cause ``stride`` if large steps
        through memory stall the hottest loop for at least 10 % of the hot time.
    """
    return [*_far_memory(evidence), *_far_steps(evidence)]


def missing_us(evidence: Evidence) -> Interval:
    """Return by how many microseconds the time in the model exceeds the hot time because of distant data, with a 95 %
    interval.

    Several threads divide the cache misses of one thread among them. If the difference is larger with several threads
    than with one thread, the excess is the time to wake the threads, which is not a loss to memory.
    """
    found = []
    for n in {1, evidence.threads}:
        model, hot = (evidence.samples[state, n] for state in ("model", "hot"))
        found.append(at_least_zero(evidence.difference_us(model, hot)))
    return min(found)


def _far_memory(evidence: Evidence) -> list[Loss]:
    """Return the loss to data that is not in the caches when the model calls the operator, or does not fit the near
    caches."""
    lost, low, high = missing_us(evidence)
    because = f"{evidence.us('model'):.1f} us in the model, {evidence.us('hot'):.1f} us hot"
    if ("cold", evidence.threads) in evidence.samples:
        because += f", {evidence.us('cold'):.1f} us cold"
    basis: Basis = "measured"
    if evidence.waits_for_far_memory:
        held = max(evidence.code_us, evidence.ideal_us) / evidence.used_threads
        waits = max(evidence.us("hot") - held, 0.0)
        most = max(evidence.us("model") - held, 0.0)
        lost, low, high = at_most((lost + waits, low + waits / _OFF, high + waits), most)
        because += (
            f"; its {evidence.moved_bytes / 1e6:.1f} MB do not fit the second-level caches, so it waits for "
            f"{evidence.level} also when it is hot: its instructions alone take {held:.1f} us"
        )
        basis = "computed"
    return [Loss(cause="memory", lost_us=lost, low_us=low, high_us=high, basis=basis, because=because)]


def _far_steps(evidence: Evidence) -> list[Loss]:
    steps, stalled = evidence.far_steps, evidence.stalled_us
    if not steps or stalled < _FEW * evidence.us("hot", 1):
        return []
    lost = stalled / evidence.used_threads
    because = (
        f"hot it waits {lost:.1f} us for its data, and the hottest loop steps by {steps[-1]} bytes: such lines share "
        "few sets of the first cache"
    )
    return [
        Loss(cause="stride", lost_us=lost, low_us=lost / _OFF, high_us=lost * _OFF, basis="computed", because=because)
    ]
