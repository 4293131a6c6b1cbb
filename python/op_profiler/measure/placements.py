"""`Placements`: copies of a loaded model in other memory pages, measured in turn.

Which physical pages a model's tensors get decides which lines push each other out of the second-level cache, and the
operating system deals them out anew to every process. Two copies of a model that one process measured in turn
differed as the times of two processes do; two sets of eight copies agreed (`benchmarks/placements.py`). So a run
measures several copies, a window of rounds each, and its medians are not those of one deal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import psutil

T = TypeVar("T")

USUAL_COPIES = 8
_OF_FREE_MEMORY = 8
"""All copies together may take this part of it: one eighth."""
_MOST_BYTES = 1 << 30
"""That the copies together take, but one: the weights of a larger model fit into no cache, wherever they lie."""


class Placements(Generic[T]):
    """A ring of copies, each loaded at its first use.

    Args:
        load: loads the model with a copy of its weights.
        first: the model as it was loaded, over the weights where the build left them.
        size_bytes: of each copy.
        copies: at most, the first among them.
    """

    def __init__(self, first: T, load: Callable[[], T], size_bytes: int, copies: int = USUAL_COPIES) -> None:
        self._copies = [first]
        self._load = load
        self._at = 0
        room = psutil.virtual_memory().available // _OF_FREE_MEMORY
        size = max(size_bytes, 1)
        self._most = 1 + min(copies - 1, min(room, max(_MOST_BYTES, size)) // size)

    def next(self) -> T:
        """The next copy; after the last one the first again."""
        self._at = (self._at + 1) % self._most
        if self._at == len(self._copies):
            self._copies.append(self._load())
        return self._copies[self._at]
