"""`ConditionsOfWindow`: the state of a machine over a window of rounds, such as clocks and temperature."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

Readings = dict[str, Any]
_EVERY_SECONDS = 0.05


class ConditionsOfWindow:
    """Asks a machine for its state (`Machine.conditions`) every 0.05 s.

    Args:
        ask: what a machine answers at a moment; None where it answers nothing.
    """

    def __init__(self, ask: Callable[[], Readings | None]) -> None:
        self._ask = ask
        self._found: list[Readings] = []
        self._next = 0.0

    def read(self) -> None:
        """Ask, where it is time again."""
        if time.monotonic() >= self._next:
            found = self._ask()
            self._found += [] if found is None else [found]
            self._next = time.monotonic() + _EVERY_SECONDS

    def result(self) -> list[Readings]:
        """One entry of the window, none where the machine answered nothing: numbers as medians, their extremes behind
        ``_low`` and ``_high``; lists with all that any answer held."""
        merged: Readings = {}
        for name in dict.fromkeys(name for one in self._found for name in one):
            values = [one[name] for one in self._found if name in one]
            if isinstance(values[0], list):
                merged[name] = sorted({item for value in values for item in value})
            else:
                merged |= {name: statistics.median(values), f"{name}_low": min(values), f"{name}_high": max(values)}
        return [merged] if merged else []
