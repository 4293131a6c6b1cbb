"""What the host does to the cores of a guest, read beside the rounds: nothing inside the guest tells of it.

A hypervisor moves the virtual cores of a guest between physical ones. For seconds to minutes two of them may share no
cache: data that one wrote then takes five times as long to the other, and kernels that read what their neighbours on
other cores wrote take two to four times as long. Neither arithmetic nor memory gets slower. So a kernel that does
nothing but read what the other cores wrote is timed beside the rounds.

Or two of them share one physical core, with one another or with another guest: arithmetic then takes up to twice as
long. The compute kernel of the steadiness probe tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from op_profiler.measure.measurement import APART, SHARED, Device
from op_profiler.measure.steadiness import SteadinessProbe
from op_profiler.measure.usual import UsualTime


class HostState:
    """Whether the cores are apart, or shared, more than they usually are.

    Args:
        probe: has the kernels.
        device: the machine.
        threads: thread counts of the run. The largest exchanges data; at one thread nothing is exchanged.
    """

    def __init__(self, probe: SteadinessProbe, device: Device, threads: Sequence[int]) -> None:
        self._probe = probe
        self._most = max(threads)
        self._computing = {n: UsualTime(device, n, "compute", probe.sizes_bytes[0]) for n in threads}
        self._exchanging = UsualTime(device, self._most, "exchange", probe.exchanged_bytes)

    def exchanged_us(self) -> list[float]:
        """One reading of how long data takes between cores, microseconds, where the largest thread count is set; none
        where that is 1."""
        if self._most == 1:
            return []
        self._exchanging.add(time_us := self._probe.exchanged_us())
        return [time_us]

    def add(self, computed_us: Mapping[int, float]) -> None:
        """Readings of the compute kernel by thread count, microseconds."""
        for threads, time_us in computed_us.items():
            self._computing[threads].add(time_us)

    def disturbs(self, computed_us: Mapping[int, float], exchanged_us: Sequence[float]) -> bool:
        """Whether the cores were further apart, or slower, than usual while this was read."""
        apart = any(self._exchanging.exceeded(time_us, APART) for time_us in exchanged_us)
        return apart or any(self._computing[n].exceeded(time_us, SHARED) for n, time_us in computed_us.items())

    def keep(self) -> None:
        """Leave what was read to later runs."""
        for usual in (self._exchanging, *self._computing.values()):
            usual.keep()

    def told(self, threads: int, exchanged_us: Sequence[float]) -> dict[str, Any]:
        """What the dataset keeps of a run at a thread count, microseconds: what is usual, and the median of readings
        that it does not keep anyway."""
        usual_us, near_us = self._computing[threads].usual_us, self._exchanging.usual_us
        found = {} if usual_us is None else {"compute_usual_us": round(usual_us, 3)}
        if not exchanged_us or near_us is None:
            return found
        return found | {
            "exchange_us": round(float(np.median(exchanged_us)), 3),
            "exchange_near_us": round(near_us, 3),
        }
