"""The time that events and launches add to kernels on a GPU, measured with a kernel that times itself.

Where kernels take longer than their launches, the executor launches ahead of the GPU; otherwise the GPU waits. The time
of a model is therefore that of its kernels and of the gaps between them. Events around every kernel give the kernels'
times, but these include the time of the event and the time between two kernels. `LaunchCost` has both times, and
`timeline_us` computes the gaps of a model.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable
from functools import partial

from op_profiler.targets.cuda.events import Events, HeldStream
from op_profiler.targets.cuda.own_kernels import Spin

_CHAIN = 24
_REPEATS = 9
_WARM_UP_CHAINS = 2000
"""Chains of launches for 0.2 s, in which an idle GPU raises its clock."""


def timeline_us(kernels_us: Iterable[float], launches_us: Iterable[float], turn_us: float) -> float:
    """Return the microseconds from the first launch to the end of the last kernel.

    A kernel begins after its launch, and at least `turn_us` after the end of the kernel before it.

    Args:
        kernels_us: time of each kernel on the GPU, in order.
        launches_us: time of the host for each launch, in the same order.
    """
    end_us, launched_us = -turn_us, 0.0
    for kernel_us, launch_us in zip(kernels_us, launches_us, strict=True):
        launched_us += launch_us
        end_us = max(launched_us, end_us + turn_us) + kernel_us
    return end_us


@dataclasses.dataclass(frozen=True)
class LaunchCost:
    """Cost of launches and events on a GPU in microseconds.

    The time from the last instruction of a kernel to the first instruction of the next one is `turn_us` plus
    `edges_us`. Only the sum is measured. How much of it belongs to the kernels is a matter of definition, from nothing
    to all of it. `edges_us` is therefore half of the sum, and the other half is part of `uncertain_us`. (On an H100,
    CUPTI counted 0.93 us as the edges of a kernel, measured by hand.)

    Attributes:
        event_us: time from event to event around a kernel, beyond the kernel itself.
        turn_us: time from the end of a kernel to the beginning of the next kernel, if the latter was already launched.
        edges_us: time of a kernel before its first and after its last instruction.
        timer_step_us: resolution of the timer that the kernel reads.
        uncertain_us: largest systematic error of every kernel's time; it has the same sign for all kernels.
    """

    event_us: float
    turn_us: float
    edges_us: float
    timer_step_us: float
    uncertain_us: float


def launch_cost(spin: Spin, events: Events) -> LaunchCost:
    """Measure the present cost of launches; takes some milliseconds.

    Each repetition gives means over many launches, which average out the resolution of the two timers (the kernel's and
    that of events). The median over repetitions excludes interrupted ones.

    Raises:
        MeasureError: the host cannot launch ahead of the GPU.
    """
    held = HeldStream(events)
    spin.mean_us()
    with_event, chained, instructions = [], [], []
    for _ in range(_REPEATS):
        singles_us = held.repeated(lambda: held.once([spin.launch] * _CHAIN))
        with_event.append(statistics.mean(singles_us[1:]))
        chained.append(held.repeated(lambda: held.once([partial(_launch_chain, spin)] * 2))[1])
        instructions.append(spin.mean_us())
    with_event_us, chained_us, instructions_us = map(statistics.median, (with_event, chained, instructions))
    without_us = (chained_us - with_event_us) / (_CHAIN - 1)  # behind the last one of a chain there is an event
    between_us, step_us = max(without_us - instructions_us, 0.0), spin.timer_step_us()
    edges_us = between_us / 2
    return LaunchCost(
        event_us=with_event_us - instructions_us - edges_us,
        turn_us=between_us - edges_us,
        edges_us=edges_us,
        timer_step_us=step_us,
        uncertain_us=edges_us + step_us / math.sqrt(3 * _CHAIN * _REPEATS),
    )


def _launch_chain(spin: Spin) -> bool:
    return all(spin.launch() for _ in range(_CHAIN))


def warm_launch_cost(spin: Spin, events: Events) -> LaunchCost:
    """Measure `launch_cost` of a GPU that may have been idle."""
    for _ in range(_WARM_UP_CHAINS):
        _launch_chain(spin)
        spin.mean_us()  # waits for them
    return launch_cost(spin, events)
