"""Measures the energy of a call with counters that advance every few milliseconds, and reads the RAPL counters."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from op_profiler.cores import text_in

_SECONDS = 0.5


def energy_per_call_mj(counter_mj: Callable[[], float | None], run: Callable[[], int]) -> float | None:
    """Return the energy of one call in millijoules, including idle power.

    The result is None if the counter cannot be read or did not advance, or if a call failed.

    Args:
        counter_mj: returns the energy used so far, millijoules; None if it cannot be read.
        run: makes some calls and returns their number; 0 if a call failed.
    """
    before = counter_mj()
    started = time.monotonic()  # after the reading, which may be slow, for example over a network
    calls = 0
    while not calls or time.monotonic() - started < _SECONDS:
        made = run()
        if not made:
            return None
        calls += made
    after = counter_mj()
    return (after - before) / calls if before is not None and after is not None and after > before else None


@dataclasses.dataclass
class _Zone:
    """The energy counter of one processor package.

    Attributes:
        file: file that contains the counter's value, microjoules.
        range_uj: value after which the counter restarts from 0, microjoules.
        last_uj: the last reading, microjoules.
    """

    name: str
    file: Path
    range_uj: int
    last_uj: int


class Rapl:
    """The energy counters of the processor packages, which Linux shows as power-capping zones.

    Only packages are counted. ``psys`` is the whole platform and includes them; the zones inside a package (``core``,
    ``uncore``) are parts of it. On servers ``dram`` is not part of the package, but few machines report it, so it is
    left out to make energies of two machines comparable. The zones of ``intel-rapl-mmio`` are the same packages again
    (https://docs.kernel.org/power/powercap/powercap.html).

    Args:
        root: folder of the zones.
    """

    def __init__(self, root: Path = Path("/sys/class/powercap")) -> None:
        found = [zone for zone in sorted(root.glob("intel-rapl:*")) if text_in(zone / "name").startswith("package-")]
        zones = [_zone(path) for path in found]
        self._zones = [zone for zone in zones if zone is not None]
        self._total_uj = 0
        if len(self._zones) < len(found):  # the energy of some packages would be reported as that of all
            self._zones = []
            self.description = f"{root}/intel-rapl:* cannot be read (root may)"
        elif found:
            self.description = "RAPL: " + ", ".join(zone.name for zone in self._zones)
        else:
            self.description = f"no package counter in {root}"

    def energy_mj(self) -> float | None:
        """Return the energy of all packages since this object was created, millijoules; None without readable counters.

        A counter that restarted from 0 is recognised by its last reading. Two readings must therefore be less than a
        full range apart, about twenty minutes on a server that uses 200 W.
        """
        if not self._zones:
            return None
        for zone in self._zones:
            try:
                now_uj = int(zone.file.read_text())
            except (OSError, ValueError):
                return None
            self._total_uj += now_uj - zone.last_uj + (zone.range_uj if now_uj < zone.last_uj else 0)
            zone.last_uj = now_uj
        return self._total_uj / 1e3


def _zone(path: Path) -> _Zone | None:
    try:
        counter = path / "energy_uj"
        return _Zone(
            text_in(path / "name"), counter, int((path / "max_energy_range_uj").read_text()), int(counter.read_text())
        )
    except (OSError, ValueError):
        return None
