"""Lowered models in the cache folder: the same operators again, without TVM."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import op_profiler as op_profiler_api
from op_profiler.building.request import BuildRequest
from op_profiler.errors import ModelError, OpProfilerError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.prediction.latency.devices import devices_in
from op_profiler.prediction.latency.lowered_models import LoweredModel, LoweringProcess, lowered_model
from op_profiler.prediction.latency.network import NetworkPrediction
from op_profiler.shipped import shipped_gpus
from op_profiler.targets.cuda import tvm_build

from ...command_line import op_profiler


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "networks"


def _asked(**changes: str) -> BuildRequest:
    model = ModelRequest(source="local", name="mlp")
    return BuildRequest(model=model, schedules="none", **changes)  # type: ignore[arg-type]


def _lowered(**changes: str) -> tuple[LoweredModel, list[str]]:
    notes: list[str] = []
    return lowered_model(_asked(**changes), notes.append), notes


def test_it_is_lowered_once(cache: Path) -> None:
    first, notes = _lowered()
    again, silence = _lowered()
    assert (notes, silence) == (["lowering mlp"], [])
    assert again == first
    assert [operator.key for operator in again.operators] == [operator.key for operator in first.operators]
    assert first.input_dtypes == {"data": "float32"}
    _, other = _lowered(target="llvm -mcpu=haswell")
    assert other == ["lowering mlp"]
    assert len(list(cache.iterdir())) == 2


@pytest.mark.parametrize("damage", [lambda text: text.replace("dense", "fense"), lambda text: text[:-9], lambda _: ""])
def test_a_damaged_file_is_lowered_again(cache: Path, damage: object) -> None:
    assert callable(damage)
    first, _ = _lowered()
    (file,) = cache.iterdir()
    whole = file.read_text()
    file.write_text(damage(whole))
    again, notes = _lowered()
    assert notes == ["lowering mlp"]
    assert again == first
    assert file.read_text() == whole


def test_layers_are_kept_too(cache: Path) -> None:
    first, _ = _lowered()
    again, _ = _lowered()
    assert first.layers == again.layers == (("fc1",), ("fc2",), ("fc3",), ())
    assert list(again.network().layers.values()) == [[("fc1",)], [("fc2",)], [("fc3",)]]


def test_a_file_of_an_older_version_is_lowered_again(cache: Path) -> None:
    first, _ = _lowered()
    (file,) = cache.iterdir()
    content = json.loads(file.read_text().partition("\n")[2])
    del content["version"], content["layers"]
    older = json.dumps(content)
    file.write_text(f"{hashlib.sha256(older.encode()).hexdigest()}\n{older}")
    again, notes = _lowered()
    assert (again, notes) == (first, ["lowering mlp"])


def test_a_model_that_was_one_of_many_gets_its_layers_when_it_is_asked_about_by_itself(cache: Path) -> None:
    with LoweringProcess(of_many=True) as process:
        assert lowered_model(_asked(check_outputs="never"), lower=process.lower).layers is None
    found, notes = _lowered(check_outputs="never")
    assert notes == ["lowering mlp"] and found.layers is not None


def test_the_second_prediction_needs_no_tvm(tmp_path: Path) -> None:
    first = op_profiler("predict", "mlp", "--quiet")
    assert first.returncode == 0, first.stderr
    (tmp_path / "tvm.py").write_text("raise ImportError('not this time')")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    line = [sys.executable, "-c", "from op_profiler.cli import main; main()", "predict", "mlp", "--quiet"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stdout) == (0, first.stdout), done.stderr


def test_a_model_that_computes_nothing_has_no_time(tmp_path: Path) -> None:
    from onnx import TensorProto, helper, save

    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Dropout", ["x"], ["y"])], "nothing", value[:1], value[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), tmp_path / "m.onnx")
    model = ModelRequest(source="file", name=str(tmp_path / "m.onnx"))
    with pytest.raises(ModelError, match="computes nothing"):
        lowered_model(BuildRequest(model=model, schedules="none"))


def test_a_model_that_takes_the_compiler_down_costs_no_other(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    (tmp_path / "deadly.py").write_text(
        "import os, signal, torch\n"
        "class Deadly(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        os.kill(os.getpid(), signal.SIGSEGV)\n"
        "def deadly():\n"
        "    return Deadly(), torch.ones(1, 8)\n"
    )
    done = op_profiler("predict", "deadly:deadly", "mlp", "--format", "json", folder=tmp_path)
    rows = {row["model"]: row for row in json.loads(done.stdout)}
    assert done.returncode == 1, done.stderr
    assert "the process that lowers it died (SIGSEGV)" in rows["deadly:deadly"]["error"]
    assert rows["mlp"]["total_us"] > 0


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_build, "missing", lambda: ["the build of TVM with CUDA (source ./env_var.sh cuda)"])


@pytest.mark.usefixtures("without_cuda")
class TestWithoutTheTvmOfAGpu:
    """Models that were measured on the GPU that ships are included in lowered form."""

    @pytest.mark.parametrize(
        ("name", "options"),
        [("resnet-18", {}), ("resnet-18", {"precision": "float16"}), ("mobilenet", {"batch_size": 8}), ("lstm", {})],
    )
    def test_included_models_are_predicted(self, name: str, options: dict[str, Any]) -> None:
        found = op_profiler_api.predict(name, device="h100", **options)
        assert isinstance(found, NetworkPrediction)
        assert found.partial_us > 0 and "measured" in found.tiers

    @pytest.mark.parametrize("options", [{"batch_size": 2}, {"precision": "int8"}, {"check_outputs": "always"}])
    def test_others_are_refused_with_what_to_install(self, options: dict[str, Any]) -> None:
        with pytest.raises(OpProfilerError, match=r"^resnet-18 is neither among .* \(source ./env_var.sh cuda\)$"):
            op_profiler_api.predict("resnet-18", device="h100", **options)

    def test_cached_models_are_predicted(self, cache: Path) -> None:
        """As if somebody had lowered it before the build was removed."""
        (gpu,) = (one for one in shipped_gpus() if one.networks is not None)
        assert gpu.operators is not None
        target = devices_in(file=gpu.operators)[0].target
        asked = BuildRequest(model=ModelRequest(name="resnet-18", batch_size=2), target=target, schedules="none")
        included = _included_one(dataclasses.replace(asked, model=ModelRequest(name="resnet-18")))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tvm_build, "missing", lambda: [])
            lowered_model(asked, lower=lambda request: included)
        assert lowered_model(asked).operators == included.operators


def _included_one(request: BuildRequest) -> LoweredModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tvm_build, "missing", lambda: ["it"])
        return lowered_model(request)


@pytest.mark.skipif(bool(tvm_build.missing()), reason="needs the TVM with CUDA")
def test_an_included_model_is_what_is_lowered_today() -> None:
    (gpu,) = (one for one in shipped_gpus() if one.networks is not None)
    assert gpu.operators is not None
    target = devices_in(file=gpu.operators)[0].target
    asked = BuildRequest(model=ModelRequest(name="squeezenet_v1.1"), target=target, schedules="none")
    assert lowered_model(asked).operators == _included_one(asked).operators


def test_included_models_are_small() -> None:
    (gpu,) = (one for one in shipped_gpus() if one.networks is not None)
    assert gpu.networks is not None and gpu.networks.stat().st_size < 1e6
