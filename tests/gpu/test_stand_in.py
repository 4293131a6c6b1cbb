"""The way through a collection, a search and a plan on a GPU, on one that takes time and computes nothing."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.targets.cuda import machine_code
from op_profiler.targets.cuda.gpu import GpuKernels
from op_profiler.targets.cuda.launch_cost import LaunchCost, timeline_us

MAIN = "from op_profiler.cli import main; main()"


def run(stand_in: dict[str, str], *words: str, program: str = MAIN) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **stand_in}
    return subprocess.run(
        [sys.executable, "-c", program, *words], env=environment, capture_output=True, text=True, timeout=600
    )


@pytest.mark.parametrize(
    ("kernels_us", "launches_us", "ends_us"),
    [
        ([10.0, 10.0, 10.0], [2.0, 2.0, 2.0], 2 + 30 + 2 * 1.0),  # the GPU is behind
        ([1.0, 1.0, 1.0], [4.0, 4.0, 4.0], 12 + 1.0),  # it waits for each launch
        ([1.0, 20.0, 1.0], [4.0, 4.0, 4.0], 8 + 20 + 1 + 1.0),
        ([], [], -1.0),
    ],
)
def test_a_kernel_begins_when_it_is_launched_and_the_one_before_has_ended(
    kernels_us: list[float], launches_us: list[float], ends_us: float
) -> None:
    assert timeline_us(kernels_us, launches_us, turn_us=1.0) == pytest.approx(ends_us)


def test_an_operator_of_several_kernels_is_launched_one_by_one() -> None:
    """Ten kernels of 1 us and launches of 3 us each: the last one begins at 30 us. As one it would end at 58."""
    cost = LaunchCost(event_us=2.7, turn_us=1.0, edges_us=1.0, timer_step_us=0.032, uncertain_us=1.0)
    us, launches_us = np.array([19.0, 1.0]), np.array([30.0, 3.0])
    assert GpuKernels._timeline_us(us, launches_us, (10, 1), cost) == pytest.approx(33 + 1.0)
    assert GpuKernels._timeline_us(us, launches_us, (0, 0), cost) == pytest.approx(30 + 19 + 1.0 + 1.0)


def collected(stand_in: dict[str, str], folder: Path, *words: str) -> dict[str, Any]:
    summary = folder / "summary.json"
    common = ("--target", "cuda", "--schedules", "none", "--quiet", "--summary-json", str(summary))
    done = run(stand_in, "collect", *common, "--db", f"sqlite:///{folder / 'gpu.db'}", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    (entry,) = json.loads(summary.read_text())
    return dict(entry)


class TestACollection:
    def test_kernels_are_told_without_events_and_launches(self, stand_in: dict[str, str], tmp_path: Path) -> None:
        """The stand-in's kernels take 1.5 us and half a nanosecond a warp, and an event 0.7 us."""
        entry = collected(stand_in, tmp_path, "--modelname", "mlp")
        with sqlite3.connect(tmp_path / "gpu.db") as connection:
            found = connection.execute(
                "SELECT median_us, launches FROM measurements m JOIN model_operators USING (operator_key)"
            ).fetchall()
            (details,) = connection.execute("SELECT details FROM model_timings").fetchone()
            intervals = connection.execute("SELECT ci_low_us, median_us, ci_high_us FROM measurements").fetchall()
            (properties,) = connection.execute("SELECT properties FROM devices").fetchone()
        assert len(found) == entry["operators"] == 4
        for median_us, launches in found:
            (launch,) = json.loads(launches)
            warps = launch["grid"][0] * -(-launch["block"][0] // 32)
            assert median_us == pytest.approx(1.5 + warps / 2e3, abs=0.3)
        assert entry["launch_gap_us"] > 0 and json.loads(details)["launch_gap_us"] == entry["launch_gap_us"]
        uncertain_us, cost = (json.loads(properties)[name] for name in ("kernel_uncertainty_us", "launch_cost"))
        assert entry["kernel_uncertainty_us"] == uncertain_us and entry["short_operators"] == 4
        assert uncertain_us == pytest.approx(0.93, abs=0.3) and cost["timer_step_us"] == 0.032
        for low_us, median_us, high_us in intervals:
            assert low_us <= max(median_us - uncertain_us, 0) and high_us >= median_us + uncertain_us

    def test_the_operators_and_the_waits_for_launches_add_up(self, stand_in: dict[str, str], tmp_path: Path) -> None:
        """At batch 32 its kernels are longer than their launches, which other tests disturb."""
        off = []
        for _ in range(3):
            words = ("--modelname", "squeezenet_v1.1", "--batchsize", "32", "--remeasure", "all")
            entry = collected(stand_in, tmp_path, *words)
            added = entry["sum_of_operators_us"] + entry["launch_gap_us"]
            off.append(abs(added / entry["whole_model_us"] - 1))
            if off[-1] < 0.05:
                break
        assert min(off) < 0.05, off

    def test_hot_and_cold(self, stand_in: dict[str, str], tmp_path: Path) -> None:
        for cache in ("hot", "cold"):
            entry = collected(stand_in, tmp_path, "--modelname", "mlp", "--cache", cache)
            assert entry["failed"] == 0 and entry["sum_of_operators_us"] > 0
        with sqlite3.connect(tmp_path / "gpu.db") as connection:
            found = connection.execute("SELECT DISTINCT cache_mechanism FROM settings ORDER BY 1").fetchall()
        assert found == [("read of 4 times the L2",), ("repeat",)]  # a copy would leave lines to be written back


def mixed_model(path: Path) -> Path:
    """Two dense layers, of which the first one computes in half precision what follows."""
    onnx = pytest.importorskip("onnx")
    helper, float32, float16 = onnx.helper, onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16
    weights = [onnx.numpy_helper.from_array(np.ones((32, 32), "float32") / 32, name) for name in ("first", "second")]
    nodes = [
        helper.make_node("MatMul", ["data", "first"], ["a"]),
        helper.make_node("Cast", ["a"], ["half"], to=float16),
        helper.make_node("Tanh", ["half"], ["tanh"]),
        helper.make_node("Cast", ["tanh"], ["full"], to=float32),
        helper.make_node("MatMul", ["full", "second"], ["b"]),
        helper.make_node("Relu", ["b"], ["out"]),
    ]
    ends = [helper.make_tensor_value_info(name, float32, (1, 32)) for name in ("data", "out")]
    graph = helper.make_graph(nodes, "mixed", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def test_a_kernel_that_the_gpu_has_no_arithmetic_for_fails_alone(stand_in: dict[str, str], tmp_path: Path) -> None:
    """Half precision on Maxwell, which TVM's CUDA does not compile: the model failed as a whole."""
    summary = tmp_path / "summary.json"
    model = ("--modelsource", "file", "--modelname", str(mixed_model(tmp_path / "mixed.onnx")))
    where = ("--schedules", "none", "--check-outputs", "never", "--quiet", "--summary-json", str(summary))
    words = ("collect", *model, "--target", "cuda -arch=sm_52", *where, "--db", f"sqlite:///{tmp_path / 'gpu.db'}")
    done = run(stand_in, *words)
    assert done.returncode == 1, done.stderr
    (entry,) = json.loads(summary.read_text())
    with sqlite3.connect(tmp_path / "gpu.db") as connection:
        found = connection.execute("SELECT error FROM measurements").fetchall()
    errors = [error for (error,) in found if error is not None]
    assert entry["failed"] == len(errors) == 1 and len(found) > 1
    assert "NVRTC refuses a kernel for sm_52: identifier " in errors[0]


@pytest.mark.parametrize(("cuda_of_driver", "code"), [("11080", 5), ("12000", 0)])
def test_a_driver_that_is_too_old_is_refused(
    stand_in: dict[str, str], tmp_path: Path, cuda_of_driver: str, code: int
) -> None:
    words = ("collect", "--modelname", "mlp", "--target", "cuda", "--schedules", "none", "--quiet")
    database = ("--db", f"sqlite:///{tmp_path / 'gpu.db'}")
    done = run({**stand_in, "CUDA_OF_DRIVER": cuda_of_driver}, *words, *database)
    assert done.returncode == code, done.stderr
    refused = "NVIDIA's driver 525.60.13 or newer for CUDA 12: this one supports CUDA 11.8"
    assert (refused in done.stderr) == (code != 0)


class TestCounters:
    """Of `stand_in/ncu`, whose kernels are those that the stand-in has launched."""

    def test_shares_stand_beside_the_times_of_each_operator(self, stand_in: dict[str, str], tmp_path: Path) -> None:
        collected(stand_in, tmp_path, "--modelname", "mlp")
        words = "median_us, dram_percent, sm_percent, occupancy_percent, tensor_cores_percent, counters_missing"
        with sqlite3.connect(tmp_path / "gpu.db") as connection:
            before = connection.execute("SELECT key, samples_us FROM measurements ORDER BY key").fetchall()
            assert connection.execute("SELECT count(counters_missing) FROM measurements").fetchone() == (0,)
            collected(stand_in, tmp_path, "--modelname", "mlp", "--counters")  # counted, and not timed again
            found = connection.execute(
                f"SELECT launches, {words} FROM measurements JOIN model_operators USING (operator_key)"
            ).fetchall()
            (whole,) = connection.execute(f"SELECT {words} FROM model_timings").fetchall()
            assert connection.execute("SELECT key, samples_us FROM measurements ORDER BY key").fetchall() == before
        of_each = []
        for launches, _, dram, sm, occupancy, tensor_cores, missing in found:
            (launch,) = json.loads(launches)
            warps = launch["grid"][0] * -(-launch["block"][0] // 32)
            assert (dram, sm, occupancy, tensor_cores) == (10.0 * warps, 1.0 * warps, 0.5 * warps, None)
            assert list(json.loads(missing)) == ["tensor_cores_percent"]
            of_each.append(warps)
        assert len(of_each) == 4
        assert whole[2] == pytest.approx(np.average(of_each, weights=of_each))

    def test_why_nothing_was_counted_is_told(self, stand_in: dict[str, str], tmp_path: Path) -> None:
        nowhere = tmp_path / "no_ncu"
        nowhere.mkdir()
        for name in ("cc", "git"):
            (nowhere / name).symlink_to(str(shutil.which(name)))
        collected({**stand_in, "PATH": str(nowhere)}, tmp_path, "--modelname", "mlp", "--counters")
        with sqlite3.connect(tmp_path / "gpu.db") as connection:
            found = connection.execute("SELECT dram_percent, counters_missing, median_us FROM measurements").fetchall()
        for dram, missing, median_us in found:
            assert dram is None and median_us > 0
            assert "not on PATH" in json.loads(missing)["dram_percent"]


def test_a_plan_is_launched_as_a_graph(stand_in: dict[str, str], tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    words = ("--target", "cuda", "--policy", "greedy", "--streams", "3", "--schedules", "none", "--rounds", "5")
    for _ in range(3):  # where other tests disturb its launches, one stream may be the fastest
        done = run(stand_in, "corun", "squeezenet_v1.1", *words, "--json", str(result), "--quiet")
        assert result.exists(), done.stderr  # the exit code tells that outputs differ: nothing computes them
        found = json.loads(result.read_text())
        streams = {core for stage in found["stages"] for group in stage for core in group["cores"][:1]}
        if streams > {0}:
            break
    assert streams > {0} and found["plan_us"] > 0
    assert not [note for note in found["notes"] if "one by one" in note]


GRAPH = """
from op_profiler.targets.target import use_build_for
use_build_for("cuda")
from op_profiler.compilers.tvm_build import load_tvm
tvm = load_tvm()
from op_profiler.errors import MeasureError
from op_profiler.targets.cuda.events import Events
from op_profiler.targets.cuda.stream_lanes import Graphs
stream, events = tvm.cuda(0).create_raw_stream(), Events()
graph = Graphs().on(stream)
with graph.recording():
    events.record(0, stream)
graph.launch()
graph.free()
try:
    with Graphs().on(stream).recording():
        tvm.nd.empty((4,), "float32", tvm.cuda(0))
except Exception as error:
    print(type(error).__name__)
with Graphs().on(stream).recording():
    events.record(1, stream)
print("recorded again")
"""


def test_a_graph_that_cannot_be_recorded_leaves_the_stream_as_it_was(stand_in: dict[str, str]) -> None:
    done = run(stand_in, program=GRAPH)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["InternalError", "recorded", "again"]


ALONE = """
from op_profiler.targets.target import use_build_for
use_build_for("cuda")
from op_profiler.compilers.tvm_build import load_tvm
device = load_tvm().cuda(0)
from op_profiler.targets.cuda.alone import SingleCalls
from op_profiler.targets.cuda.own_kernels import Spin, own_kernels
clock, spin = SingleCalls(device), Spin(own_kernels(device))
for cache in ("hot", "cold"):
    print(min(clock.us(spin.launch, cache) for _ in range(5)), clock.us(lambda: False, cache))
"""


@pytest.mark.skipif(machine_code.nvrtc() is None, reason="needs NVRTC, which compiles the kernel")
def test_a_single_call_holds_neither_its_launch_nor_the_events(stand_in: dict[str, str]) -> None:
    """The stand-in's kernel for this takes 4.96 us, a launch 2 us, and an event 0.7 us."""
    done = run(stand_in, program=ALONE)
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        us, failed = map(float, line.split())
        assert us == pytest.approx(4.96, abs=0.3) and np.isnan(failed)


TRIAL = """
from op_profiler.targets.target import use_build_for
use_build_for("cuda -arch=sm_90")
from op_profiler.targets.cuda.trial_worker import GpuWorker
from op_profiler.tuning.candidate import Candidate, TaskSpec
from op_profiler.tuning.trials.worker import WorkerSetup
shapes = ("TENSOR", (4, 32), "float32"), ("TENSOR", (16, 32), "float32")
task = TaskSpec("dense_small_batch.gpu", (*shapes, None, "float32"))
about = {"target": "cuda -arch=sm_90", "name": "cuda", "threads": 0, "modules": (), "memory_bytes": None, "log": ""}
for cache in ("hot", "cold"):
    worker = GpuWorker(WorkerSetup(cache=cache, check=False, **about))
    built = worker.build(0, Candidate(task, 0))
    found = worker.measure(0, float("inf"), 3, 100.0, 10.0)
    print(cache, built.error, found.error, min(found.samples_us))
"""


def test_a_trial_holds_neither_its_launch_nor_the_events(stand_in: dict[str, str]) -> None:
    """The stand-in's kernel takes 1.5 us. Calls in a row would wait for their launches of 2 us."""
    done = run(stand_in, program=TRIAL)
    assert done.returncode == 0, done.stderr
    for cache, line in zip(("hot", "cold"), done.stdout.splitlines(), strict=True):
        *outcome, us = line.split()
        assert outcome == [cache, "None", "None"] and float(us) == pytest.approx(1.5, abs=0.4)


def test_a_search_builds_side_by_side(stand_in: dict[str, str], tmp_path: Path) -> None:
    """What it finds is wrong by nature, which is a recorded failure of each candidate."""
    model = ("--modelsource", "simple", "--modelname", "conv2d", "--inputshape", "1,4,4,4")
    words = ("--target", "cuda", *model, "--iftune", "true")
    places = ("--db", f"sqlite:///{tmp_path / 'gpu.db'}", "--schedules", str(tmp_path / "schedules"))
    done = run(stand_in, "collect", *words, "--trials", "10", "--energy", "none", "--quiet", *places)
    assert "Traceback" not in done.stderr, done.stderr
    with sqlite3.connect(tmp_path / "gpu.db") as connection:
        found = connection.execute(
            "SELECT template, error FROM measurements JOIN schedules s ON s.key = schedule_key WHERE origin = 'trial'"
        ).fetchall()
    assert len(found) >= 10
    unchecked = [error for template, error in found if "winograd" in template]
    checked = [error for template, error in found if "winograd" not in template]
    # on a busy machine any candidate may take too long
    assert unchecked and all(error is None or error.startswith("timeout") for error in unchecked), unchecked
    assert checked and all(str(error).startswith(("wrong", "invalid", "timeout")) for error in checked), checked
