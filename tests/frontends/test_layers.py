"""What is imported names the layers of the user's model; calls of torch also name FX nodes and source lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from op_profiler.compilers.relay_rewriting import location_in_span
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.importers import torch as torch_importer
from op_profiler.frontends.importers import torch_layers
from op_profiler.lean_imports import quiet
from op_profiler.operators.locations import Location, values

Called = list[tuple[str, Location]]


def calls_of(tvm: Any, model: Any) -> Called:
    """Every call of a model with its location."""
    found: Called = []

    def visit(node: Any) -> None:
        if isinstance(node, tvm.relay.Call):
            fields = ("layer", "fx_node", "source_line")
            known = (values([location_in_span(node)], field) for field in fields)
            found.append((str(node.op.name), Location(*("".join(one) for one in known))))

    tvm.relay.analysis.post_order_visit(model.mod["main"].body, visit)
    return found


def layers_of(tvm: Any, model: Any) -> list[tuple[str, str]]:
    """Every call of a model with its layer."""
    return [(op, location.layer) for op, location in calls_of(tvm, model)]


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


LINES = {
    ("nn.conv2d", "stem"): "self.stem(x)",
    ("nn.dense", "blocks.0.linear"): "self.linear(x)",
    ("erf", "blocks.1.gelu"): "self.gelu(",
    ("mean", "Network"): "x.mean",
}
"""What the line of code contains that makes a call, by op and layer."""


def assert_lines(found: Called, expected: Mapping[tuple[str, str], str] = LINES) -> None:
    """Each call has the line of this file that makes it."""
    lines = Path(__file__).read_text().splitlines()
    for (op, layer), part in expected.items():
        (line,) = {location.source_line for name, location in found if (name, location.layer) == (op, layer)}
        file, _, number = line.rpartition(":")
        assert file.endswith("frontends/test_layers.py") and part in lines[int(number) - 1], (op, layer)


def test_modules_of_a_torch_model(torch: Any, tvm: Any, network: Any) -> None:
    example = torch.randn(1, 3, 6, 6)
    lowered = torch_importer.lower(network, [example], name="m", source="file", input_names=["x"], batch_size=1)
    found = layers_of(tvm, lowered)
    assert set(found) >= EXPECTED and all(layer for _, layer in found)
    assert_lines(calls_of(tvm, lowered))
    wrapped = torch_importer.by_keyword(network, ["x"])
    again = torch_importer.lower(wrapped, [example], name="m", source="file", input_names=["x"], batch_size=1)
    assert layers_of(tvm, again) == found


def test_modules_of_torchscript(torch: Any, tvm: Any, network: Any, tmp_path: Path) -> None:
    torch.jit.trace(network, torch.randn(1, 3, 6, 6)).save(str(tmp_path / "m.pt"))
    found = calls_of(tvm, load(str(tmp_path / "m.pt"), 1, 3, 6, 6))
    assert {(op, location.layer) for op, location in found} >= EXPECTED
    assert all(location.layer and location.source_line for _, location in found)
    assert_lines(found)


def test_lines_of_a_script_are_those_that_call_its_modules(torch: Any, tvm: Any, tmp_path: Path) -> None:
    class Gated(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = torch.nn.Conv2d(3, 8, 3)
            self.gate = torch.nn.Sigmoid()

        def forward(self, x):  # type: ignore[no-untyped-def]
            y = self.convolution(x)
            return self.gate(y) * y

    torch.jit.script(Gated().eval()).save(str(tmp_path / "m.pt"))
    found = calls_of(tvm, load(str(tmp_path / "m.pt"), 1, 3, 6, 6))
    calls = {("nn.conv2d", "convolution"): "self.convolution(x)", ("multiply", "Gated"): "self.gate(y) * y"}
    assert_lines(found, calls | {("sigmoid", "gate"): "self.gate(y) * y"})


def test_lines_of_a_model_that_was_saved_elsewhere() -> None:
    own = "/elsewhere/env/lib/python3.12/site-packages/torch/nn/modules/conv.py"
    assert torch_layers._users_line([(own, "565"), ("/elsewhere/net.py", "12")]) == "elsewhere/net.py:12"
    assert torch_layers._users_line([("net.py", "3"), (own, "565")]) == "net.py:3"
    assert torch_layers._users_line([(own, "565")]) == ""


def test_modules_of_an_exported_program(torch: Any, tvm: Any, network: Any, tmp_path: Path) -> None:
    torch.export.save(torch.export.export(network, (torch.randn(1, 3, 6, 6),)), str(tmp_path / "m.pt2"))
    found = calls_of(tvm, load(str(tmp_path / "m.pt2")))
    assert {(op, location.layer) for op, location in found} >= EXPECTED
    assert all(location.layer for _, location in found)
    assert_lines(found)
    nodes = {node.name: str(node.target) for node in torch.export.load(str(tmp_path / "m.pt2")).graph.nodes}
    kinds = {"nn.conv2d": "conv2d", "nn.dense": "linear", "erf": "gelu", "transpose": "transpose", "mean": "mean"}
    assert all(nodes[location.fx_node].startswith(f"aten.{kinds.get(op, '')}") for op, location in found)
    second = [location.fx_node for op, location in found if location.layer == "blocks.1.linear" and op == "nn.dense"]
    assert second == ["linear_1"]


def test_what_names_no_modules_has_no_layers(torch: Any, tvm: Any, network: Any, tmp_path: Path) -> None:
    frozen = torch.jit.freeze(torch.jit.trace(network, torch.randn(1, 3, 6, 6)))
    frozen.save(str(tmp_path / "m.pt"))
    found = calls_of(tvm, load(str(tmp_path / "m.pt"), 1, 3, 6, 6))
    assert {location.layer for _, location in found} == {""}
    assert_lines(found, {(op, ""): part for (op, _), part in LINES.items() if op != "erf"})


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
