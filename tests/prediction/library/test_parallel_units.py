"""How many blocks a device computes at once is read from its times."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from op_profiler.dataset.formats.format import Convolutions
from op_profiler.prediction.library.default import parallel_units
from op_profiler.prediction.library.neighbours import TableRoofline, blocked_us

_RATES = TableRoofline(flops_per_us=1e7, bytes_per_us=1e6)


def _device(units: int) -> Convolutions:
    """Of a device that computes `units` blocks at once and takes the fastest of its kernels, with 2 % of noise."""
    sizes = itertools.product(
        (1, 4, 16, 64), (64, 192, 512), (7, 10, 14, 18, 22, 28, 40, 56, 80), (64, 160, 256, 768), (3, 5), (1, 2)
    )
    matrix = [
        (0, batch, inputs, size, outputs, kernel, stride, 0) for batch, inputs, size, outputs, kernel, stride in sizes
    ]
    kernels_us = blocked_us(Convolutions.of(matrix), _RATES, units)[:5]
    noise = np.random.default_rng(0).normal(1.0, 0.02, len(matrix))
    return Convolutions.of(matrix, kernels_us.min(axis=0) * noise)


@pytest.mark.parametrize("units", [20, 46, 108])
def test_units_are_found_in_times(units: int) -> None:
    """Twice as many with blocks of half the size make waves of the same length, so that is an answer too."""
    found = parallel_units(_device(units), _RATES)
    assert min(abs(found / units - 1), abs(found / units / 2 - 1)) < 0.03


def test_few_entries_tell_nothing() -> None:
    table = _device(20)
    table = table.where(np.arange(len(table)) < 300)
    assert parallel_units(table, _RATES) == 1
