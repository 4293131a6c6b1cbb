"""Models that Relax imports by itself."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.compilers.relax import tvm_package
from op_profiler.compilers.relax.relax_compiler import RELAX
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.errors import ModelError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.parallel.runtime.memory import bind_in_one_piece
from op_profiler.targets.target import resolve_target
from op_profiler.testing.compiler import NO_RECORDS

from ....frontends.lowered import agree


def outputs_of(model: ImportedModel, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    load_tvm()
    target = resolve_target("llvm")
    built = RELAX.build(model, target, NO_RECORDS)
    return RELAX.load(built.compiled, runtime_device(target), inputs).output_arrays()


def test_an_onnx_file_that_relay_refuses_is_imported_and_says_so(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    # no name of Relax has a dot, and torch gives such names to inputs
    values = [helper.make_tensor_value_info(*one) for one in (("input.1", kind, [2, 2, 3]), ("y", kind, [2, 4, 5, 2]))]
    size = helper.make_tensor("size", onnx.TensorProto.INT64, [4], [2, 1, 4, 5])
    nodes = [helper.make_node("Sin", ["input.1"], ["sine"]), helper.make_node("AffineGrid", ["sine", "size"], ["y"])]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [size])
    file = tmp_path / "grid.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), str(file))
    load_tvm()
    model = RELAX.load_model(FRONTENDS.get("file"), ModelRequest(source="file", name=str(file)))
    assert any("imported by Relax itself" in note and "AffineGrid" in note for note in model.notes)
    with pytest.raises(ModelError, match="AffineGrid"):
        RELAX.load_model(FRONTENDS.get("file"), ModelRequest(source="file", name=str(file), importer="relay"))
    assert [(spec.name, spec.shape, spec.dtype) for spec in model.inputs] == [("input.1", (2, 2, 3), "float32")]
    data = np.random.default_rng(0).standard_normal((2, 2, 3)).astype("float32")
    (expected,) = ReferenceEvaluator(str(file)).run(None, {"input.1": data})
    np.testing.assert_allclose(outputs_of(model, {"input.1": data})[0], expected, atol=1e-5)
    compiled = RELAX.build(model, resolve_target("llvm"), NO_RECORDS).compiled
    blocks = [place if one.view_of is None else one.view_of for place, one in enumerate(compiled.tensors)]
    bound = bind_in_one_piece(compiled, blocks, {"input.1": data})
    assert all(kernel.run() for kernel in bound.kernels)
    np.testing.assert_allclose(bound.output_arrays()[0], expected, atol=1e-5)


def test_an_attribute_that_an_own_importer_ignores_is_refused(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto
    values = [helper.make_tensor_value_info("x", kind.FLOAT, [4]), helper.make_tensor_value_info("y", kind.BOOL, [4])]
    node = helper.make_node("IsInf", ["x"], ["y"], detect_positive=0)
    file = tmp_path / "infinite.onnx"
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(file))
    load_tvm()
    with pytest.raises(ModelError, match="converter of IsInf ignores detect_positive=0"):
        RELAX.load_model(FRONTENDS.get("file"), ModelRequest(source="file", name=str(file), importer="relax"))


def test_a_batch_that_does_not_reach_the_outputs_of_an_own_import_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # a Python imports with Relay, as where users start commands
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    values = [helper.make_tensor_value_info(name, kind, [2, 4, 6]) for name in ("x", "y")]
    weights = [helper.make_tensor(name, kind, [4], [1.0] * 4) for name in ("s", "b")]
    for name, value in (("axes", [0]), ("to", [2, 4, 6])):
        weights.append(helper.make_tensor(name, onnx.TensorProto.INT64, [len(value)], value))
    nodes = [
        helper.make_node("GroupNormalization", ["x", "s", "b"], ["normed"], num_groups=2),
        helper.make_node("ReduceMean", ["normed", "axes"], ["mean"], keepdims=1),
        helper.make_node("Expand", ["mean", "to"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    file = tmp_path / "fixed.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9), str(file))
    load_tvm()
    with pytest.raises(ModelError, match="cannot be given 3"):
        RELAX.load_model(
            FRONTENDS.get("file"), ModelRequest(source="file", name=str(file), batch_size=3, importer="relax")
        )


def test_a_module_of_torch_with_counted_truth_values_is_imported_through_torch_export() -> None:
    torch = pytest.importorskip("torch")
    from op_profiler.frontends.importers import torch as torch_importer

    class Counting(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, data: Any) -> Any:
            return {"counted": (data > 0).cumsum(-1), "data": data * 2}

    load_tvm()
    data = torch.randn(2, 5)
    model = torch_importer.lower(Counting(), [data], name="counting", source="file", input_names=["data"], batch_size=2)
    counted, doubled = outputs_of(model, {"data": data.numpy()})
    np.testing.assert_array_equal(counted, (data.numpy() > 0).cumsum(-1))
    np.testing.assert_allclose(doubled, 2 * data.numpy())


def test_whole_numbers_of_an_exported_program_are_divided_as_fractions() -> None:
    torch = pytest.importorskip("torch")
    from op_profiler.frontends.importers import torch as torch_importer

    class Dividing(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, data: Any) -> Any:
            return data.long() / 2, data.long() / (data.abs().long() + 1), torch.reciprocal(data.abs().int() + 2)

    load_tvm()
    data = torch.randn(2, 5) * 9
    model = torch_importer.lower(Dividing(), [data], name="divides", source="file", input_names=["data"], batch_size=2)
    for output, expected in zip(outputs_of(model, {"data": data.numpy()}), Dividing()(data), strict=True):
        np.testing.assert_allclose(output, expected.numpy(), rtol=1e-6)


OVERLOOKED: dict[str, Callable[..., Any]] = {
    "divisor": lambda torch, x: torch.nn.functional.avg_pool2d(x, 2, divisor_override=3),
    "places": lambda torch, x: torch.nn.functional.max_pool2d(x, 2, return_indices=True),
    "smooth": lambda torch, x: torch.nn.functional.interpolate(x, (3, 3), mode="bilinear", antialias=True),
    "statistics": lambda torch, x: torch.nn.functional.batch_norm(x, torch.ones(3), torch.ones(3), training=True),
    "shape": lambda torch, x: torch.nn.functional.grid_sample(x, torch.zeros(2, 4, 5, 2)),
}


@pytest.mark.parametrize("name", OVERLOOKED)
def test_what_the_importer_of_exported_programs_overlooks_is_found_by_its_outputs(name: str) -> None:
    torch = pytest.importorskip("torch")
    from op_profiler.frontends.importers import torch as torch_importer

    class Module(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, data: Any) -> Any:
            return OVERLOOKED[name](torch, data)

    load_tvm()
    with contextlib.suppress(ModelError):  # some are refused by the importer
        model = torch_importer.lower(
            Module(), [torch.randn(2, 3, 6, 6)], name="m", source="file", input_names=["x"], batch_size=2
        )
        agree(model, agrees=False, compiler="relax")


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "dropout": (lambda torch, x: torch.nn.functional.dropout(x, 0.5, training=True), "drops at random"),
    "random": (lambda torch, x: x + torch.rand_like(x), "draws at random"),
    "run time": (lambda torch, x: x[:, : int(x.sum())], "torch.export: Could not"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_importer_of_exported_programs_cannot_take_is_refused(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    from op_profiler.frontends.importers import torch as torch_importer

    function, message = REFUSED[name]

    class Module(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, data: Any) -> Any:
            return function(torch, data)

    load_tvm()
    with pytest.raises(ModelError, match=message):
        torch_importer.lower(
            Module(), [torch.randn(2, 3, 6, 6)], name="m", source="file", input_names=["x"], batch_size=2
        )
    assert "def forward" not in capfd.readouterr().err


def test_a_pool_without_places_is_imported_whatever_follows_it() -> None:
    torch = pytest.importorskip("torch")
    from op_profiler.frontends.importers import torch as torch_importer

    class Pooling(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, data: Any) -> Any:
            return torch.flatten(torch.nn.functional.max_pool2d(data, 2), 1)

    load_tvm()
    data = torch.randn(2, 3, 6, 6)
    model = torch_importer.lower(Pooling(), [data], name="pools", source="file", input_names=["data"], batch_size=2)
    np.testing.assert_array_equal(outputs_of(model, {"data": data.numpy()})[0], Pooling()(data).numpy())


def test_what_is_made_of_relay_s_ops_is_not_for_relax_alone() -> None:
    load_tvm()
    for source, name in (("simple", "conv2d"), ("local", "mlp")):
        request = ModelRequest(source=source, name=name, importer="relax")
        with pytest.raises(ModelError, match=f"{name} is made of Relay's ops.*leave out --importer relax"):
            RELAX.load_model(FRONTENDS.get(source), request)


def test_who_imports_a_model_is_part_of_what_it_is() -> None:
    requests = [ModelRequest(source="local", name="mlp", importer=name) for name in RELAX.importers]
    assert len({FRONTENDS.get("local").fingerprint(request) for request in requests}) == 3
    assert FRONTENDS.get("local").fingerprint(requests[0]) == FRONTENDS.get("local").fingerprint(
        ModelRequest(source="local", name="mlp")
    )


def test_ops_that_layouts_do_not_go_through_are_written_in_others(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind, rng = onnx.helper, onnx.TensorProto.FLOAT, np.random.default_rng(0)
    values = [helper.make_tensor_value_info(name, kind, [1, 16, 6, 6]) for name in ("x", "y")]
    weight = rng.standard_normal((16, 16, 1, 1)).astype("float32")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Dropout", ["c"], ["d"]),
        helper.make_node("Sum", ["d", "x", "c"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [onnx.numpy_helper.from_array(weight, "w")])
    file = tmp_path / "sums.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(file))
    load_tvm()
    model = RELAX.load_model(FRONTENDS.get("file"), ModelRequest(source="file", name=str(file), importer="relax"))
    assert "imported by Relax itself" in model.notes
    data = rng.standard_normal((1, 16, 6, 6)).astype("float32")
    expected = 2 * np.einsum("oi,bihw->bohw", weight[:, :, 0, 0], data) + data
    np.testing.assert_allclose(outputs_of(model, {"x": data})[0], expected, atol=1e-4)


def test_what_relax_s_own_importer_refuses_is_written_in_another_way(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    values = [helper.make_tensor_value_info(name, kind, shape) for name, shape in (("x", [1, 2, 4, 4]), ("y", None))]
    nodes = [
        helper.make_node("Constant", [], ["scales"], value_floats=[2.0]),
        helper.make_node("Constant", [], ["low"], value_float=0.5),
        helper.make_node("Resize", ["x", "", "scales"], ["wide"], mode="nearest", axes=[3]),
        helper.make_node("Clip", ["wide", "low"], ["y"]),
    ]
    file = tmp_path / "wide.onnx"
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(file))
    load_tvm()
    model = RELAX.load_model(FRONTENDS.get("file"), ModelRequest(source="file", name=str(file), importer="relax"))
    data = np.random.default_rng(0).random((1, 2, 4, 4), "float32")
    expected = np.maximum(data.repeat(2, axis=3), 0.5)
    np.testing.assert_allclose(outputs_of(model, {"x": data})[0], expected)


def test_an_own_import_needs_every_size(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    shapes = {"x": ["N", 8], "b": ["M", 8], "y": None}
    values = [helper.make_tensor_value_info(name, kind, shape) for name, shape in shapes.items()]
    graph = helper.make_graph([helper.make_node("Add", ["x", "b"], ["y"])], "g", values[:2], values[2:])
    file = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(file))
    load_tvm()
    with pytest.raises(ModelError, match=r"input b has the dynamic shape \(None, 8\); .*--inputshape"):
        RELAX.load_model(FRONTENDS.get("file"), ModelRequest(source="file", name=str(file), importer="relax"))


def test_a_fingerprint_is_the_same_in_a_process_that_has_not_got_this_tvm() -> None:
    request = ModelRequest(source="local", name="mlp")
    here = FRONTENDS.get("local").fingerprint(request)
    load_tvm()
    code = f"from op_profiler.frontends import FRONTENDS; from op_profiler.frontends.frontend import ModelRequest; \
print(FRONTENDS.get('local').fingerprint({request!r}))"
    path = tvm_package.without(os.environ["PYTHONPATH"])
    environment = {**os.environ, "PYTHONPATH": path, "OP_PROFILER_COMPILER": "relax"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == here == FRONTENDS.get("local").fingerprint(request)


def test_what_neither_imports_is_named(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    values = [helper.make_tensor_value_info(name, kind, [1, 8]) for name in ("x", "y")]
    node = helper.make_node("Nothing", ["x"], ["y"], domain="of.mine")
    file = tmp_path / "nothing.onnx"
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("of.mine", 1)]
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=opsets), str(file))
    load_tvm()
    with pytest.raises(ModelError, match="no converter for of.mine::Nothing"):
        RELAX.load_model(FRONTENDS.get("file"), ModelRequest(source="file", name=str(file)))
