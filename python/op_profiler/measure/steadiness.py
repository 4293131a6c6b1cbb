"""Reference kernels: two fixed kernels whose times show the state of the machine.

On a shared host the same kernel takes 10 to 40 % longer for minutes when a neighbour uses the other half of a physical
core or the memory bus, and nothing inside the virtual machine shows it. So every window of rounds times two kernels
that are the same in every run: one of multiply-adds on data in the first-level cache, one that reads what lies in no
cache. Their times are stored with the model's and say which runs can be compared; so are the sizes of their data
(``gauge_bytes``), since times of two sizes cannot.
"""

from __future__ import annotations

from typing import Protocol

PROBE_NAMES = ("compute", "memory")
"""What `SteadinessProbe.timed` returns, in this order."""

FIRST_MEMORY_BYTES = 50_331_648
"""What the memory kernel read over and over before sizes were stored: a cache, on processors with larger ones."""


class SteadinessProbe(Protocol):
    """The reference kernels of a machine.

    Attributes:
        sizes_bytes: of the data of each kernel. All cores that this process may use count, whichever a run uses, so
            that the steadiness probe is the same.
        exchanged_bytes: what the threads read of one another in `exchanged_us`, and of themselves.
    """

    sizes_bytes: tuple[int, int]
    exchanged_bytes: int

    def timed(self) -> tuple[float, ...]:
        """Median microseconds of a call of each kernel, at the thread count that is set."""

    def exchanged_us(self) -> float:
        """Median microseconds in which threads read what all of them wrote just before, at the thread count that is
        set."""
