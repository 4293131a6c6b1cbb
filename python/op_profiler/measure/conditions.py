"""`ConditionsOfWindow`: reads the state of a machine, such as clocks and temperature, during a window of rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

Readings = dict[str, Any]
_EVERY_SECONDS = 0.05


class ConditionsOfWindow:
    """Readings of a machine's state (`Machine.conditions`), at most one per 0.05 s.

    Args:
        read_state: returns the present state of the machine; None if the machine reports no state.
    """

    def __init__(self, read_state: Callable[[], Readings | None]) -> None:
        self._read_state = read_state
        self._readings: list[Readings] = []
        self._next = 0.0

    def read(self) -> None:
        """Read the state if 0.05 s have passed since the last reading."""
        if time.monotonic() >= self._next:
            found = self._read_state()
            self._readings += [] if found is None else [found]
            self._next = time.monotonic() + _EVERY_SECONDS

    def result(self) -> list[Readings]:
        """Return a list with one summary of the readings; an empty list if the machine reports no state.

        Numbers are summarized as medians, with their extremes under the names with ``_low`` and ``_high``; lists are
        merged.
        """
        merged: Readings = {}
        for name in dict.fromkeys(name for one in self._readings for name in one):
            values = [one[name] for one in self._readings if name in one]
            if isinstance(values[0], list):
                merged[name] = sorted({item for value in values for item in value})
            else:
                merged |= {name: statistics.median(values), f"{name}_low": min(values), f"{name}_high": max(values)}
        return [merged] if merged else []
