"""Losses to the instructions of the hottest loop: narrow vectors, register spilling, stalled arithmetic.

llvm-mca computes the cycles of the loop as compiled, and with enough registers. Full vectors reduce the instructions by
the ratio of lanes. The rest above the peak is waiting: too few accumulators, or too many loads for each of them.
"""

from __future__ import annotations

from op_profiler.analysis.explain.evidence import Evidence
from op_profiler.analysis.explain.explanation import Cause, Loss

_OFF = 1.5
"""Factor by which an estimate from machine code may be too large or too small."""
_MOST_MORE = 2.0
"""Largest factor by which time beyond the processor model is attributed to the same instructions."""
_FULL = 0.95
_SPILLING = 0.1
"""Share of a loop's instructions that use the stack from which on spilling slows the loop."""
_OF_CALLS = 0.8


def losses(evidence: Evidence) -> list[Loss]:
    """Return the time that the hottest loop loses to spills, narrow vectors and an unsuitable register tile.

    Returns:
        A `Loss` for each cause, some of 0 us; empty if the kernel's machine code was not found. A loop that calls a
        function for each value has a single `Loss`, of cause ``function calls``.
    """
    if evidence.code is None or evidence.cycles is None:
        return []
    loop, cycles, limits = evidence.code.hottest, evidence.cycles, evidence.limits
    room = evidence.hot_room_us
    if loop.calls:
        return _calls(room / evidence.used_threads, loop.calls)
    full = min(loop.lanes / limits.lanes, 1.0) if loop.lanes else 1.0
    work = loop.flops / limits.peak_flops_per_cycle if loop.flops else sum(loop.stores) / (4 * limits.lanes)
    on_vectors = max(cycles.without_spills * full, work) if full < _FULL else cycles.without_spills
    by = "llvm-mca" if cycles.modelled else "a count of instructions (llvm-mca is not installed)"
    parts: list[tuple[Cause, float, str]] = [
        (
            "spills",
            cycles.now - cycles.without_spills,
            f"{loop.spills} of {len(loop.body)} instructions of the hottest loop use the stack; without them an "
            f"iteration takes {cycles.without_spills:.1f} cycles in place of {cycles.now:.1f}, by {by}",
        ),
        (
            "vectorization",
            cycles.without_spills - on_vectors,
            f"{loop.vector_share:.0%} of the hottest loop's work is in vector instructions, which fill "
            f"{loop.lanes:.1f} of {limits.lanes} lanes; an iteration takes {cycles.now:.1f} cycles, by {by}",
        ),
        (
            "register tile",
            on_vectors - work if loop.flops else 0.0,
            f"an iteration of the hottest loop takes {cycles.now:.1f} cycles, its arithmetic alone {work:.1f}, "
            f"by {by}: multiply-adds wait for each other or for loads",
        ),
    ]
    lost_us = {cause: evidence.cycles_us(max(lost, 0.0)) for cause, lost, _ in parts}
    reckoned = sum(lost_us.values())
    rest = 0.0 if evidence.far_steps or evidence.waits_for_far_memory else max(room - reckoned, 0.0)
    if loop.spills > _SPILLING * len(loop.body):  # its model forwards every store to the load behind it in no time
        lost_us["spills"] += rest
    elif reckoned:
        lost_us = {cause: us * min(1 + rest / reckoned, _MOST_MORE) for cause, us in lost_us.items()}
    fits = min(room / sum(lost_us.values()), 1.0) / evidence.used_threads if any(lost_us.values()) else 0.0
    most = room / evidence.used_threads
    return [_loss(cause, lost_us[cause] * fits, most, because) for cause, _, because in parts]


def _calls(room: float, called: tuple[str, ...]) -> list[Loss]:
    """Return the loss of a loop that calls a function for each value, and thus computes one value at a time."""
    names = sorted(set(called))
    because = f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} called for each value"
    return [_loss("function calls", _OF_CALLS * room, room, because)]


def _loss(cause: Cause, lost: float, most: float, because: str) -> Loss:
    low, high = lost / _OFF, max(min(lost * _OFF, most), lost)
    return Loss(cause=cause, lost_us=lost, low_us=low, high_us=high, basis="computed", because=because)
