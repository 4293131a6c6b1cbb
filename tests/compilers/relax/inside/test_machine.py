"""What tells how fast the machine is, by kernels of this compiler."""

from __future__ import annotations

from typing import Any

from op_profiler.cores import available_cores
from op_profiler.measure.caches import beyond_caches_bytes, caches_in_use_bytes
from op_profiler.measure.steadiness import PROBE_NAMES
from op_profiler.targets.llvm.reference_kernels import ReferenceKernels
from op_profiler.targets.open_machine import open_machine


def test_the_steadiness_probe_takes_time_and_reads_what_no_cache_holds(target: Any) -> None:
    probe = ReferenceKernels(target)
    timed = probe.timed()
    assert len(timed) == len(PROBE_NAMES) and min(timed) > 0
    compute, memory = probe.sizes_bytes
    assert memory >= min(caches_in_use_bytes(available_cores()), beyond_caches_bytes(1 << 60)) and compute < 1 << 20


def test_a_device_is_probed_once_and_its_peaks_fit_each_other(target: Any) -> None:
    device = open_machine("llvm", target, None).device
    peaks = device.properties["peaks"]
    assert device.compiler == "relax" and peaks["threads"][0] == 1
    assert all(flops > read / 4 for flops, read in zip(peaks["flops_per_us"], peaks["bytes_per_us"]))
    for rates in peaks["cache_bytes_per_us"].values():
        assert len(rates) == len(peaks["threads"]) and min(rates) > 0
    assert open_machine("llvm", target, None).device.properties["peaks"] == peaks
