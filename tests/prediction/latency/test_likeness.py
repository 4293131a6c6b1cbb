"""What the peaks of two devices say of the costs of their kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from op_profiler.prediction.latency.features import KINDS
from op_profiler.prediction.latency.kernel_model import KernelModel
from op_profiler.prediction.latency.likeness import as_if_here, likeness
from op_profiler.prediction.latency.traffic import MOVED, TERMS

WIDTH = len(TERMS) + len(MOVED) + 3
THERE: dict[str, Any] = {
    "threads": [1, 2],
    "bytes_per_us": [30_000.0, 40_000.0],
    "cache_bytes_per_us": {"l1": [4e5, 8e5], "l2": [1e5, 2e5], "l3": [9e4, 18e4]},
}
HERE: dict[str, Any] = THERE | {
    "bytes_per_us": [15_000.0, 40_000.0],
    "cache_bytes_per_us": {"l1": [1e5, 2e5], "l2": [1e5, 2e5], "l3": [3e4, 3e4]},
}


@pytest.fixture
def kernels() -> KernelModel:
    rng = np.random.default_rng(0)
    return KernelModel(np.array([1, 2]), rng.normal(size=(2, WIDTH)), rng.normal(size=(2, len(KINDS), WIDTH)))


def changed(found: KernelModel, kernels: KernelModel) -> dict[str, tuple[float, float]]:
    """By name of what is moved, how many times as much a byte costs at one thread and at two."""
    of_kinds = np.exp(found.log_costs_of_kinds - kernels.log_costs_of_kinds)
    of_all = np.exp(found.log_costs - kernels.log_costs)
    assert np.allclose(of_kinds, of_all[:, None])
    names = [*TERMS, *MOVED, "call", "cold call", "split"]
    return {
        name: (round(float(one), 6), round(float(two), 6))
        for name, one, two in zip(names, *of_all)
        if not np.allclose((one, two), 1)
    }


def test_a_byte_costs_as_much_more_as_the_cache_hands_on_less(kernels: KernelModel) -> None:
    found = changed(as_if_here(kernels, THERE, HERE), kernels)
    assert found == {"past_1m": (3, 6), "past_2m": (3, 6), "past_32m": (2, 1)}


def test_what_one_of_the_two_does_not_tell_costs_the_same(kernels: KernelModel) -> None:
    bare = {name: value for name, value in HERE.items() if name != "cache_bytes_per_us"}
    assert changed(as_if_here(kernels, THERE, bare), kernels) == {"past_32m": (2, 1)}
    assert changed(as_if_here(kernels, bare, THERE), kernels) == {"past_32m": (0.5, 1)}
    assert not changed(as_if_here(kernels, THERE, None), kernels)
    assert not changed(as_if_here(kernels, None, None), kernels)


def test_devices_count_the_more_the_nearer_their_peaks_are() -> None:
    flops = {"flops_per_us": [1e5, 2e5]}
    near = THERE | {"bytes_per_us": [31_000.0, 40_000.0]}
    assert likeness(THERE | flops, THERE | flops) == 1.0
    assert 1 > likeness(THERE, near) > 0.9 > 0.1 > likeness(THERE, HERE) > likeness(THERE, None) > 0
    assert likeness(THERE, HERE) == pytest.approx(likeness(HERE, THERE))
    slower = THERE | {"flops_per_us": [5e4, 1e5]}
    assert likeness(slower, THERE | flops) < likeness(THERE, THERE | flops) == 1.0
