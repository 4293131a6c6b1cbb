"""A node is refused where TVM's converter never looks up an attribute or an input that it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.errors import ModelError

from ..installed import needs
from .conftest import Run
from .test_onnx import check, load, node, write
from .test_onnx_attention import MICROSOFT, floats
from .test_onnx_attention import write as write_typed

pytestmark = needs("onnx")


def normalization(output: str = "y", **attributes: Any) -> Any:
    return node("BatchNormalization", ["x", *["four"] * 4], [output], **attributes)


DATA = floats(2, 4, 6)
FOUR = {"four": np.arange(1, 5, dtype="float32")}


def test_attributes_that_are_not_the_default(tmp_path: Path) -> None:
    path = write(tmp_path / "x.onnx", [normalization(spatial=0)], {"x": [2, 4, 6]}, FOUR, opset=7)
    with pytest.raises(ModelError, match="converter of BatchNormalization ignores spatial=0"):
        load(path)


def test_attributes_that_are_the_default_or_change_nothing(tmp_path: Path, run: Run) -> None:
    path = write(tmp_path / "x.onnx", [normalization(spatial=1, momentum=0.3)], {"x": [2, 4, 6]}, FOUR, opset=7)
    mean = FOUR["four"][:, None]
    expected = (DATA - mean) / np.sqrt(mean + 1e-5) * mean + mean
    np.testing.assert_allclose(run(load(path), {"x": DATA})[0], expected, rtol=1e-4, atol=1e-5)


def test_attributes_inside_a_branch(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    made = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 4, 6])]
    branches = [helper.make_graph([normalization("z", spatial=at)], "branch", [], made) for at in (0, 1)]
    nodes = [
        node("Abs", ["x"], ["size"]),
        node("ReduceMax", ["size"], ["most"], keepdims=0),
        node("Cast", ["most"], ["is"], to=9),
        node("If", ["is"], then_branch=branches[0], else_branch=branches[1]),
    ]
    constants = FOUR | {"x": DATA}  # a branch that reads an input of the model does not lower
    path = write(tmp_path / "x.onnx", nodes, {"size_of": [1]}, constants, opset=7)
    with pytest.raises(ModelError, match="ignores spatial=0"):
        load(path)


def test_attributes_and_inputs_of_other_vendors(tmp_path: Path) -> None:
    weights = {"w": np.ones((8, 24), "uint8"), "b": floats(24), "s": np.float32(0.1), "m": np.ones((2, 3), "int32")}
    attention = node("QAttention", ["x", "w", "b", "s", "s", "m"], num_heads=2, scale=0.3, domain=MICROSOFT)
    path = write_typed(tmp_path / "x.onnx", [attention], {"x": np.ones((2, 3, 8), "uint8")}, weights)
    with pytest.raises(ModelError, match="converter of QAttention ignores scale=0.3"):
        load(str(path))
    path = write_typed(tmp_path / "x.onnx", [node("Gelu", ["x", "b"], domain=MICROSOFT)], {"x": DATA}, weights)
    with pytest.raises(ModelError, match="converter of Gelu ignores input 1"):
        load(str(path))


@pytest.mark.parametrize(("axis", "size"), [(0, 2), (1, 4), (2, 6)])
def test_an_axis_of_an_old_broadcast(axis: int, size: int, tmp_path: Path, run: Run) -> None:
    path = write(
        tmp_path / "x.onnx",
        [node("Add", ["x", "b"], broadcast=1, axis=axis)],
        {"x": [2, 4, 6]},
        {"b": floats(size)},
        opset=6,
    )
    shape = [size if at == axis else 1 for at in range(3)]
    np.testing.assert_allclose(run(load(path), {"x": DATA})[0], DATA + floats(size).reshape(shape), rtol=1e-5)


def test_the_order_of_places_that_no_output_has(tmp_path: Path, run: Run) -> None:
    pool = node("MaxPool", ["x"], kernel_shape=[2, 2], storage_order=1)
    path = write(tmp_path / "x.onnx", [pool], {"x": [1, 2, 4, 6]}, opset=12)
    check(run, path, x=floats(1, 2, 4, 6))


def test_what_counts_as_looked_up() -> None:
    from op_profiler.frontends.importers.onnx_unread import RecordingAttributes, RecordingInputs

    def after(recording: Any, look: Any) -> Any:
        look(recording)
        return recording.looked_up

    def new() -> Any:
        return RecordingAttributes({"a": 1, "b": 2})

    assert after(new(), lambda one: one.get("a")) == {"a"}
    assert after(new(), lambda one: dict(**one)) == {"a", "b"}
    assert after(new(), lambda one: list(one.items())) == {"a", "b"}
    assert after(new(), lambda one: [name for name in one.keys() if name == "x"]) == set()  # noqa: SIM118
    assert after(RecordingInputs(["x", "y", "z"]), lambda one: one[1]) == {1}
    assert after(RecordingInputs(["x", "y", "z"]), lambda one: one[1:]) == {1, 2}
    assert after(RecordingInputs(["x", "y", "z"]), lambda one: [*one]) == {0, 1, 2}
    assert after(RecordingInputs(["x", "y", "z"]), lambda one: one + ["w"]) == {0, 1, 2}
    assert after(RecordingInputs(["x", "y", "z"]), lambda one: one[-1]) == {2}
    assert RecordingInputs(["x"])[3] is None
