"""Sources and names without anything heavy, and fingerprints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import Frontend, ModelRequest
from op_profiler.testing import FrontendSuite

SMALL = {"local": "mlp", "simple": "conv2d"}


class TestFrontends(FrontendSuite):
    @pytest.fixture(params=FRONTENDS)
    def frontend(self, request: pytest.FixtureRequest) -> Frontend:
        return FRONTENDS.get(request.param)

    @pytest.fixture
    def model(self, frontend: Frontend) -> ModelRequest:
        if frontend.source not in SMALL:
            pytest.skip("loaded in test_sources.py: none of its models is small, or a file has to be made first")
        return ModelRequest(source=frontend.source, name=SMALL[frontend.source])


def test_an_unknown_source_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="'simpel'.*simple"):
        FRONTENDS.get("simpel")


@pytest.mark.parametrize(
    ("name", "packages"),
    [
        ("mlp", set()),
        ("gru", set()),
        ("randwire-7", set()),
        ("resnet18", {"torch", "torchvision"}),
        ("dpn68", {"torch", "torchvision", "pretrainedmodels"}),
        ("yolov3-tiny", {"torch", "torchvision", "libreyolo"}),
    ],
)
def test_a_local_model_depends_on_the_packages_that_make_it(
    name: str, packages: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installing the extra `models`, or another version of what is in it, leaves TVM's own models as they were."""
    monkeypatch.setattr("op_profiler.frontends.zoo.classifiers.torchvision_names", lambda: ("resnet18",))
    installed: dict[str, str] = {}
    monkeypatch.setattr("op_profiler.frontends.fingerprints._version", installed.get)
    request = ModelRequest(source="local", name=name)
    without = FRONTENDS.get("local").fingerprint(request)
    for package in ("torch", "torchvision", "pretrainedmodels", "libreyolo"):
        installed[package] = "1"
        assert (FRONTENDS.get("local").fingerprint(request) != without) == (package in packages), package
        del installed[package]


def test_a_fingerprint_depends_on_the_content_of_files_and_not_their_place(tmp_path: Path) -> None:
    frontend = FRONTENDS.get("tflite")
    prints = []
    for folder, content in (("a", b"\0\0\0\0TFL3one"), ("b", b"\0\0\0\0TFL3one"), ("c", b"\0\0\0\0TFL3two")):
        file = tmp_path / folder / "model.tflite"
        file.parent.mkdir()
        file.write_bytes(content)
        prints.append(frontend.fingerprint(ModelRequest(source="tflite", name=str(file))))
    assert prints[0] == prints[1] != prints[2]


def test_weights_beside_an_onnx_file_are_part_of_it_wherever_it_names_them(tmp_path: Path) -> None:
    """Of an attribute of a node, and in the body of an If, as well as among the initializers."""
    onnx = pytest.importorskip("onnx")

    def beside(name: str) -> Any:
        tensor = onnx.TensorProto(name=name, data_type=1, dims=[1], data_location=1)
        tensor.external_data.add(key="location", value=f"{name}.bin")
        return tensor

    constant = onnx.helper.make_node("Constant", [], ["c"], value=beside("attribute"))
    body = onnx.helper.make_graph([constant], "body", [], [], [beside("inside")])
    branch = onnx.helper.make_node("If", ["x"], ["y"], then_branch=body, else_branch=body)
    graph = onnx.helper.make_graph([branch], "graph", [], [], [beside("initializer")])
    (tmp_path / "m.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    names = ("attribute", "inside", "initializer")
    for name in names:
        (tmp_path / f"{name}.bin").write_bytes(b"\0\0\0\0")
    request = ModelRequest(source="file", name=str(tmp_path / "m.onnx"))
    prints = [FRONTENDS.get("file").fingerprint(request)]
    for name in names:
        (tmp_path / f"{name}.bin").write_bytes(b"\1\0\0\0")
        prints.append(FRONTENDS.get("file").fingerprint(request))
    assert len(set(prints)) == 4


def test_what_only_lowering_tells_has_no_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text("def net(): ...\n")
    assert FRONTENDS.get("file").fingerprint(ModelRequest(source="file", name="net:net")) is None
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "config.json").write_text("{}")
    transformers, request = FRONTENDS.get("transformers"), ModelRequest(source="transformers", name="./adapter")
    before = transformers.fingerprint(request)
    assert before is not None
    (tmp_path / "adapter" / "part").mkdir()
    (tmp_path / "adapter" / "part" / "model.safetensors").write_text("weights")
    assert transformers.fingerprint(request) not in (None, before)
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    assert transformers.fingerprint(request) is None


def test_models_without_steps_are_refused_a_prefill_with_the_names_that_have_some(tmp_path: Path) -> None:
    def step(source: str, name: str, past: int | None = 0) -> ModelRequest:
        return ModelRequest(source=source, name=name, sequence_length=8, past=past)

    for source, name in (("local", "mlp"), ("transformers", "bert")):
        with pytest.raises(UsageError, match=f"{name} has no steps"):
            FRONTENDS.get(source).check(step(source, name))
    (tmp_path / "config.json").write_text('{"model_type": "mistral", "hidden_size": 32}')
    frontend = FRONTENDS.get("transformers")
    prints = set()
    for past in (0, 16, None):
        for name in ("llama", str(tmp_path)):
            if past is not None:
                frontend.check(step("transformers", name, past))
            prints.add(frontend.fingerprint(step("transformers", name, past)))
    assert len(prints) == 6
    (tmp_path / "config.json").write_text('{"model_type": "mistral", "hidden_size": 64}')
    assert frontend.fingerprint(step("transformers", str(tmp_path))) not in prints
