"""How many blocks the device of a table computes at once, which no table says: its times step at multiples of it."""

from __future__ import annotations

import numpy as np

from op_profiler.dataset.formats.format import Convolutions
from op_profiler.predict.library.neighbours import Roofline, blocked_us

_COUNTS = range(2, 162, 2)  # multiprocessors of GPUs are even in number
_COMPUTED = 0.7  # of the time of its memory is what a convolution computes at least, whose blocks are told of here
_SHORTEST_US = 15.0  # of shorter kernels the start is seen
_FEWEST = 500


def parallel_units(table: Convolutions, roofline: Roofline) -> int:
    """The count whose whole waves explain the times best, by least squares on logarithms; 1 where there are too few.

    It may be twice the true one, with blocks of half the size: their waves are equally long. Each kernel size, stride
    and fusion has coefficients of its own.
    """
    compute_us, memory_us = roofline.bounds_us(table)
    told = (table.column("depthwise") == 0) & (compute_us > _COMPUTED * memory_us) & (table.latency_us > _SHORTEST_US)
    table = table.where(told)
    if len(table) < _FEWEST:
        return 1
    rooflines_us = roofline.latency_us(table)
    times = np.log(table.latency_us / rooflines_us)
    group = np.zeros(len(table), dtype=np.int64)
    for name in ("kernel", "stride", "fused"):
        group = group * (table.column(name).max() + 1) + table.column(name)

    def error(units: int) -> float:
        blocks = np.log(blocked_us(table, roofline, units) / rooflines_us)
        columns = np.vstack([np.ones(len(table)), blocks, blocks.min(axis=0)]).T
        left = 0.0
        for one in np.unique(group):
            rows = group == one
            coefficients = np.linalg.lstsq(columns[rows], times[rows], rcond=None)[0]
            left += float(np.abs(times[rows] - columns[rows] @ coefficients).sum())
        return left

    return min(_COUNTS, key=error)
