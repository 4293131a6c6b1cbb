"""What a table of convolutions holds, whoever wrote it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

FIELDS = ("depthwise", "batch", "in_channels", "size", "out_channels", "kernel", "stride", "fused")
"""Columns of a convolution, in the order of `Convolutions.matrix`; `fused`: the residual addition is part of it."""


@dataclasses.dataclass(frozen=True)
class Convolutions:
    """Square convolutions, one an entry of each array, with padding that keeps the size at stride 1.

    Attributes:
        matrix: shape (rows, 8), int64, columns `FIELDS`; `size` is height and width of the input.
        latency_us: shape (rows,), microseconds for the whole batch; NaN where it is not known.
        failed: rows of the source that hold a failure instead of a time; they are not among the entries.
        unreadable: lines of the source that are no rows.
    """

    matrix: np.ndarray
    latency_us: np.ndarray
    failed: int = 0
    unreadable: int = 0

    def __len__(self) -> int:
        return len(self.matrix)

    def column(self, name: str) -> np.ndarray:
        """One of `FIELDS`."""
        values: np.ndarray = self.matrix[:, FIELDS.index(name)]
        return values

    @property
    def ratio(self) -> np.ndarray:
        """Input over output channels, two decimals, rounded down; 0 for a stem (3 input channels)."""
        channels = self.column("in_channels")
        ratios: np.ndarray = np.floor(channels / self.column("out_channels") * 100) / 100
        return np.where(channels == 3, 0.0, ratios)

    def where(self, mask: np.ndarray) -> Convolutions:
        """The entries of a mask or of indices."""
        return Convolutions(self.matrix[mask], self.latency_us[mask])

    @classmethod
    def of(
        cls, rows: Sequence[Sequence[int]] | np.ndarray, latency_us: Sequence[float] | None = None, **counts: int
    ) -> Convolutions:
        """From rows in the order of `FIELDS`."""
        matrix = np.asarray(rows, dtype=np.int64).reshape(-1, len(FIELDS))
        times = np.full(len(matrix), np.nan) if latency_us is None else np.asarray(latency_us, dtype=np.float64)
        return cls(matrix, times, **counts)
