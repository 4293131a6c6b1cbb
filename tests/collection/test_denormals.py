"""Values that make operators slow are told."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from ..command_line import op_profiler


@pytest.mark.parametrize(("below", "share"), [(100.0, 1.0), (10.0, None)])
def test_denormal_numbers_are_told(below: float, share: float | None, tmp_path: Path) -> None:
    """What is exp(x - 100) is below the smallest normal number of float32, exp(-87.3)."""
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 64]) for name in ("x", "y")]
    shift = helper.make_tensor("shift", TensorProto.FLOAT, [], [below])
    nodes = [helper.make_node("Sub", ["x", "shift"], ["low"]), helper.make_node("Exp", ["low"], ["y"])]
    graph = helper.make_graph(nodes, "masked", tensors[:1], tensors[1:], [shift])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "masked.onnx")
    files = ["--db", f"sqlite:///{tmp_path}/d.db", "--summary-json", str(tmp_path / "summary.json")]
    model = ["--modelsource", "file", "--modelname", str(tmp_path / "masked.onnx"), "--threads", "1"]
    for _ in range(2):  # the second one looks up what the first one measured
        done = op_profiler("collect", *model, *files, "--quiet")
        assert done.returncode == 0, done.stderr
        (summary,) = json.loads((tmp_path / "summary.json").read_text())
        told = [note for note in summary["notes"] if "denormal" in note]
        assert len(told) == (share is not None) and all("up to 100% of what is written" in note for note in told)
    with contextlib.closing(sqlite3.connect(tmp_path / "d.db")) as connection:
        (details,) = connection.execute("SELECT details FROM model_timings").fetchone()
    assert list(json.loads(details)["denormal"].values()) == ([share] if share is not None else [])


def test_a_tensor_without_values_has_none(tmp_path: Path) -> None:
    """Such a model is measured, and predicted."""
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "z")]
    read = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])]
    starts, ends = (helper.make_tensor(name, TensorProto.INT64, [1], [0]) for name in ("starts", "ends"))
    nodes = [
        helper.make_node("Slice", ["x", "starts", "ends"], ["none"]),
        helper.make_node("Relu", ["none"], ["y"]),
        helper.make_node("Exp", ["x"], ["z"]),
    ]
    graph = helper.make_graph(nodes, "empty", read, made, [starts, ends])
    path = tmp_path / "empty.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    model = ["--modelsource", "file", "--modelname", str(path), "--threads", "1"]
    for _ in range(2):
        done = op_profiler("collect", *model, "--db", f"sqlite:///{tmp_path}/d.db", "--quiet")
        assert done.returncode == 0, done.stderr
    predicted = op_profiler("predict", f"file:{path}", "--format", "json")
    assert predicted.returncode == 0, predicted.stderr
