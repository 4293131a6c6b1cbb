"""On a GPU: times of the device's own clock that add up. Without one, what can be told of the code around it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.targets.cuda import tvm_build
from op_profiler.targets.cuda.gpu import GpuKernels, describe_gpu
from op_profiler.targets.cuda.management import NoNvml
from op_profiler.targets.cuda.vendor import cuda_of_torch

from ..gpu_events import Clock

COLLECTOR = Path(__file__).parents[2] / "collector" / "op_performance_collector.py"
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not tvm_build.device_count(), reason="no GPU here (no driver, or it lists no device)"),
]


def collect(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    summary = folder / "summary.json"
    command = [sys.executable, str(COLLECTOR), "--target", "cuda", *arguments, "--summary-json", str(summary)]
    done = subprocess.run(
        [*command, "--db", f"sqlite:///{folder / 'gpu.db'}"], capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr + done.stdout
    entries: list[dict[str, Any]] = json.loads(summary.read_text())
    return entries


class TestOnAGpu:
    pytestmark = on_gpu

    def test_the_operators_add_up_to_the_model(self, tmp_path: Path) -> None:
        (entry,) = collect(tmp_path, "--modelname", "resnet-18")
        assert entry["failed"] == 0 and 0.9 < entry["ratio"] < 1.1

    @pytest.mark.parametrize("cache", ["hot", "cold"])
    def test_cache_states(self, cache: str, tmp_path: Path) -> None:
        (entry,) = collect(tmp_path, "--modelsource", "simple", "--modelname", "conv2d", "--cache", cache)
        assert entry["failed"] == 0 and entry["sum_of_operators_us"] > 0

    def test_tuning(self, tmp_path: Path) -> None:
        arguments = ("--iftune", "true", "--trials", "16", "--ifcompare", "true", "--schedules", str(tmp_path / "s"))
        (entry,) = collect(tmp_path, "--modelsource", "simple", "--modelname", "conv2d", *arguments)
        assert entry["problems"] == [] and all(t["best_us"] > 0 for t in entry["tuning"])
        assert all(c["agree"] for c in entry["comparison"])

    def test_the_vendors_kernels_stand_beside(self, tmp_path: Path) -> None:
        pytest.importorskip("torch")
        if cuda_of_torch() is None:
            pytest.skip("torch was built without CUDA here")
        (entry,) = collect(tmp_path, "--modelsource", "simple", "--modelname", "conv2d", "--vendor", "true")
        assert entry["problems"] == [] and entry["vendor"]
        assert all(v["error"] is None and v["vendor_us"] > 0 and "cuDNN" in v["vendor_kernel"] for v in entry["vendor"])

    def test_half_precision(self, tmp_path: Path) -> None:
        entries = collect(
            tmp_path, "--modelsource", "simple", "--modelname", "conv2d", "--precision", "float32,float16"
        )
        assert entries[1]["accuracy"]["relative_error"] < 0.05


class Runtime:
    """In place of a GPU's `tvm.runtime.Device`."""

    device_name, multi_processor_count, max_clock_rate = "GPU", 132, 1980000
    max_shared_memory_per_block, l2_cache_size_bytes, total_global_memory = 49152, 52428800, 1 << 37
    compute_version, warp_size, max_threads_per_block, device_id = "9.0", 32, 1024, 0

    def sync(self) -> None:
        return


def test_every_kernel_stands_between_two_events(tvm: Any, compiled_small: Any, target: Any) -> None:
    from op_profiler.compilers.relay.graph_executor import load_graph
    from op_profiler.compilers.tvm_build import runtime_device

    inputs = {"data": np.zeros((1, 16, 32, 32), "float32")}
    graph = load_graph(compiled_small, runtime_device(target), inputs)
    flush: Any = None
    launches = (1,) * len(graph.labels)
    kernels = GpuKernels(graph, Runtime(), Clock(), flush, launches)  # type: ignore[arg-type]
    times = kernels.walk("model", [True] * len(kernels.labels))
    assert times == [1e3] * len(kernels.labels)
    clock = Clock()
    one = GpuKernels(graph, Runtime(), clock, flush, launches)  # type: ignore[arg-type]
    assert np.isnan(one.walk("cold", [False] * len(kernels.labels))).all() and clock.recorded == []


def test_a_gpu_is_described_without_its_management_library(tvm: Any) -> None:
    device = describe_gpu(tvm.target.Target("cuda -arch=sm_90"), Runtime(), NoNvml())  # type: ignore[arg-type]
    assert (device.kind, device.core_type, device.cores, device.clock_mhz) == ("cuda", "SM", 132, 1980.0)
    assert device.l1_bytes is None and device.properties["max_shared_memory_per_block_bytes"] == 49152
    assert device.driver is None and "no energy counter" in device.properties["energy"]
