"""The probe of a processor's peaks."""

from __future__ import annotations

from typing import Any

from op_profiler.measure.machines import open_machine
from op_profiler.measure.machines.host import Host


def test_a_device_is_probed_once(target: Any) -> None:
    peaks = open_machine("llvm", target, None).device.properties["peaks"]
    assert peaks["threads"][0] == 1
    assert len(peaks["threads"]) == len(peaks["flops_per_us"]) == len(peaks["bytes_per_us"])
    assert min(peaks["flops_per_us"]) > 2_000.0  # any processor of this century, busy or not
    assert min(peaks["bytes_per_us"]) > 500.0
    assert Host(target).device.properties["peaks"] == peaks
    assert open_machine("llvm", target, None).device.properties["peaks"] == peaks  # and not measured again


def test_the_key_of_a_device_does_not_change_with_the_probe(target: Any) -> None:
    host = Host(target)
    before = host.device.key
    host.probe()
    assert host.device.key == before
