"""Kernels of vendors' libraries: their sizes, the processors they ran on, and features for regressors.

Every kernel is described as a batch of matrix products: an element-wise operator, a softmax or a norm has depth 1. The
features relate the work of a kernel to the peaks of the processor, so that regressors that are fitted to some
processors can predict a processor that was never measured.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

_START_US = 5.0
_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (32, 32))
_STEPS = (4, 16, 64)  # vector loads and tiles require multiples of these sizes


@dataclasses.dataclass(frozen=True)
class Processor:
    """The data sheet of a processor, for one data type.

    Attributes:
        units: number of multiprocessors or cores.
        cache_bytes: size of the last-level cache; 0 if the set does not contain it.
    """

    name: str
    flops_per_us: float
    bytes_per_us: float
    units: int
    cache_bytes: float

    @property
    def description(self) -> np.ndarray:
        """Logarithms of the peaks, the number of units and the cache size; their distance compares processors."""
        values = (self.flops_per_us, self.bytes_per_us, self.units, max(self.cache_bytes, 1.0))
        return np.log([float(value) for value in values])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kernels:
    """Kernels, one per row of each array.

    Attributes:
        sizes: shape (rows, 4): batch, rows, columns and depth of the product.
        flops, moved: arithmetic operations, and bytes if each tensor is moved once.
        kind: number that identifies the operator, data type or library.
        processor: index into `processors`.
        more: shape (rows, any): further features, such as the knobs of a schedule.
        time_us: microseconds of one call.
    """

    sizes: np.ndarray
    flops: np.ndarray
    moved: np.ndarray
    kind: np.ndarray
    processor: np.ndarray
    processors: Sequence[Processor]
    time_us: np.ndarray
    more: np.ndarray

    @classmethod
    def of_products(
        cls,
        sizes: np.ndarray,
        processors: Sequence[Processor],
        time_us: np.ndarray,
        element_bytes: Sequence[np.ndarray | float],
        **others: np.ndarray,
    ) -> Kernels:
        """Return products of matrices.

        Args:
            sizes, processors, time_us: as in `Kernels`.
            element_bytes: bytes of an element of the input, of the weights and of the output; numbers, or one per row.
            others: `kind`, `processor` and `more`; by default, zeros, zeros, and no further features.
        """
        batch, rows, columns, depth = sizes.T
        of_input, of_weights, of_output = element_bytes
        nothing = np.zeros(len(sizes), dtype=np.int64)
        return cls(
            sizes=sizes,
            flops=2.0 * sizes.prod(axis=1),
            moved=batch * (of_input * rows * depth + of_weights * columns * depth + of_output * rows * columns),
            processors=processors,
            time_us=time_us,
            **{"kind": nothing, "processor": nothing, "more": np.zeros((len(sizes), 0)), **others},
        )

    def __len__(self) -> int:
        return len(self.time_us)

    def where(self, mask: np.ndarray) -> Kernels:
        """Return the kernels that a mask or indices select."""
        arrays = ("sizes", "flops", "moved", "kind", "processor", "time_us", "more")
        return dataclasses.replace(self, **{name: getattr(self, name)[mask] for name in arrays})

    def peak(self, name: str) -> np.ndarray:
        """Return, for each row, a numeric field of its processor, such as ``units``."""
        return np.array([float(getattr(processor, name)) for processor in self.processors])[self.processor]

    @property
    def compute_us(self) -> np.ndarray:
        """Microseconds of the arithmetic at the peak of the processor."""
        return np.asarray(self.flops / self.peak("flops_per_us"))

    @property
    def memory_us(self) -> np.ndarray:
        """Microseconds of the transfers at the peak bandwidth of the processor."""
        return np.asarray(self.moved / self.peak("bytes_per_us"))

    @property
    def roofline_us(self) -> np.ndarray:
        """The longer of `compute_us` and `memory_us`, plus the time to start a kernel."""
        return np.asarray(np.maximum(self.compute_us, self.memory_us) + _START_US)


def tiled_us(table: Kernels) -> np.ndarray:
    """Return the estimated time of each kernel if its arithmetic is rounded up to whole tiles on all units.

    Returns:
        Microseconds, shape (tilings, rows), one row for each size of `_TILES`.
    """
    batch, rows, columns, depth = table.sizes.T
    units, peak = table.peak("units"), table.peak("flops_per_us")
    waves = [
        (np.ceil(batch * np.ceil(rows / high) * np.ceil(columns / wide) / units), high * wide) for high, wide in _TILES
    ]
    return np.stack([count * units * area * depth * 2 / peak + _START_US for count, area in waves])


def features(table: Kernels) -> np.ndarray:
    """Return the features of each kernel, which do not include its time, as float32, shape (rows, features)."""
    batch, rows, columns, depth = table.sizes.T
    roofline, units, cache = table.roofline_us, table.peak("units"), np.maximum(table.peak("cache_bytes"), 1.0)
    compute, memory = table.compute_us, table.memory_us
    quantities = [batch, rows, columns, depth, batch * rows * columns, table.flops, table.moved]
    quantities += [table.flops / table.moved, compute, memory, compute / memory, table.moved / cache]
    quantities += [rows * depth / cache, columns * depth / cache]
    quantities += [batch * np.ceil(rows / high) * np.ceil(columns / wide) / units for high, wide in _TILES]
    logs = [np.log2(quantity) for quantity in quantities] + list(np.log2(tiled_us(table) / roofline))
    steps = [size % step for step in _STEPS for size in (rows, columns, depth)]
    return np.column_stack([*logs, *steps, table.kind, table.more]).astype(np.float32)


def plain_features(table: Kernels) -> np.ndarray:
    """Return the logarithms of sizes, work and data sheet, for a regressor without an analytic model.

    Returns:
        float32, shape (rows, features).
    """
    peaks = [table.peak(name) for name in ("flops_per_us", "bytes_per_us", "units", "cache_bytes")]
    columns = [np.log1p(column) for column in (*table.sizes.T, table.flops, table.moved, *peaks)]
    return np.column_stack([*columns, table.kind, table.more]).astype(np.float32)


def log_bases(table: Kernels) -> np.ndarray:
    """Return the estimates of three simple models of a kernel's time, as logarithms of microseconds, shape (3, rows).

    The models are the roofline, the longer of the fastest tiling and the transfers, and the sum of these two.
    """
    fastest, memory = tiled_us(table).min(axis=0), table.memory_us + _START_US
    logarithms: np.ndarray = np.log([table.roofline_us, np.maximum(fastest, memory), fastest + memory])
    return logarithms
