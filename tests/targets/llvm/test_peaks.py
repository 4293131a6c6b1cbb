"""The probe of a processor's peaks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.cores import available_cores
from op_profiler.measure.caches import beyond_caches_bytes, caches_in_use_bytes
from op_profiler.targets.llvm import peaks as peaks_module
from op_profiler.targets.llvm.host import Host
from op_profiler.targets.llvm.peaks import Peaks
from op_profiler.targets.open_machine import open_machine


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def test_a_device_is_probed_once(target: Any) -> None:
    peaks = open_machine("llvm", target, None).device.properties["peaks"]
    assert peaks["threads"][0] == 1
    assert len(peaks["threads"]) == len(peaks["flops_per_us"]) == len(peaks["bytes_per_us"])
    assert min(peaks["bytes_per_us"]) > 0
    for level, rates in peaks["cache_bytes_per_us"].items():
        assert level in ("l1", "l2", "l3") and len(rates) == len(peaks["threads"]) and min(rates) > 0
    # Any processor multiplies and adds more numbers than its memory gives it: their units fit each other.
    assert all(flops > read / 4 for flops, read in zip(peaks["flops_per_us"], peaks["bytes_per_us"]))
    one = np.ones(1 << 20, dtype="float32")
    added_us = min(_seconds(lambda: one + one) for _ in range(20)) * 1e6
    assert max(peaks["flops_per_us"]) > len(one) / added_us  # and numpy's additions, which wait for memory
    assert Host(target).device.properties["peaks"] == peaks
    assert open_machine("llvm", target, None).device.properties["peaks"] == peaks  # and not measured again


def test_peaks_of_an_earlier_version_are_measured_again(target: Any) -> None:
    host = Host(target)
    host.probe()
    peaks = host.device.properties["peaks"]
    assert peaks["read_bytes"] >= min(caches_in_use_bytes(available_cores()), beyond_caches_bytes(1 << 60))
    file = peaks_module._file(host.device)
    for missing in ("read_bytes", "cache_bytes_per_us"):
        file.write_text(json.dumps({name: value for name, value in peaks.items() if name != missing}))
        assert "peaks" not in Host(target).device.properties
    for damaged in ("", "null", "{"):
        file.write_text(damaged)
        assert "peaks" not in Host(target).device.properties
    file.write_text(json.dumps(peaks))


def test_a_cache_that_cannot_be_written_costs_the_entry_no_more(
    target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Host(target).device
    (tmp_path / "file").write_text("in the place of the folder")
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "file"))
    found = peaks_module.with_peaks(device, Peaks((1, 2), (3.0, 6.0), (1.0, 1.5), 4096, {"l1": (8.0, 16.0)}))
    assert found.properties["peaks"] == {
        "threads": [1, 2],
        "flops_per_us": [3.0, 6.0],
        "bytes_per_us": [1.0, 1.5],
        "read_bytes": 4096,
        "cache_bytes_per_us": {"l1": [8.0, 16.0]},
    }


def test_the_key_of_a_device_does_not_change_with_the_probe(target: Any) -> None:
    host = Host(target)
    before = host.device.key
    host.probe()
    assert host.device.key == before
