"""`Placements`: copies of a loaded model in other memory pages, measured in turn.

The physical pages of a model's tensors determine which cache lines evict each other from the second-level cache, and
the operating system assigns other pages to every process. Two copies of a model in one process differ as much as two
processes do; two sets of eight copies agree (`benchmarks/placements.py`). A run therefore measures several copies, one
in each window of rounds, so that its medians do not depend on one assignment of pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import psutil

T = TypeVar("T")

USUAL_COPIES = 8
_OF_FREE_MEMORY = 8
"""Share of the free memory that all copies together may use: one eighth."""
_MOST_BYTES = 1 << 30
"""Bytes that all copies together may use, unless one copy is larger: the weights of a larger model fit into no cache
anyway."""


class Placements(Generic[T]):
    """A ring of copies, each of which is loaded at its first use.

    Args:
        load: loads the model with a copy of its weights.
        first: the model as it was loaded, with the weights where the build left them.
        size_bytes: size of each copy.
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
        """Return the next copy; after the last one, the first again."""
        self._at = (self._at + 1) % self._most
        if self._at == len(self._copies):
            self._copies.append(self._load())
        return self._copies[self._at]
