"""What is imported names the layers of the user's model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from op_profiler.compilers.relay_rewriting import layer_in_span
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.importers import torch as torch_importer
from op_profiler.lean_imports import quiet


def layers_of(tvm: Any, model: Any) -> list[tuple[str, str]]:
    """Every call of a model with its layer."""
    found: list[tuple[str, str]] = []

    def visit(node: Any) -> None:
        if isinstance(node, tvm.relay.Call):
            found.append((str(node.op.name), layer_in_span(node)))

    tvm.relay.analysis.post_order_visit(model.mod["main"].body, visit)
    return found


def load(name: str, *shape: int) -> Any:
    request = ModelRequest(source="file", name=name, input_shapes=(shape,) if shape else ())
    return FRONTENDS.get("file").load(request)


@pytest.fixture
def network(torch: Any) -> Any:
    """Layers in a list, one in another, and operators that belong to none but the whole."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)
            self.gelu = nn.GELU()

        def forward(self, x: Any) -> Any:
            return x + self.gelu(self.linear(x))

    class Network(nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3)
            self.blocks = nn.ModuleList([Block(), Block()])

        def forward(self, x: Any) -> Any:
            x = self.stem(x).flatten(2).transpose(1, 2)
            for block in self.blocks:
                x = block(x)
            return x.mean(1)

    return Network().eval()


EXPECTED = {
    ("nn.conv2d", "stem"),
    ("transpose", "Network"),
    ("nn.dense", "blocks.0.linear"),
    ("erf", "blocks.0.gelu"),
    ("add", "blocks.0"),
    ("nn.dense", "blocks.1.linear"),
    ("erf", "blocks.1.gelu"),
    ("add", "blocks.1"),
    ("mean", "Network"),
}


def assert_lines_of_layers(found: Mapping[str, Sequence[str]]) -> None:
    """Each layer has the lines of this file that call it."""
    lines = Path(__file__).read_text().splitlines()
    called = {
        "stem": "self.stem(x)",
        "blocks.0.linear": "self.linear(x)",
        "blocks.1": "self.gelu(",
        "Network": "x.mean",
    }
    for layer, call in called.items():
        *_, (file, _, number) = (line.rpartition(":") for line in found[layer])
        assert file.endswith("frontends/test_layers.py") and call in lines[int(number) - 1], layer


def test_modules_of_a_torch_model(torch: Any, tvm: Any, network: Any) -> None:
    example = torch.randn(1, 3, 6, 6)
    lowered = torch_importer.lower(network, [example], name="m", source="file", input_names=["x"], batch_size=1)
    found = layers_of(tvm, lowered)
    assert set(found) >= EXPECTED and all(layer for _, layer in found)
    assert_lines_of_layers(lowered.source_lines)
    wrapped = torch_importer.by_keyword(network, ["x"])
    again = torch_importer.lower(wrapped, [example], name="m", source="file", input_names=["x"], batch_size=1)
    assert layers_of(tvm, again) == found


def test_modules_of_torchscript(torch: Any, tvm: Any, network: Any, tmp_path: Path) -> None:
    torch.jit.trace(network, torch.randn(1, 3, 6, 6)).save(str(tmp_path / "m.pt"))
    found = layers_of(tvm, load(str(tmp_path / "m.pt"), 1, 3, 6, 6))
    assert set(found) >= EXPECTED and all(layer for _, layer in found)


def test_modules_of_an_exported_program(torch: Any, tvm: Any, network: Any, tmp_path: Path) -> None:
    torch.export.save(torch.export.export(network, (torch.randn(1, 3, 6, 6),)), str(tmp_path / "m.pt2"))
    lowered = load(str(tmp_path / "m.pt2"))
    assert_lines_of_layers(lowered.source_lines)
    found = layers_of(tvm, lowered)
    assert set(found) >= EXPECTED and all(layer for _, layer in found)


def test_what_names_no_modules_has_no_layers(torch: Any, tvm: Any, network: Any, tmp_path: Path) -> None:
    frozen = torch.jit.freeze(torch.jit.trace(network, torch.randn(1, 3, 6, 6)))
    frozen.save(str(tmp_path / "m.pt"))
    assert {layer for _, layer in layers_of(tvm, load(str(tmp_path / "m.pt"), 1, 3, 6, 6))} == {""}


def test_nodes_of_onnx(tvm: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["y"], name="/encoder/dense/Gemm"),
        helper.make_node("Relu", ["y"], ["z"], name="/encoder/act/Relu"),
        helper.make_node("Softmax", ["z"], ["out"]),
    ]
    weights = [helper.make_tensor("w", kind, [8, 8], [0.5] * 64), helper.make_tensor("b", kind, [8], [0.5] * 8)]
    values = [helper.make_tensor_value_info(name, kind, [1, 8]) for name in ("x", "out")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    found = dict(layers_of(tvm, load(str(tmp_path / "m.onnx"))))
    assert found["nn.dense"] == "/encoder/dense/Gemm" and found["nn.relu"] == "/encoder/act/Relu"
    assert found["nn.softmax"] == "Softmax_0"  # a node without a name: its kind and number


def test_tensors_of_tflite(tvm: Any, mediapipe: dict[str, Path]) -> None:
    pytest.importorskip("tflite")
    found = layers_of(tvm, load(str(mediapipe["hand_recrop"])))
    assert all(layer for _, layer in found)
    names = mediapipe["hand_recrop"].read_bytes()
    assert all(layer.split(", ")[0].encode() in names for _, layer in found)


def test_weights_of_the_example_networks(tvm: Any) -> None:
    model = FRONTENDS.get("local").load(ModelRequest(source="local", name="mlp"))
    found = layers_of(tvm, model)
    assert [layer for op, layer in found if op == "nn.dense"] == ["fc1", "fc2", "fc3"]
    assert ("nn.relu", "") in found  # has no weights, so nothing tells


def attributed(model: Any, target: Any) -> float:
    """Share of the work (operations, and bytes moved) of a model's kernels whose anchor's layer is known."""
    from op_profiler.compilers.relay.lower import optimize

    found = optimize(model, target)
    work = [o.operator.flops + o.operator.bytes_read + o.operator.bytes_written for o in found]
    return sum(share for share, o in zip(work, found) if o.layers) / sum(work)


def test_a_small_transformer_is_attributed(torch: Any, target: Any) -> None:
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, activation="gelu")
    network = nn.Sequential(nn.Embedding(50, 16), nn.TransformerEncoder(layer, 2), nn.Linear(16, 4))
    example = torch.randint(0, 50, (1, 8))
    lowered = torch_importer.lower(network, [example], name="m", source="file", input_names=["x"], batch_size=1)
    assert attributed(lowered, target) >= 0.95


def test_a_small_onnx_graph_is_attributed(torch: Any, target: Any, network: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    with quiet():
        torch.onnx.export(network, (torch.randn(1, 3, 6, 6),), str(tmp_path / "m.onnx"), dynamo=False)
    assert attributed(load(str(tmp_path / "m.onnx")), target) >= 0.95
