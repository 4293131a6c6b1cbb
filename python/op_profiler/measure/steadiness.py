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
"""Names of the times that `SteadinessProbe.timed` returns, in order."""

FIRST_MEMORY_BYTES = 50_331_648
"""Size in bytes of the memory kernel's data in versions that stored no sizes; it fits into some processors' caches."""


class SteadinessProbe(Protocol):
    """The reference kernels of a machine.

    Attributes:
        sizes_bytes: sizes of the data of each kernel. They depend on all cores that this process may use, not on the
            cores of a run, so that they are the same in every run.
        exchanged_bytes: size of the data that all threads write and then read in `exchanged_us`.
    """

    sizes_bytes: tuple[int, int]
    exchanged_bytes: int

    def timed(self) -> tuple[float, ...]:
        """Return the median time of a call of each reference kernel in microseconds, at the current thread count."""

    def exchanged_us(self) -> float:
        """Return the median time that the threads need to read data that all of them have just written, microseconds.

        It is measured at the current thread count.
        """
