"""What a kernel that never changes usually takes on a machine."""

from __future__ import annotations

import json

import numpy as np

from op_profiler.cache import cache_folder
from op_profiler.files import atomic_file
from op_profiler.measure.measurement import Device

_QUIET = 0.25
"""Nobody disturbs most of the time: of all times the quantile that tells how long the kernel then takes."""
_RUNS_KEPT = 100


class UsualTime:
    """Times of one kernel at one thread count: of this run, and one of each run before it (a file in the cache folder).

    A run counts once, however often it reads: one that waits for a quiet moment reads many others.

    Args:
        device: the machine.
        threads: that are set.
        kernel: its name.
        size_bytes: of its data; times of another size are others.
    """

    def __init__(self, device: Device, threads: int, kernel: str, size_bytes: int) -> None:
        self._path = cache_folder() / "states" / f"{device.key}-{threads}-{kernel}-{size_bytes}.json"
        self._earlier_us = self._read()
        self._times_us: list[float] = []

    @property
    def usual_us(self) -> float | None:
        """What the kernel takes while nobody disturbs it; None before the first reading."""
        runs = self._earlier_us + ([self._of_run_us] if self._times_us else [])
        return float(np.quantile(runs, _QUIET)) if runs else None

    @property
    def _of_run_us(self) -> float:
        return float(np.quantile(self._times_us, _QUIET))

    def add(self, time_us: float) -> None:
        """A reading of this run, microseconds."""
        self._times_us.append(time_us)

    def exceeded(self, time_us: float, factor: float) -> bool:
        """Whether a reading is more than so many times the usual one."""
        usual_us = self.usual_us
        return usual_us is not None and time_us > factor * usual_us

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

    def _read(self) -> list[float]:
        try:
            return [float(time_us) for time_us in json.loads(self._path.read_text())]
        except (OSError, ValueError, TypeError):
            return []
