"""How far apart the cores are at the moment, and when that is further than usual.

A hypervisor moves the virtual cores of a guest between physical ones. For seconds to minutes two of them may share no
cache: data that one wrote then takes five times as long to the other, and kernels that read what their neighbours on
other cores wrote take two to four times as long. Neither arithmetic nor memory gets slower. So a kernel that does
nothing but read what the other cores wrote is timed beside the rounds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from op_profiler.cache import cache_folder
from op_profiler.files import atomic_file
from op_profiler.measure.measurement import APART, Device
from op_profiler.measure.steadiness import SteadinessProbe

_NEAR = 0.25
"""Cores are near most of the time: of all times the quantile that tells how long the kernel then takes."""
_RUNS_KEPT = 100


class CoreDistance:
    """Times of the kernel that exchanges data: of this run, and one of each run before it (a file in the cache folder).

    A run counts once, however often it reads: one that waits for the cores to come near reads them apart many times.

    Args:
        probe: has the kernel.
        device: the machine.
        threads: that exchange; two at least.
    """

    def __init__(self, probe: SteadinessProbe, device: Device, threads: int) -> None:
        self._probe = probe
        self._path = cache_folder() / "states" / f"{device.key}-{threads}-exchange-{probe.exchanged_bytes}.json"
        self._earlier_us = self._read()
        self._times_us: list[float] = []

    @property
    def near_us(self) -> float | None:
        """What the kernel takes while the cores are near; None before the first reading."""
        runs = self._earlier_us + ([self._of_run_us] if self._times_us else [])
        return float(np.quantile(runs, _NEAR)) if runs else None

    @property
    def _of_run_us(self) -> float:
        return float(np.quantile(self._times_us, _NEAR))

    def read_us(self) -> float:
        """What it takes now, microseconds; the threads have to be set."""
        self._times_us.append(self._probe.exchanged_us())
        return self._times_us[-1]

    def apart(self, time_us: float) -> bool:
        """Whether the cores were further apart than usual while it took so long."""
        near_us = self.near_us
        return near_us is not None and time_us > APART * near_us

    def keep(self) -> None:
        """Leave what was read to later runs; a cache that cannot be written costs the entry."""
        if not self._times_us:
            return
        runs = [*self._earlier_us, round(self._of_run_us, 3)][-_RUNS_KEPT:]
        try:
            with atomic_file(self._path) as partial:
                partial.write_text(json.dumps(runs))
        except OSError:
            return

    def told(self, times_us: Sequence[float]) -> dict[str, float]:
        """What the dataset keeps of a run: the median of its readings and what is usual, microseconds."""
        near_us = self.near_us
        if not times_us or near_us is None:
            return {}
        return {"exchange_us": round(float(np.median(times_us)), 3), "exchange_near_us": round(near_us, 3)}

    def _read(self) -> list[float]:
        try:
            return [float(time_us) for time_us in json.loads(self._path.read_text())]
        except (OSError, ValueError, TypeError):
            return []
