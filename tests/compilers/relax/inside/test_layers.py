"""Layers of the user's model under Relax: from whoever imports it to the kernels."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.compilers.relax.compiled_files import read_compiled, write_compiled
from op_profiler.compilers.relax.decoder.model import load_step
from op_profiler.compilers.relax.imported_layers import NotedLayers
from op_profiler.compilers.relax.layers import layers_of_kernels
from op_profiler.compilers.relax.pipeline import lower
from op_profiler.compilers.relax.relax_compiler import RELAX
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.operators.locations import values
from op_profiler.targets.target import resolve_target
from op_profiler.testing.compiler import NO_RECORDS


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two blocks of the same sizes (convolution, norm, rectifier), a sum of three tensors, and a product."""
    onnx = pytest.importorskip("onnx")
    helper, kind, rng = onnx.helper, onnx.TensorProto.FLOAT, np.random.default_rng(0)
    nodes, weights, data = [], [], "x"
    for block in ("stem", "body"):
        sizes = {"w": (16, 16, 3, 3), "s": (16,), "b": (16,), "m": (16,), "v": (16,)}
        for name, shape in sizes.items():
            values = np.abs(rng.standard_normal(shape)).astype("float32") / 16
            weights.append(onnx.numpy_helper.from_array(values, f"{block}.{name}"))
        of = [f"{block}.{name}" for name in sizes]
        nodes.append(helper.make_node("Conv", [data, of[0]], [f"{block}.c"], f"{block}/conv", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("BatchNormalization", [f"{block}.c", *of[1:]], [f"{block}.n"], f"{block}/bn"))
        nodes.append(helper.make_node("Relu", [f"{block}.n"], [f"{block}.r"], f"{block}/relu"))
        data = f"{block}.r"
    nodes.append(helper.make_node("Sum", ["stem.r", "body.r", "x"], ["sum"], "join"))
    nodes.append(helper.make_node("GlobalAveragePool", ["sum"], ["pooled"]))  # without a name
    nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"], "head/flatten"))
    nodes.append(helper.make_node("Gemm", ["flat", "g"], ["y"], "head/fc"))
    weights.append(onnx.numpy_helper.from_array(rng.standard_normal((16, 10)).astype("float32"), "g"))
    ends = [helper.make_tensor_value_info(n, kind, shape) for n, shape in (("x", [1, 16, 12, 12]), ("y", [1, 10]))]
    graph = helper.make_graph(nodes, "blocks", ends[:1], ends[1:], weights)
    file = tmp_path_factory.mktemp("models") / "blocks.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(file))
    return file


def imported(file: Path, importer: str) -> ImportedModel:
    load_tvm()
    return RELAX.load_model(FRONTENDS.get("file"), ModelRequest(source="file", name=str(file), importer=importer))


def operators(model: ImportedModel) -> list[Occurrence]:
    return RELAX.operators(model, resolve_target("llvm"))


def layers_of(occurrences: Sequence[Occurrence]) -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = {}
    for one in occurrences:
        found.setdefault(one.operator.anchor, []).append(one.layers)
    return found


@pytest.mark.parametrize("importer", ["relay", "relax"])
def test_calls_of_one_kernel_are_of_the_layers_that_they_came_from(blocks: Path, importer: str) -> None:
    found = operators(imported(blocks, importer))
    layers = layers_of(found)
    first, second = [set(names) for names in layers["nn.contrib_conv2d_NCHWc"]]
    assert [names[0] for names in layers["nn.contrib_conv2d_NCHWc"]] == ["stem/conv", "body/conv"]
    assert {"stem/bn", "stem/relu"} <= first and {"body/bn", "body/relu", "join"} <= second
    assert [names[0] for names in layers["nn.contrib_dense_pack"]] == ["head/fc"]
    assert layers["nn.global_avg_pool2d"] == [("GlobalAveragePool_0",)]
    assert layers["layout_transform"][0][0] == "stem/conv"  # it belongs to the layer that reads it


def test_kernels_are_the_same_without_layers(blocks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm_ffi

    named = operators(imported(blocks, "relax"))
    monkeypatch.setattr(NotedLayers, "of_onnx", lambda self: contextlib.nullcontext())
    plain = operators(imported(blocks, "relax"))
    assert not any(one.layers for one in plain)
    assert [(one.operator.key, one.label) for one in named] == [(one.operator.key, one.label) for one in plain]
    assert all(tvm_ffi.structural_equal(a.function, b.function) for a, b in zip(named, plain, strict=True))


def test_a_build_has_them_and_so_has_one_that_was_kept(blocks: Path, tmp_path: Path) -> None:
    compiled = RELAX.build(imported(blocks, "relax"), resolve_target("llvm"), NO_RECORDS).compiled
    labels = [call.label for call in compiled.calls]
    told = compiled.layers_of(labels)
    assert [names[0] for names in told if names[0].endswith("conv")][-2:] == ["stem/conv", "body/conv"]
    write_compiled(tmp_path, compiled)
    assert read_compiled(tmp_path).layers_of(labels) == told


def test_other_pipelines_carry_them_too(blocks: Path) -> None:
    layers = layers_of(operators(dataclasses.replace(imported(blocks, "relax"), pipeline="stock")))
    assert [names[0] for names in layers["nn.conv2d"]] == ["stem/conv", "body/conv"]


def test_calls_of_what_other_passes_have_grouped_are_of_layers_too(blocks: Path) -> None:
    module = imported(blocks, "relax").mod
    fused = lower(module, resolve_target("llvm")).fused
    found = layers_of_kernels(module, fused, fused)
    assert {name for calls in found.values() for names in calls for name in names} >= {"stem/conv", "head/fc"}


@pytest.fixture
def stacked() -> Any:
    """Two equal blocks (product, rectifier, norm, sum), each computed by one line of code."""
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Linear(16, 16)
            self.norm = torch.nn.LayerNorm(16)

        def forward(self, data: Any) -> Any:
            return data + self.norm(torch.relu(self.inner(data)))

    load_tvm()
    return torch.nn.Sequential(Block(), Block()).eval()


def assert_is_stacked(found: Sequence[Occurrence]) -> None:
    """The kernels are of the layers of `stacked`, and of its one line of code."""
    layers = layers_of(found)
    assert [names[0] for names in layers["nn.contrib_dense_pack"]] == ["0.inner", "1.inner"]
    assert {name for one in found for name in one.layers} >= {"0.norm", "1.norm"}
    (line,) = {line for one in found for line in values(one.locations, "source_line")}
    file, _, number = line.rpartition(":")
    assert file.endswith("test_layers.py")
    assert "self.inner(data)" in Path(__file__).read_text().splitlines()[int(number) - 1]


def test_modules_of_torch_are_layers_through_torch_export(stacked: Any) -> None:
    import torch

    from op_profiler.frontends.importers import torch as torch_importer

    data = torch.randn(4, 16)
    found = torch_importer.lower(stacked, [data], name="blocks", source="file", input_names=["x"], batch_size=4)
    assert_is_stacked(operators(found))


@pytest.mark.parametrize("importer", ["relay", "relax"])
def test_kernels_of_a_program_have_its_layers_nodes_and_lines(importer: str, stacked: Any, tmp_path: Path) -> None:
    import torch

    torch.export.save(torch.export.export(stacked, (torch.randn(4, 16),)), str(tmp_path / "stacked.pt2"))
    found = operators(imported(tmp_path / "stacked.pt2", importer))
    assert_is_stacked(found)
    nodes = [values(one.locations, "fx_node") for one in found]
    assert {name for names in nodes for name in names} == {
        f"{name}{suffix}" for name in ("linear", "relu", "layer_norm", "add") for suffix in ("", "_1")
    }
    heavy = [names[0] for names, one in zip(nodes, found, strict=True) if "dense" in one.operator.anchor]
    assert heavy == ["linear", "linear_1"]


def test_tensors_of_tflite_are_layers() -> None:
    spec = importlib.util.find_spec("mediapipe")
    if spec is None or not spec.origin:
        pytest.skip("mediapipe, whose .tflite files this test reads, is not installed")
    (file,) = Path(spec.origin).parent.glob("modules/*/hand_recrop.tflite")
    model = imported(file, "relax")
    assert "imported by Relax itself" in model.notes
    layers = [name for one in operators(model) for names in one.layers for name in names.split(", ")]
    content = file.read_bytes()
    assert layers and all(name.encode() in content for name in layers)


@pytest.mark.slow  # a module of torch through torch.export stands above
@pytest.mark.parametrize("importer", ["auto", "relax"])
def test_a_language_model_of_transformers_as_a_whole(importer: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    config = {"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 64, "n_positions": 32}
    (tmp_path / "config.json").write_text(json.dumps(config))
    load_tvm()
    request = ModelRequest(source="transformers", name=str(tmp_path), sequence_length=8, importer=importer)
    layers = layers_of(operators(RELAX.load_model(FRONTENDS.get("transformers"), request)))
    assert {"h.0.attn.c_attn", "h.1.mlp.c_proj"} <= {
        name for found in layers.values() for names in found for name in names
    }


def test_steps_of_decoders_have_the_layers_of_transformers() -> None:
    load_tvm()
    request = ModelRequest(source="transformers", name="llama", sequence_length=1, past=8)
    layers = layers_of(operators(load_step(request)))
    attention = [f"model.layers.{number}.self_attn" for number in range(4)]
    assert [names[0] for names in layers["attention.decode"]] == attention
    products = [names[0] for names in layers["nn.contrib_dense_pack"]]
    assert products[:2] == [attention[0], f"{attention[0]}.o_proj"] and products[-1] == "lm_head"
    assert all(names for found in layers.values() for names in found)
