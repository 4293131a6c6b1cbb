"""Reference kernels: two fixed kernels whose times show the state of the machine.

On a shared host, the same kernel takes 10 to 40 % longer for minutes if another guest uses the other hyperthread of a
physical core or the memory bus, and nothing inside the virtual machine shows it. Every window of rounds therefore times
two kernels that are the same in every run: one with multiply-adds on data in the first-level cache, and one that reads
data outside all caches. Their times are stored with those of the model and show which runs can be compared. The sizes
of their data are stored too (``gauge_bytes``), because times of different sizes cannot be compared.
"""

from __future__ import annotations

from typing import Protocol

PROBE_NAMES = ("compute", "memory")
"""Names of the values that `SteadinessProbe.timed` returns, in order."""

FIRST_MEMORY_BYTES = 50_331_648
"""Size that the memory kernel read repeatedly before sizes were stored. It fits into the caches of some processors."""


class SteadinessProbe(Protocol):
    """The reference kernels of a machine.

    Attributes:
        sizes_bytes: sizes of the data of each kernel. They depend on all cores that this process may use, not on those
            of a run, so that they are the same in every run.
        exchanged_bytes: size of the data that the threads read from one another, and from themselves, in
            `exchanged_us`.
    """

    sizes_bytes: tuple[int, int]
    exchanged_bytes: int

    def timed(self) -> tuple[float, ...]:
        """Return the median time of a call of each kernel in microseconds, at the current thread count."""

    def exchanged_us(self) -> float:
        """Return the median time in microseconds in which threads read what all of them have just written, at the
        current thread count."""
