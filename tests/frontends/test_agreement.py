"""Imported models are compared with their own frameworks: what differs is found, named and refused."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler import child_processes
from op_profiler.building.agreement import OutputsDifferError, with_agreement
from op_profiler.building.request import BuildRequest
from op_profiler.building.requested_model import load_model
from op_profiler.compilers.imported_model import NOT_ASKED, ImportedModel, InputSpec, NoReference
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.lowered_cache import original_model
from op_profiler.frontends.references import other_process
from op_profiler.frontends.references.tflite_reference import TfliteReference

from ..command_line import op_profiler
from ..installed import needs
from .test_tflite import write_difference_times

MODULES = """
import torch

class Scale(torch.nn.Module):
    def forward(self, x):
        return x * (2.0 if float(x.mean()) > 0 else 3.0)  # a trace keeps one of them

class Net(torch.nn.Module):
    def __init__(self, odd):
        super().__init__()
        self.first, self.odd, self.last = torch.nn.Linear(8, 8), odd, torch.nn.Linear(8, 4)

    def forward(self, x):
        return {"y": self.last(self.odd(self.first(x)))}

class Faint(torch.nn.Module):
    def forward(self, x):
        return 1 + 1e-6 * torch.tanh(x)

def odd():
    return Net(Scale()), torch.randn(4, 8)

def plain():
    return Net(torch.nn.ReLU()), torch.randn(4, 8)

def faint():
    return Faint(), torch.randn(4, 8)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With modules of a user's, and nothing kept from before."""
    (tmp_path / "agreeing.py").write_text(MODULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "cache"))
    return tmp_path


def request_of(name: str, **given: Any) -> BuildRequest:
    return BuildRequest(model=ModelRequest(source="file", name=name), schedules="none", **given)


def loaded(name: str, stages: list[str] | None = None, **given: Any) -> ImportedModel:
    """A model as commands load it."""
    told = [] if stages is None else stages
    return load_model(request_of(name, **given), lambda **event: told.append(str(event.get("stage"))))[0]


@needs("torch")
def test_a_torch_model_that_agrees(torch: Any) -> None:
    agreement = loaded("agreeing:plain").agreement
    assert agreement.outputs_agree is True
    assert agreement.outputs_reference == f"torch {torch.__version__.partition('+')[0]}"
    assert agreement.outputs_error is not None
    assert agreement.outputs_error < 1e-5


@needs("torch")
def test_a_condition_that_a_trace_has_lost_is_refused_with_its_module(torch: Any) -> None:
    with pytest.raises(OutputsDifferError, match=r"that of odd\. Python code .*: \S*agreeing.py:6\. To measure it"):
        loaded("agreeing:odd")


@needs("torch")
def test_an_exported_program_tells_its_node(torch: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, example = importlib.import_module("agreeing").plain()
    torch.export.save(torch.export.export(module.eval(), (example,)), str(folder / "net.pt2"))
    assert loaded("net.pt2").agreement.outputs_agree is True
    from op_profiler.frontends.importers import torch as torch_importer

    tvm = importlib.import_module("tvm")
    wrong = torch_importer._converters() | {"aten::relu": lambda inputs, _: tvm.relay.abs(inputs[0])}
    monkeypatch.setattr(torch_importer, "_converters", lambda: wrong)
    monkeypatch.setenv("OP_PROFILER_CACHE", str(folder / "other"))  # this package's code is what it was
    with pytest.raises(OutputsDifferError, match="that of relu"):
        loaded("net.pt2", check_outputs="always")


def write_onnx(path: Path, *, batch: int | str = 2) -> None:
    from onnx import TensorProto, helper, numpy_helper, save

    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((8, 8)).astype("float32"), name) for name in "vw"]
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"], name="squash"),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    sizes = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", sizes[:1], sizes[1:], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """TVM's importer of ONNX then takes Tanh for Sigmoid."""
    frontend = importlib.import_module("tvm.relay.frontend.onnx")
    usual = frontend._get_convert_map
    monkeypatch.setattr(frontend, "_get_convert_map", lambda opset: usual(opset) | {"Tanh": usual(opset)["Sigmoid"]})


@needs("onnx", "onnxruntime")
@pytest.mark.parametrize("batch", [2, 5])
def test_an_onnx_model_in_its_own_and_in_another_size(batch: int, folder: Path) -> None:
    write_onnx(folder / "net.onnx")
    asked = BuildRequest(model=ModelRequest(source="file", name="net.onnx", batch_size=batch), schedules="none")
    agreement = load_model(asked)[0].agreement
    assert agreement.outputs_agree is True
    assert agreement.outputs_reference.startswith("onnxruntime ")


@needs("onnx", "onnxruntime")
def test_a_fault_of_an_importer_is_found_and_stays_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_onnx(folder / "net.onnx")
    plant(monkeypatch)
    with pytest.raises(OutputsDifferError, match="that of Tanh squash") as first:
        loaded("net.onnx")
    stages: list[str] = []
    with pytest.raises(OutputsDifferError) as again:
        loaded("net.onnx", stages)
    assert str(again.value) == str(first.value)
    assert "comparing outputs" not in stages
    model = loaded("net.onnx", check_outputs="never")  # it is known, and said
    assert model.agreement.outputs_agree is False
    assert any(note.startswith("this is another model: its outputs differ from onnxruntime") for note in model.notes)


@needs("onnx", "onnxruntime")
def test_it_costs_once(folder: Path) -> None:
    write_onnx(folder / "net.onnx")
    assert loaded("net.onnx", check_outputs="never").agreement.outputs_reference == NOT_ASKED
    stages: list[str] = []
    first = loaded("net.onnx", stages).agreement
    assert "comparing outputs" in stages
    stages.clear()
    assert loaded("net.onnx", stages).agreement == first
    assert "comparing outputs" not in stages
    loaded("net.onnx", stages, check_outputs="always")
    assert "comparing outputs" in stages


@needs("onnx")
def test_without_onnxruntime_a_small_model_is_compared_with_onnx_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_onnx(folder / "net.onnx")
    (folder / "onnxruntime.py").write_text("raise ImportError\n")  # found first, and of no use
    monkeypatch.setenv("PYTHONPATH", str(folder))
    agreement = loaded("net.onnx").agreement
    assert agreement.outputs_agree is True
    assert agreement.outputs_reference.startswith("onnx 1.")


@needs("tflite", "ai_edge_litert")
def test_a_tflite_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_difference_times(folder / "net.tflite", ("a", "b", "difference", "product"))
    agreement = loaded("net.tflite").agreement
    assert agreement.outputs_agree is True
    assert agreement.outputs_reference.startswith("LiteRT ")
    from op_profiler.frontends.importers import tflite_converter

    def wrong(self: Any, op: Any) -> Any:
        return self._convert_elemwise(importlib.import_module("tvm").relay.op.add, op)

    monkeypatch.setattr(tflite_converter.TfliteConverter, "convert_sub", wrong, raising=False)
    monkeypatch.setenv("OP_PROFILER_CACHE", str(folder / "other"))  # this package's code is what it was
    with pytest.raises(OutputsDifferError, match="that of difference"):
        loaded("net.tflite", check_outputs="always")


@needs("torch")
def test_outputs_that_hardly_depend_on_the_inputs_show_nothing(torch: Any) -> None:
    agreement = loaded("agreeing:faint").agreement
    assert agreement.outputs_agree is None
    assert "hardly depend on the inputs" in agreement.outputs_reference


def test_what_no_framework_has(tmp_path: Path) -> None:
    model = load_model(BuildRequest(model=ModelRequest(source="local", name="mlp"), schedules="none"))[0]
    assert str(model.agreement) == "outputs not compared: no other framework has this model"


@needs("torch")
def test_a_framework_that_does_not_run_the_model_is_told(torch: Any) -> None:
    class Broken:
        framework, inputs, kinds = "torch", (), frozenset({"aten::relu"})

        def names_of(self, inputs: Any) -> dict[str, str]:
            return {spec.name: spec.name for spec in inputs}

        def outputs(self, _: object) -> list[list[np.ndarray]]:
            raise NoReference("torch does not run it on random inputs: index out of range")

    request = request_of("agreeing:plain")
    model = dataclasses.replace(original_model(request.model), reference=Broken())  # type: ignore[arg-type]
    compared: set[str] = set()
    agreement = with_agreement(request, model, {}, lambda **_: None, compared).agreement
    assert str(agreement) == "outputs not compared: torch does not run it on random inputs: index out of range"
    assert not compared, "no other model counts as compared by it"


@pytest.mark.parametrize(
    ("imported", "names"),
    [(("x_input", "other"), {"x_input": "x", "other": "y"}), (("y",), {"y": "y"}), (("other",), None)],
)
def test_inputs_that_the_importer_renamed_or_dropped(imported: tuple[str, ...], names: dict[str, str] | None) -> None:
    reference = TfliteReference(Path("net.tflite"), [InputSpec("x", (1,)), InputSpec("y", (1,))], lambda _: None)  # type: ignore[arg-type, return-value]
    asked = [InputSpec(name, (1,)) for name in imported]
    if names is None:
        with pytest.raises(NoReference, match="its input other has no counterpart among x, y"):
            reference.names_of(asked)
    else:
        assert reference.names_of(asked) == names


def test_a_process_that_dies_is_told(folder: Path) -> None:
    what = other_process.ReferenceRun(form="onnx", model="", data="", inputs=(), batches=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child_processes, "_program", lambda module: "import os; os.abort()")
        with pytest.raises(NoReference, match="ended with -6"):
            other_process.run(what, [{}])


@needs("torch")
def test_commands_refuse_store_and_show(torch: Any, folder: Path) -> None:
    address = f"sqlite:///{folder}/results.db"

    def collect(name: str, *more: str) -> Any:
        given = ("--modelsource", "file", "--modelname", name, "--db", address, "--threads", "1")
        return op_profiler("collect", *given, "--energy", "none", *more, folder=folder)

    refused = collect("agreeing:odd")
    assert refused.returncode == 4
    assert "computes something else here than in torch" in refused.stderr
    taken = collect("agreeing:odd", "--check-outputs", "never", "--summary-json", "odd.json")
    assert taken.returncode == 0
    assert "outputs not compared: not requested (--check-outputs never)" in taken.stdout
    agreed = collect("agreeing:plain", "--summary-json", "plain.json")
    assert "outputs agree with torch" in agreed.stdout
    (told,) = json.loads((folder / "plain.json").read_text())
    assert told["outputs_agree"] is True
    op_profiler("export", "--db", address, "--where", "outputs_agree = true", "rows.jsonl", folder=folder)
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert {row["model_name"] for row in rows} == {"agreeing:plain"}
    predicted = op_profiler("predict", "file:agreeing:odd", folder=folder)
    assert predicted.returncode == 4


@needs("torch")
@pytest.mark.parametrize(
    ("change", "agrees"),
    [
        (lambda a: a, True),
        (lambda a: a * (1 + 3e-7), True),
        (lambda a: a * 1.01, False),
        (lambda a: np.where(a > 3, 0, a), False),
        (lambda a: np.where(a > 3, np.nan, a), False),
        (lambda a: a[:50], False),
        (lambda a: a.astype("int32"), False),
    ],
)
def test_what_rounding_explains(change: Callable[[np.ndarray], np.ndarray], agrees: bool) -> None:
    from op_profiler.building.agreement_values import difference

    rng = np.random.default_rng(0)
    theirs, other = (rng.standard_normal((2, 100, 100)) * 2).astype("float32")
    moved = theirs * np.float32(1 + 1e-7)
    found = difference(change(theirs), theirs, moved, other, depth=5.0, digits="float32", quantized=False)
    assert found.agrees is agrees
    assert found.is_decided


def test_what_rounding_decides_is_not_decided() -> None:
    from op_profiler.building.agreement_values import difference

    rng = np.random.default_rng(0)
    theirs, moved, other = rng.standard_normal((3, 100)).astype("float32")
    found = difference(theirs, theirs, moved, other, depth=5.0, digits="float32", quantized=False)
    assert not found.is_decided


def test_outputs_that_only_rounding_moves_agree_and_show_nothing() -> None:
    """Such as those of a loop that has converged: their dependence on the inputs is no measure of an error."""
    from op_profiler.building.agreement_values import difference

    theirs = np.random.default_rng(0).uniform(0.1, 0.2, 100).astype("float32")
    other, ours = theirs + np.float32(1e-8), theirs + np.float32(5e-8)
    found = difference(ours, theirs, theirs, other, depth=1.0, digits="float32", quantized=False)
    assert found.agrees
    assert not found.shows
    assert not difference(theirs * 1.01, theirs, theirs, other, depth=1.0, digits="float32", quantized=False).agrees
