"""The probe: kernels that never change, and times at the machine's usual state."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_profiler.cores import available_cores
from op_profiler.measure.caches import beyond_caches_bytes, caches_in_use_bytes
from op_profiler.measure.limits import Limits
from op_profiler.measure.steadiness import FIRST_MEMORY_BYTES, PROBE_NAMES
from op_profiler.measure.threads import ThreadPool
from op_profiler.targets.llvm.reference_kernels import ReferenceKernels


def test_both_kernels_take_time_and_are_steady(target: Any) -> None:
    probe = ReferenceKernels(target)
    ThreadPool().use(1)  # two threads wait for each other where a core is busy
    timed = np.array([probe.timed() for _ in range(10)])
    assert timed.shape == (10, len(PROBE_NAMES)) and (timed > 0).all()
    # In turn, so that both see the same minute: a shared machine may be busy, but not a different machine.
    ratio = timed[::2].min(axis=0) / timed[1::2].min(axis=0)
    assert ((ratio > 0.2) & (ratio < 5.0)).all()


def test_the_memory_kernel_reads_more_than_the_caches_in_use(target: Any) -> None:
    wanted = min(caches_in_use_bytes(available_cores()), beyond_caches_bytes(1 << 60))
    compute, memory = ReferenceKernels(target).sizes_bytes
    assert memory >= wanted and memory != FIRST_MEMORY_BYTES and compute < 1 << 20


def test_limits_of_a_number_of_rounds() -> None:
    assert Limits().of_rounds(None) == Limits()
    few = Limits().of_rounds(15)
    assert few.maximum_rounds == 15
    assert few.minimum_rounds <= 15
    assert Limits().of_rounds(3).minimum_rounds == 3
