"""Lists of models: names, patterns, files, JSON, and lists of Python modules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.building.requested_model import load_model
from op_profiler.compilers.compiler import use_compiler
from op_profiler.compilers.imported_model import OF_COMPARED_KINDS
from op_profiler.errors import ModelError, UsageError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.prediction.latency.model_lists import models_of

from ...command_line import op_profiler
from ...installed import needs

SEARCH = """
import torch

def network(width):
    layers = torch.nn.Linear(16, width), torch.nn.ReLU(), torch.nn.Linear(width, 8)
    return torch.nn.Sequential(*layers), torch.zeros(4, 16)

def candidates():
    return [network(width) for width in (16, 64, 256)] + [(torch.nn.Linear(16, 4), torch.zeros(1, 3))]

NONE = 3
"""


def labels(*words: str) -> list[str]:
    return [one.label for one in models_of(words, ModelRequest())]


def test_patterns_name_files(tmp_path: Path) -> None:
    for name in ("b.onnx", "a.onnx", "c.txt"):
        (tmp_path / name).touch()
    assert labels(f"{tmp_path}/*.onnx", "mlp", "mlp") == [f"{tmp_path}/a.onnx", f"{tmp_path}/b.onnx", "mlp"]
    with pytest.raises(UsageError, match=r"no file matches .*\.tflite"):
        labels(f"{tmp_path}/*.tflite")


def test_lines_may_be_json(tmp_path: Path) -> None:
    file = tmp_path / "models"
    lines = [
        {"model": "mlp", "label": "large batch", "batch_size": 8},
        {"model": "resnet-18", "input_shapes": {"data": [1, 3, 64, 64]}},
    ]
    file.write_text("# a comment\nmlp\n" + "\n".join(map(json.dumps, lines)))
    plain, large, small = models_of([f"@{file}"], ModelRequest())
    assert (plain.label, large.label, small.label) == ("mlp", "large batch", "resnet-18")
    assert (large.request.batch_size, small.request.input_shapes) == (8, ((1, 3, 64, 64),))
    assert large.request.name == plain.request.name == "mlp"


@pytest.mark.parametrize(
    "line", ["{", "{}", '{"model": 3}', '{"model": "mlp", "batches": 2}', '{"model": "mlp", "batch_size": "2"}']
)
def test_json_of_no_model_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="is no line of a list of models"):
        labels(line)


@needs("torch")
def test_a_list_of_modules_is_predicted_in_kept_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "search.py").write_text(SEARCH)
    monkeypatch.chdir(tmp_path)
    assert labels("search:candidates[*]") == [f"search:candidates[{place}]" for place in range(4)]
    with pytest.raises(ModelError, match="NONE is no list of torch modules, but int"):
        labels("search:NONE[*]")
    done = op_profiler("predict", "search:candidates[*]", "--device", "emeraldrapids", "--format", "json", "--quiet")
    assert done.returncode == 1, done.stderr
    rows = {row["model"]: row for row in json.loads(done.stdout)}
    times = [rows[f"search:candidates[{place}]"]["total_us"] for place in range(3)]
    assert times == sorted(times) and times[0] > 0
    assert "does not run on inputs of shape" in rows["search:candidates[3]"]["error"], "it costs no other candidate"


@needs("torch")
def test_outputs_are_compared_where_a_kind_of_node_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "search.py").write_text(SEARCH)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "cache"))
    use_compiler("relay")
    compared: set[str] = set()
    found = []
    for place in (0, 1, 2):
        asked = ModelRequest(source="file", name=f"search:candidates[{place}]")
        build = BuildRequest(model=asked, schedules="none")
        found.append(load_model(build, compared_kinds=compared)[0].agreement)
    first, *others = found
    assert first.outputs_agree is True and first.outputs_reference.startswith("torch")
    assert [one.outputs_reference for one in others] == [OF_COMPARED_KINDS] * 2
    assert any(kind.startswith("aten::linear(") for kind in compared)
    alone = load_model(build)[0].agreement
    assert alone.outputs_agree is True, "a model that is asked about by itself is compared"
