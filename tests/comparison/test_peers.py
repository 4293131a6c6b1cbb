"""A model beside other runtimes: real ones, where they are installed."""

from __future__ import annotations

import importlib.util
import json
import math
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from op_profiler.building.request import BuildRequest
from op_profiler.cli import application
from op_profiler.comparison.peers import PEERS
from op_profiler.comparison.peers.child import busy_threads, timed_runs
from op_profiler.comparison.peers.layers import OurLayers, by_layer, layer_times, module_of
from op_profiler.comparison.peers.measuring import compare_with_peers
from op_profiler.comparison.peers.request import PeersRequest
from op_profiler.comparison.peers.result import OURS, AtThreads
from op_profiler.comparison.peers.torch_peer import outermost
from op_profiler.errors import (
    EXIT_ENVIRONMENT,
    EXIT_MISSING_PACKAGE,
    MeasureError,
    MissingPackageError,
    UnknownNameError,
    UsageError,
)
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.report.peers import verdicts

from ..command_line import op_profiler
from ..installed import needs

NETWORK = """
import torch

def network():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Conv2d(16, 8, 1),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 5),
    )
    return layers, torch.randn(1, 3, 32, 32)
"""
CHANNELS = 8


def installed(forms: set[str]) -> tuple[str, ...]:
    """Runtimes that are there and read one of these forms."""
    return tuple(
        name
        for name, peer in PEERS.available()
        if forms & {*peer.forms} and all(importlib.util.find_spec(package) for package in peer.packages)
    )


def write_onnx(path: Path) -> Path:
    """Two convolutions with a relu between them, whose nodes have names."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype("float32") / 8, name)
        for name, shape in (("w0", (CHANNELS, 3, 3, 3)), ("w1", (CHANNELS, CHANNELS, 3, 3)))
    ]
    nodes = [
        helper.make_node("Conv", ["data", "w0"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "between"),
        helper.make_node("Conv", ["b", "w1"], ["c"], "second", pads=[1, 1, 1, 1]),
    ]
    given = helper.make_tensor_value_info("data", TensorProto.FLOAT, (1, 3, 64, 64))
    made = helper.make_tensor_value_info("c", TensorProto.FLOAT, (1, CHANNELS, 64, 64))
    graph = helper.make_graph(nodes, "small", [given], [made], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, str(path))
    return path


def request_of(name: str, against: tuple[str, ...], **options: Any) -> PeersRequest:
    build = BuildRequest(model=ModelRequest(source="file", name=name), threads=(1,), check_outputs="never")
    return PeersRequest(build=build, against=against, seconds=1.0, **options)


def check(at: AtThreads, against: tuple[str, ...]) -> None:
    """What holds of every comparison in which all runtimes take the model."""
    ours, *others = at.runtimes
    theirs = [one for one in others if one.name not in OURS]
    assert ours.name == "default" and [one.name for one in theirs] == list(against)
    assert at.rounds >= 6 and ours.ratio == 1.0
    for one in theirs:
        assert not one.problem
        assert one.agree is True and one.difference is not None and one.difference < 1e-4
        assert (one.threads, one.busy_threads) == (1, 1)
        assert one.median_us is not None and one.ratio_low is not None and one.ratio_high is not None
        assert one.ratio_low <= (one.ratio or math.nan) <= one.ratio_high
        assert (one.distortion is not None) == PEERS.get(one.name).has_profiler
    whole = {one.name: one.median_us for one in at.runtimes}
    assert math.isclose(sum(layer.ours_us for layer in at.layers), whole[at.build] or 0.0)
    for name, elsewhere in at.elsewhere_us.items():
        assert math.isclose(sum(layer.peers_us[name] or 0.0 for layer in at.layers) + elsewhere, whole[name] or 0.0)
    assert list(at.layers) == sorted(at.layers, key=lambda layer: -(layer.lost_us or 0.0))


@needs("onnx", "onnxruntime")
def test_an_onnx_file_in_the_runtimes_that_read_it(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "small.onnx")
    against = installed({"onnx"})
    found = compare_with_peers(request_of(str(path), against), lambda _: None, advise=False)
    (at,) = found.at
    check(at, against)
    assert {layer.layer for layer in at.layers} == {"first", "second"}
    first = next(layer for layer in at.layers if layer.layer == "first")
    assert all(first.peers_us.values()), first.peers_us
    assert at.best in at.elsewhere_us
    assert list(tmp_path.iterdir()) == [path], "runtimes write elsewhere than next to the user's file"
    assert "times as long as" in verdicts(found)[0]
    json.dumps(found.to_json())


@pytest.mark.slow
@needs("torch")
def test_a_torch_module_in_every_runtime_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small_network.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    against = installed({"onnx", "torchscript", "pt2"})
    found = compare_with_peers(request_of("small_network:network", against), lambda _: None)
    (at,) = found.at
    check(at, against)
    assert {"0", "3"} <= {layer.layer for layer in at.layers}
    assert all(layer.advice for layer in at.layers[:10] if (layer.lost_us or 0.0) > 0)


@pytest.mark.slow
@needs("torch")
def test_explain_with_torch_next_to_it(tmp_path: Path) -> None:
    (tmp_path / "small_network.py").write_text(NETWORK)
    command = ("explain", "small_network:network", "--threads", "1", "--against", "torch,torch.compile", "--json")
    done = op_profiler(*command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    ours, eager, compiled = json.loads(done.stdout)["baselines"]
    assert (ours["name"], eager["name"], compiled["name"]) == ("default", "torch", "torch.compile")
    assert ours["agree"] is None and eager["agree"] and compiled["agree"]
    assert all(one["median_us"] > 0 and not one["problem"] for one in (ours, eager, compiled))


@needs("torch")
@pytest.mark.parametrize("command", [("compare",), ("explain",)])
def test_torch_compile_without_a_compiler_is_refused(command: tuple[str, ...]) -> None:
    done = op_profiler(*command, "mlp", "--against", "torch.compile", environment={"CXX": "no-such-compiler"})
    assert done.returncode == EXIT_ENVIRONMENT
    assert "--against torch.compile needs a C++ compiler, and there is no no-such-compiler" in done.stderr


@needs("onnx", "onnxruntime", "torch")
def test_a_runtime_that_does_not_take_the_model_is_listed_with_the_reason(tmp_path: Path) -> None:
    path = write_onnx(tmp_path / "small.onnx")
    done = op_profiler(
        *(
            "compare",
            str(path),
            "--against",
            "torch,onnxruntime",
            "--threads",
            "1",
            "--seconds",
            "1",
            "--quiet",
            "--json",
        )
    )
    assert done.returncode == 0, done.stderr
    runtimes = {runtime["name"]: runtime for runtime in json.loads(done.stdout)["at"][0]["runtimes"]}
    torch, onnxruntime = runtimes["torch"], runtimes["onnxruntime"]
    assert torch["median_us"] is None and torch["problem"].startswith("there is no torchscript form of a model of onnx")
    ours = [runtimes[name] for name in runtimes if name not in ("torch", "onnxruntime")]
    assert onnxruntime["median_us"] > 0 and ours and all(runtime["median_us"] > 0 for runtime in ours)


@needs("onnxruntime")
def test_a_model_of_no_framework_has_no_runtime() -> None:
    done = op_profiler("compare", "mlp", "--against", "onnxruntime", "--threads", "1", "--seconds", "1")
    assert done.returncode == 0, done.stderr
    assert "onnxruntime was not measured: no other framework has mlp" in done.stdout
    assert "no other runtime was measured" in done.stdout


@needs("onnxruntime")
def test_what_keeps_the_processor_busy_is_named_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(*_: object) -> None:
        raise MeasureError("this is measured")

    monkeypatch.setattr(
        "op_profiler.measure.background.report_background_load", lambda cores, say: say(f"{len(cores)} core is busy")
    )
    monkeypatch.setattr("op_profiler.comparison.peers.measuring.compare_with_peers", measured)
    done = CliRunner().invoke(application(), ["compare", "mlp", "--against", "onnxruntime", "--threads", "1"])
    assert isinstance(done.exception, MeasureError) and done.stderr == "note: 1 core is busy\n"


def test_a_runtime_that_is_not_installed_is_refused_with_the_command() -> None:
    done = op_profiler("compare", "mlp", "--against", "ncnn", without=("ncnn",))
    assert done.returncode == EXIT_MISSING_PACKAGE
    assert "--against ncnn needs the package 'ncnn'" in done.stderr
    assert "env_var.sh peers" in done.stderr and "pip install 'ncnn'" in done.stderr


def test_requests_that_cannot_work_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="--against is empty"):
        request_of("mlp", ()).check()
    with pytest.raises(UnknownNameError, match="onnxruntime"):
        request_of("mlp", ("onnxruntimes",)).check()
    with pytest.raises(MissingPackageError, match="pip install 'openvino'"):
        request_of("mlp", ("openvino",)).check()


@pytest.mark.parametrize(
    ("node", "module"),
    [
        ("/op_profiler_wrapped/features/features.3/squeeze/Conv", "features.3.squeeze"),
        ("/features/features.1/conv/conv.0/conv.0.0/Conv/WithoutBiases", "features.1.conv.0.0.Conv"),
        ("/encoder/layer.0/attention/self/query/MatMul", "encoder.layer.0.attention.self.query"),
        ("data_abcd_acdb_/op_profiler_wrapped/conv1/Conv", "conv1"),
        ("/features/3/aten::_convolution", "features.3"),
        ("Attention_3", ""),
    ],
)
def test_the_module_of_a_node(node: str, module: str) -> None:
    assert module_of(node) == module


def test_nodes_go_to_the_layer_whose_kernel_computes_them() -> None:
    ours = OurLayers.of([(("conv1", "relu"), "a", 30.0), (("block.conv", "block"), "b", 50.0), ((), "c", 20.0)])
    assert ours.times_us == {"conv1": 30.0, "block.conv": 50.0, "": 20.0}
    assert [ours.layer_of(node) for node in ("conv1", "/relu/Relu", "/block/Add", "/block/conv/Conv/Bias", "x")] == [
        *("conv1", "conv1", "block.conv", "block.conv", None)
    ]
    times, elsewhere = by_layer(
        ours, [("/conv1/Conv", 1.0), ("/relu/Relu", 1.0), ("/block/Add", 2.0), ("x", 4.0)], 80.0
    )
    assert times == {"conv1": 20.0, "block.conv": 20.0, "": 0.0} and elsewhere == 40.0
    rows = layer_times(ours, {"peer": times}, "peer")
    assert [(row.layer, row.lost_us) for row in rows] == [("block.conv", 30.0), ("conv1", 10.0), ("", None)]


def test_operators_that_others_call_are_not_counted_twice() -> None:
    def event(name: str, start: float, long: float, modules: str = "") -> dict[str, Any]:
        about = {"Module Hierarchy": f"TOP(W)::forward.{modules}"}
        return {"cat": "cpu_op", "name": name, "ts": start, "dur": long, "args": about}

    events = [
        event("forward", 0, 100),
        event("aten::_convolution", 1, 50, "a(Sequential)::forward.0(Conv2d)::forward."),
        event("aten::mkldnn_convolution", 2, 40, "a(Sequential)::forward.0(Conv2d)::forward."),
        event("aten::add", 60, 5),
        {"cat": "user_annotation", "name": "other", "ts": 0, "dur": 1, "args": {}},
    ]
    assert outermost(events) == [("/a/0/aten::_convolution", 50.0), ("/aten::add", 5.0)]


def test_threads_that_work_are_counted() -> None:
    def compute() -> None:
        until = time.perf_counter() + 0.05
        while time.perf_counter() < until:
            np.ones(1 << 16).sum()

    assert busy_threads(compute) == 1
    waiting = threading.Event()
    idle = threading.Thread(target=waiting.wait)
    idle.start()
    try:
        assert busy_threads(compute) == 1
    finally:
        waiting.set()
        idle.join()


def test_a_long_run_is_not_repeated_and_short_ones_are() -> None:
    runs: list[float] = []

    def taking(seconds: float) -> Any:
        def run() -> float:
            runs.append(seconds)
            time.sleep(seconds)
            return seconds * 1e6

        return run

    assert timed_runs(taking(0.4)) == pytest.approx(0.4e6) and len(runs) == 2
    runs.clear()
    assert timed_runs(taking(0.005)) == pytest.approx(0.005e6) and len(runs) > 10
