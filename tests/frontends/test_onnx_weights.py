"""Tensors of ONNX files: cut off, outside the folder, large; matrices of ones; inputs of free sizes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..command_line import op_profiler
from ..installed import needs

pytestmark = needs("onnx")


def _model(path: Path, nodes: Any, inputs: dict[str, Any], weights: dict[str, Any]) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    taken = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    held = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, path.stem, taken, made, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _product(path: Path, size: int, times: int = 1) -> Any:
    import numpy as np
    from onnx import helper

    rng, names = np.random.default_rng(0), ["x", *(f"x{place}" for place in range(1, times)), "y"]
    weights = [f"w{place}" for place in range(1, times)] + ["w"]
    nodes = [helper.make_node("MatMul", [names[i], weights[i]], [names[i + 1]]) for i in range(times)]
    given = {weight: rng.standard_normal((size, size), "float32") for weight in weights}
    return _model(path, nodes, {"x": [1, size]}, given)


def _load(path: Path, **fields: Any) -> Any:
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest

    return FRONTENDS.get("file").load(ModelRequest(source="file", name=str(path), **fields))


@pytest.mark.parametrize("size", [8, 64])  # a constant of the graph, and a weight
@pytest.mark.parametrize("left", [0, 100, None])
def test_a_file_beside_the_model_that_is_cut_off_names_the_tensor(size: int, left: int | None, tmp_path: Path) -> None:
    import onnx

    path = tmp_path / "m.onnx"
    onnx.save(_product(path, size), path, save_as_external_data=True, location="m.data", size_threshold=0)
    data = tmp_path / "m.data"
    if left is None:
        data.unlink()
    else:
        data.write_bytes(data.read_bytes()[:left])
    _refused(path, "'w'", "m.data")


@pytest.mark.parametrize("size", [8, 64])
@pytest.mark.parametrize("raw", [True, False])
def test_a_tensor_of_the_model_that_is_cut_off_is_named(size: int, raw: bool, tmp_path: Path) -> None:
    import onnx

    path = tmp_path / "m.onnx"
    model = _product(path, size)
    weight = model.graph.initializer[0]
    if raw:
        weight.raw_data = weight.raw_data[:100]
    else:
        weight.ClearField("raw_data")
        weight.float_data.extend([1.0] * 25)
    onnx.save(model, path)
    _refused(path, "'w'", "100 are there")


def test_data_outside_the_folder_of_the_model_is_not_read(tmp_path: Path) -> None:
    import onnx

    (tmp_path / "inner").mkdir()
    path = tmp_path / "inner" / "m.onnx"
    onnx.save(_product(path, 64), path, save_as_external_data=True, location="m.data", size_threshold=0)
    (tmp_path / "inner" / "m.data").rename(tmp_path / "m.data")
    model = onnx.load(path, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../m.data"
    onnx.save(model, path)
    _refused(path, "'w'", "outside")


def _refused(path: Path, *said: str) -> None:
    for command in (
        ["predict", path.name],
        ["collect", "--modelsource", "file", "--modelname", path.name, "--dry-run"],
    ):
        done = op_profiler(*command, folder=path.parent)
        assert done.returncode == 4 and all(one in done.stderr for one in said), done.stderr
        assert "Traceback" not in done.stderr


def _large_model(kind: str, folder: Path, size: int, times: int) -> Any:
    """The request for a model of `times` products with weights of `size` by `size`."""
    from op_profiler.frontends.frontend import ModelRequest

    path = folder / ("m.pt" if kind == "torch" else "m.onnx")
    request = ModelRequest(source="file", name=str(path))
    if kind == "torch":
        torch = pytest.importorskip("torch")
        layers = torch.nn.Sequential(*(torch.nn.Linear(size, size, bias=False) for _ in range(times)))
        torch.jit.save(torch.jit.trace(layers.eval(), torch.zeros(1, size)), path)
        return dataclasses.replace(request, input_names=("input",), input_shapes=((1, size),))
    onnx = pytest.importorskip("onnx")
    arguments = {"save_as_external_data": True, "location": "m.data"} if kind == "beside" else {}
    onnx.save(_product(path, size, times), path, **arguments)
    return request


@pytest.mark.parametrize("kind", ["inside", "beside", "torch"])
def test_a_large_model_is_built_within_two_and_a_half_times_its_weights(kind: str, tmp_path: Path) -> None:
    size, times = 2000, 24  # blocks that glibc keeps when they are freed, as it does up to 32 MB
    request = _large_model(kind, tmp_path, size, times)
    code = (
        "import gc, resource; from op_profiler.frontends.importers import onnx, torch, torch_files\n"
        "from op_profiler.frontends.lowered_cache import original_model\n"
        "from op_profiler.frontends.frontend import ModelRequest\n"
        "from op_profiler.compilers.relay.lower import compile_model\n"
        "from op_profiler.compilers.tvm_build import load_tvm\n"
        "from op_profiler.compilers.weight_files import return_freed_memory\n"
        "load_tvm(); import tvm.relay.frontend, onnx as library; onnx.load_onnx(); torch.load_torch()\n"
        "def now(): return int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize()\n"
        "def peak(): return int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) * 1024\n"
        "before = now()\n"
        f"model = original_model({request!r})\n"
        "lowered, target = peak() - before, tvm.target.Target('llvm')\n"
        "compiled = compile_model(model, target)\n"
        "built = peak() - before; del model, compiled; gc.collect(); return_freed_memory()\n"
        "print(lowered, built, now() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    lowered, built, left = (int(taken) / (4 * size * size * times) for taken in done.split())
    assert lowered < 2.5 and built < 2.5 and left < 0.5, (lowered, built, left)


def test_weights_are_transposed_when_they_are_read_once(tmp_path: Path) -> None:
    import numpy as np
    import onnx
    from onnx import helper

    weights = {name: np.random.default_rng(0).standard_normal((64, 64), "float32") for name in ("once", "twice")}
    nodes = [
        helper.make_node("MatMul", ["x", "once"], ["a"]),
        helper.make_node("MatMul", ["a", "twice"], ["b"]),
        helper.make_node("MatMul", ["b", "twice"], ["y"]),
    ]
    path = tmp_path / "m.onnx"
    onnx.save(_model(path, nodes, {"x": [2, 64]}, weights), path)
    model = _load(path)
    np.testing.assert_array_equal(model.params["once"].numpy(), weights["once"].T)
    np.testing.assert_array_equal(model.params["twice"].numpy(), weights["twice"])
    data = np.random.default_rng(1).standard_normal((2, 64), "float32")
    expected = data @ weights["once"] @ weights["twice"] @ weights["twice"]
    np.testing.assert_allclose(_computed(model, data), expected, rtol=1e-3, atol=1e-2)


def _computed(model: Any, data: Any) -> Any:
    import tvm
    from tvm.contrib import graph_executor

    with tvm.transform.PassContext(opt_level=1):
        built = tvm.relay.build(model.mod, target="llvm", params=model.params)
    executor = graph_executor.GraphModule(built["default"](tvm.cpu()))
    executor.run(x=data)
    return executor.get_output(0).numpy()


@pytest.mark.parametrize("shift", [0, 2, 5, 6, 7, -3, -4, -100, -(10**12), 10**12])
def test_a_shifted_diagonal_has_the_values_of_onnx(shift: int, tmp_path: Path) -> None:
    import numpy as np
    import onnx
    from onnx import helper

    nodes = [helper.make_node("EyeLike", ["x"], ["e"], k=shift), helper.make_node("Add", ["x", "e"], ["y"])]
    path = tmp_path / "m.onnx"
    onnx.save(_model(path, nodes, {"x": [4, 6]}, {}), path)
    data = np.random.default_rng(0).standard_normal((4, 6), "float32")
    wanted = data + np.eye(4, 6, max(min(shift, 6), -4))
    np.testing.assert_allclose(_computed(_load(path), data), wanted, rtol=1e-6, atol=1e-6)


def test_free_dimensions_are_named_with_the_option_that_fixes_them(tmp_path: Path) -> None:
    import onnx
    from onnx import helper

    path = tmp_path / "m.onnx"
    nodes = [helper.make_node("Mul", ["a", "s"], ["c"]), helper.make_node("MatMul", ["c", "b"], ["y"])]
    onnx.save(_model(path, nodes, {"a": [1, "n", 8], "b": [8, "m"], "s": []}, {}), path)
    done = op_profiler("predict", path.name, folder=tmp_path)
    assert done.returncode == 4
    assert "'a' (1, ?, 8)" in done.stderr and "--inputshape 'a:1,SIZE,8;b:8,SIZE'" in done.stderr
    for shapes in ("a:1,4,8;b:8,2;s:", "1,4,8;8,2;", "s: ;b:8x2;a:[1,4,8]", "1,4,8;8,2;()"):
        done = op_profiler("predict", path.name, "--inputshape", shapes, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    for shapes in ("a:1,4,8;8,2", "a:1,4,8;nothing:2", ":1,4,8", "a:,"):
        done = op_profiler("predict", path.name, "--inputshape", shapes, folder=tmp_path)
        assert done.returncode == 2 and "--inputshape" in done.stderr or "no input" in done.stderr, done.stderr
