"""What is read of Nsight Compute, and why it may tell nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from op_profiler.errors import MeasureError
from op_profiler.targets.cuda.counters import count_kernels, read_kernels, shares_of

TOLD = """==PROF== Connected to process 586 (/usr/bin/python3.12)
"looking": a line of the program
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"1","586","b","gpu__time_duration.sum","ns","3,000"
"1","586","b","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","40"
"1","586","b","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","2"
"0","586","a","gpu__time_duration.sum","ns","1,000"
"0","586","a","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","20"
"0","586","a","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","n/a"
"""


def test_kernels_come_in_the_order_of_their_launches() -> None:
    first, second = read_kernels(TOLD)
    assert first["gpu__time_duration.sum"] == 1000.0 and second["gpu__time_duration.sum"] == 3000.0


def test_shares_are_weighed_by_time_and_what_one_kernel_lacks_is_missing() -> None:
    found = shares_of(read_kernels(TOLD))
    assert found.values == {"dram_percent": pytest.approx((20 * 1 + 40 * 3) / 4)}
    assert set(found.missing) == {"sm_percent", "occupancy_percent", "tensor_cores_percent"}
    assert shares_of([]).missing["dram_percent"] == "it launches no kernel"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission'", "the driver forbids it"),
        ("echo '==ERROR== Unknown metric'; exit 1", "^Unknown metric$"),
        ("echo oh >&2; exit 3", "ncu ended with 3: oh"),
    ],
)
def test_what_ncu_says_is_the_reason(script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ncu = tmp_path / "ncu"
    ncu.write_text(f"#!/bin/sh\n{script}\n")
    ncu.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(MeasureError, match=why):
        count_kernels(["true"])
