"""float16 and int8 beside float32: measured, and compared with it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from op_profiler.building.requested_inputs import random_inputs
from op_profiler.collection.accuracy import References, accuracy_of
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.lowered_cache import original_model

from ..command_line import op_profiler


def write_network(file: Path) -> None:
    """Two convolutions, pooling and a dense layer."""
    onnx = pytest.importorskip("onnx")
    helper, rng = onnx.helper, np.random.default_rng(0)
    shapes = {"first": (16, 3, 3, 3), "second": (32, 16, 3, 3), "last": (10, 32)}
    weights = [
        onnx.numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32"), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["data", "first"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "second"], ["c"]),
        helper.make_node("Relu", ["c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("Gemm", ["f", "last"], ["y"], transB=1),
    ]
    ends = [helper.make_tensor_value_info(*one) for one in (("data", 1, (1, 3, 16, 16)), ("y", 1, (1, 10)))]
    graph = helper.make_graph(nodes, "small", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)


def collect(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ("--threads", "1", "--db", f"sqlite:///{folder / 'p.db'}")
    return op_profiler("collect", *arguments, *options, folder=folder, libraries=("onnx",))


def test_three_precisions_stand_beside_each_other(tmp_path: Path) -> None:
    write_network(tmp_path / "small.onnx")
    summary = tmp_path / "summary.json"
    arguments = ("--precision", "float32,float16,int8", "--summary-json", str(summary))
    done = collect(tmp_path, "--modelsource", "file", "--modelname", "small.onnx", *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    entries = json.loads(summary.read_text())
    assert [e["precision"] for e in entries] == ["float32", "float16", "int8"]
    assert all(e["failed"] == 0 and e["whole_model_us"] > 0 for e in entries)
    assert entries[0]["accuracy"] is None
    assert 1e-6 < entries[1]["accuracy"]["relative_error"] < 1e-2
    assert 1e-4 < entries[2]["accuracy"]["relative_error"] < 0.2
    assert "outputs against float32" in done.stdout


def test_what_cannot_be_quantized_is_told(tmp_path: Path) -> None:
    done = collect(tmp_path, "--modelsource", "simple", "--modelname", "conv2d", "--precision", "int8")
    assert done.returncode == 4 and "nothing that Relay's quantizer converts" in done.stderr


def test_inputs_of_the_users_have_to_fit(tmp_path: Path) -> None:
    file = tmp_path / "inputs.npz"
    np.savez(file, data=np.zeros((1, 2), "float32"))
    done = collect(tmp_path, "--modelname", "mlp", "--inputdata", str(file))
    assert done.returncode == 2 and "of shape (1, 1, 28, 28)" in done.stderr and "(1, 2)" in done.stderr


def test_every_file_of_inputs_has_its_own_accuracy_and_a_damaged_one_is_no_answer(tmp_path: Path) -> None:
    """The same command with another file, then with one that holds no arrays any more."""
    file, summary = tmp_path / "inputs.npz", tmp_path / "summary.json"
    words = [
        "--modelname=mlp",
        "--precision=float16",
        "--threads=1",
        f"--inputdata={file}",
        f"--summary-json={summary}",
    ]
    accuracies = []
    for scale in (1.0, 100.0, 1.0):
        np.savez(file, data=np.float32(scale) * np.ones((1, 1, 28, 28), "float32"))
        done = collect(tmp_path, *words)
        assert done.returncode == 0, done.stderr
        (entry,) = json.loads(summary.read_text())
        accuracies.append((entry["accuracy"]["relative_error"], entry["measured"] > 0))
    assert accuracies[0][0] == accuracies[2][0] != accuracies[1][0]
    assert [measured for _, measured in accuracies] == [True, True, False]
    file.write_bytes(file.read_bytes()[:100])
    done = collect(tmp_path, *words)
    assert done.returncode == 2 and str(file) in done.stderr and "Traceback" not in done.stderr


def test_figures_of_accuracy() -> None:
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((4, 10))
    same = accuracy_of([logits], [logits])
    assert same == {"relative_error": 0.0, "largest_error": 0.0, "cosine": pytest.approx(1.0), "same_top1": True}
    double = accuracy_of([2 * logits], [logits])
    assert double["relative_error"] == pytest.approx(1.0) and double["cosine"] == pytest.approx(1.0)
    softmax = [np.exp(x) / np.exp(x).sum(-1, keepdims=True) for x in (0.01 * logits, 0.02 * logits)]
    assert accuracy_of([softmax[1]], [softmax[0]])["relative_error"] == pytest.approx(1.0, rel=1e-6)
    assert np.isnan(accuracy_of([logits * np.inf], [logits])["relative_error"])


def test_reference_outputs_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    request = ModelRequest(source="local", name="mlp")
    inputs = random_inputs(list(original_model(request).inputs))
    first = References("mlp", inputs).outputs(request)
    monkeypatch.setattr(References, "_compute", None)
    again = References("mlp", inputs).outputs(request)
    np.testing.assert_array_equal(first[0], again[0])


@pytest.mark.parametrize("damage", [lambda whole: whole[: len(whole) // 2], lambda whole: b"", lambda whole: b"other"])
def test_damaged_reference_outputs_are_computed_again_and_kept(
    damage: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    monkeypatch.setattr(References, "_compute", lambda *_: [np.ones(3)])
    references, request = References("mlp", {}), ModelRequest(source="local", name="mlp")
    references.keep([np.ones(3)])
    (file,) = (tmp_path / "outputs").iterdir()
    file.write_bytes(damage(file.read_bytes()))
    np.testing.assert_array_equal(references.outputs(request), [np.ones(3)])
    monkeypatch.setattr(References, "_compute", None)
    np.testing.assert_array_equal(references.outputs(request), [np.ones(3)])


def test_reference_outputs_that_cannot_be_kept_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the place of the folder")
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(References, "_compute", lambda *_: [np.ones(3)])
    found = References("mlp", {}).outputs(ModelRequest(source="local", name="mlp"))
    np.testing.assert_array_equal(found, [np.ones(3)])


def test_an_accuracy_that_is_no_number_is_null(tmp_path: Path) -> None:
    """Both precisions answer with infinity, whose difference is no number; readers of JSON know neither."""
    helper = pytest.importorskip("onnx").helper
    tensors = [helper.make_tensor_value_info(name, 1, (1, 8)) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "exp", tensors[:1], tensors[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (tmp_path / "exp.onnx").write_bytes(model.SerializeToString())
    file, summary = tmp_path / "inputs.npz", tmp_path / "summary.json"
    np.savez(file, x=np.full((1, 8), 1e3, "float32"))
    arguments = ("--precision", "float16", "--inputdata", str(file), "--summary-json", str(summary))
    done = collect(tmp_path, "--modelsource", "file", "--modelname", "exp.onnx", *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    (entry,) = json.loads(summary.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert entry["accuracy"]["relative_error"] is None
