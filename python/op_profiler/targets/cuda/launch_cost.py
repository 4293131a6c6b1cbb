"""What events and launches add to kernels on a GPU, from a kernel that reads itself how long it keeps it busy.

The executor launches kernels ahead of the GPU where they take longer than their launches, and else the GPU waits. So a
model takes the time of its kernels and gaps between them. An event behind every kernel gives the kernels' times, but
each of these holds what the event takes and what the GPU needs from kernel to kernel. `LaunchCost` has both, and
`timeline_us` how long the gaps of a model are.
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
"""0.2 s, in which an idle GPU raises its clock."""


def timeline_us(kernels_us: Iterable[float], launches_us: Iterable[float], turn_us: float) -> float:
    """When the last of some kernels ends, from the first launch on, microseconds.

    A kernel begins when it is launched and, `turn_us` before that, the kernel before it has ended.

    Args:
        kernels_us: time of each kernel on the GPU, in order.
        launches_us: time that each launch takes the host, in the same order.
    """
    end_us, launched_us = -turn_us, 0.0
    for kernel_us, launch_us in zip(kernels_us, launches_us, strict=True):
        launched_us += launch_us
        end_us = max(launched_us, end_us + turn_us) + kernel_us
    return end_us


@dataclasses.dataclass(frozen=True)
class LaunchCost:
    """Microseconds on a GPU.

    From the last instruction of a kernel to the first one of the next kernel it takes `turn_us` and `edges_us`. Their
    sum is measured. How much of it belongs to the kernels depends on a profiler's definition: nothing at least, all at
    most. So `edges_us` is half of the sum, and the other half is part of `uncertain_us`. (On an H100 CUPTI counted
    0.93 us as the edges of a kernel, by hand.)

    Attributes:
        event_us: from event to event around a kernel, beyond the kernel itself.
        turn_us: from the end of a kernel to the begin of the next one that was launched before.
        edges_us: of a kernel, before its first instruction and behind its last.
        timer_step_us: step of the timer that the kernel reads.
        uncertain_us: what the time of every kernel may be off by, in one direction for all of them.
    """

    event_us: float
    turn_us: float
    edges_us: float
    timer_step_us: float
    uncertain_us: float


def launch_cost(spin: Spin, events: Events) -> LaunchCost:
    """Measure the cost of launches as it is now; takes some milliseconds.

    Each repeat has means over many launches, which do not show the steps of the two timers: of the kernel's own, and of
    events. The median over repeats leaves out what interrupted one of them.

    Raises:
        MeasureError: the host does not get to launch ahead of the GPU.
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
    """`launch_cost` of a GPU that may have been idle."""
    for _ in range(_WARM_UP_CHAINS):
        _launch_chain(spin)
        spin.mean_us()  # waits for them
    return launch_cost(spin, events)
