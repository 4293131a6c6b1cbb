"""The resource ``governor``: the frequency governor of the cores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from op_profiler.resources.resource import (
    SYSFS,
    Resource,
    ResourceError,
    check_writable,
    read_text,
    restored,
    write_text,
)


class Governor(Resource):
    """The frequency governor of all cores (https://docs.kernel.org/admin-guide/pm/cpufreq.html)."""

    name = "governor"

    def __init__(self, root: Path = SYSFS) -> None:
        super().__init__(root)
        self._cores = root / "devices/system/cpu"

    def _files(self, name: str) -> list[Path]:
        """Return one file for each core; raise ResourceError if there are none."""
        found = sorted(self._cores.glob(f"cpu[0-9]*/cpufreq/{name}"))
        if not found:
            raise ResourceError(f"there is no {self._cores}/cpu*/cpufreq: the clock is out of this system's reach")
        return found

    def range(self) -> list[str]:
        """Return the governors that every core supports."""
        offered = [read_text(path).split() for path in self._files("scaling_available_governors")]
        return [name for name in offered[0] if all(name in other for other in offered)]

    def read(self) -> str:
        """Return the name of the governor; if cores differ, all names."""
        return ", ".join(sorted({read_text(path) for path in self._files("scaling_governor")}))

    def check_settable(self) -> None:
        """Raise ResourceError if the governor of any core cannot be written."""
        for path in self._files("scaling_governor"):
            check_writable(path)

    @contextlib.contextmanager
    def applied(self, value: str) -> Iterator[None]:
        """Set the governor of every core to `value`."""
        self.check_settable()
        before = {path: read_text(path) for path in self._files("scaling_governor")}
        with restored(before):
            for path in before:
                write_text(path, value)
            yield
