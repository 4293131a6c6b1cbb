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
from op_profiler.operators.kinds.convolutions import Conv2d
from op_profiler.operators.kinds.products import Dense
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


DENSE = {"kind": "dense", "rows": 1, "in_features": 64, "out_features": 10, "epilogue": "bias"}
CONV = {"kind": "conv2d", "batch": 1, "in_channels": 6, "height": 8, "width": 8, "out_channels": 4, "kernel": 3}


def test_lines_may_describe_layers(tmp_path: Path) -> None:
    (found,) = models_of([json.dumps({"name": "small", "layers": [DENSE, CONV | {"stride": 1}]})], ModelRequest())
    assert found.label == "small" and found.layers == (Dense(1, 64, 10, "bias"), Conv2d(1, 6, 8, 8, 4, 3, 1))


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"kind": "dance"}, "kind 'dance' is not one of batch_matmul, conv2d, dense, elementwise, pool2d, softmax"),
        (DENSE | {"bias": 1}, "dense has no field 'bias', but rows, in_features, out_features, epilogue"),
        (DENSE | {"rows": 0}, "rows of dense is 0; give an integer from 1 on"),
        (DENSE | {"rows": True}, "rows of dense is True; give an integer from 1 on"),
        (DENSE | {"epilogue": "gelu"}, "epilogue of dense is 'gelu'; give one of none, bias, bias_relu"),
        (CONV, "conv2d lacks stride"),
        (CONV | {"stride": 1, "groups": 4}, "groups 4 do not divide in_channels 6 and out_channels 4"),
        ({"kind": "elementwise", "op": "relu", "shape": [1, "2"]}, "give a list of integers from 1 on"),
        (3, "kind None is not one of"),
    ],
)
def test_wrong_layers_are_named_with_what_is_allowed(layer: object, message: str, tmp_path: Path) -> None:
    (tmp_path / "nets").write_text("# nets\nmlp\n" + json.dumps({"name": "net", "layers": [DENSE, layer]}))
    with pytest.raises(UsageError) as refused:
        labels(f"@{tmp_path}/nets")
    assert str(refused.value).startswith(f"{tmp_path}/nets, line 3: layer 2: ") and message in str(refused.value)


@pytest.mark.parametrize(
    "fields", [{"layers": []}, {"name": "net", "layers": {}}, {"name": "net", "layers": [DENSE], "batch": 2}]
)
def test_lines_with_layers_have_a_name_and_layers_only(fields: dict[str, object]) -> None:
    with pytest.raises(UsageError, match='give "name", a text, and "layers", a list of objects'):
        labels(json.dumps(fields))


@pytest.mark.parametrize("options", [("--precision", "float16"), ("--device", "h100"), ("--schedules", "rule")])
def test_layers_are_described_for_processors_in_float32(options: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "nets").write_text(json.dumps({"name": "net", "layers": [DENSE]}))
    device = ("--device", "emeraldrapids") if "--device" not in options else ()
    done = op_profiler("predict", "@nets", *device, *options, folder=tmp_path)
    assert done.returncode == 2 and "net: described layers are predicted for processors, in float32" in done.stderr


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
