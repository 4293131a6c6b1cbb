"""`Placements`: copies of a loaded model in different memory pages, which are measured one after the other.

The physical pages of a model's tensors determine which cache lines evict each other from the second-level cache, and
the operating system assigns different pages to every process. The times of two copies of a model in one process differ
as much as the times of two processes do; the times of two sets of eight copies agree (`benchmarks/placements.py`). A
run therefore measures several copies, one in each window of rounds, so that its medians do not depend on one assignment
of pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import psutil

T = TypeVar("T")

USUAL_COPIES = 8
_OF_FREE_MEMORY = 8
"""Divisor of the free memory: all further copies together may use one eighth of it."""
_MOST_BYTES = 1 << 30
"""Bytes that all further copies together may use; one copy is allowed even if it is larger. The weights of a larger
model fit into no cache anyway, so that pages matter less."""


class Placements(Generic[T]):
    """A ring of copies of a model, each of which is loaded at its first use.

    Args:
        first: the model as it was loaded, with the weights where the build left them.
        load: loads another copy of the model with a copy of its weights.
        size_bytes: size of each copy, bytes.
        copies: largest number of copies, including the first.
    """

    def __init__(self, first: T, load: Callable[[], T], size_bytes: int, copies: int = USUAL_COPIES) -> None:
        self._copies = [first]
        self._load = load
        self._at = 0
        room = psutil.virtual_memory().available // _OF_FREE_MEMORY
        size = max(size_bytes, 1)
        self._most = 1 + min(copies - 1, min(room, max(_MOST_BYTES, size)) // size)

    def next(self) -> T:
        """Return the next copy; after the last copy, return the first again."""
        self._at = (self._at + 1) % self._most
        if self._at == len(self._copies):
            self._copies.append(self._load())
        return self._copies[self._at]
