"""TFLite files whose tensors have no names, or share one: TFLite tells them by their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.errors import ModelError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest

from ..installed import needs
from .conftest import Run
from .operator_sets.tflite_writer import TensorSpec, write

pytestmark = needs("tflite")
Shape = tuple[int, ...] | None  # None: no shape was written, as some writers do for scalars


def write_difference_times(path: Path, names: Sequence[str | None], second: Shape = (1, 4)) -> None:
    """``(a - b) * a``.

    Args:
        names: of a, b, the difference, and the product; None for one without.
        second: shape of b.
    """
    import flatbuffers
    import tflite

    made = flatbuffers.Builder(1024)

    def integers(*values: int) -> int:
        made.StartVector(4, len(values), 4)
        for value in reversed(values):
            made.PrependInt32(value)
        return int(made.EndVector())

    def tables(*offsets: int) -> int:
        made.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            made.PrependUOffsetTRelative(offset)
        return int(made.EndVector())

    def table(kind: str, **fields: int | None) -> int:
        getattr(tflite, f"{kind}Start")(made)
        for name, value in fields.items():
            if value is not None:
                getattr(tflite, f"{kind}Add{name}")(made, value)
        return int(getattr(tflite, f"{kind}End")(made))

    def tensor(name: str | None, shape: Shape) -> int:
        text = None if name is None else made.CreateString(name)
        sizes = None if shape is None else integers(*shape)
        return table("Tensor", Shape=sizes, Type=tflite.TensorType.FLOAT32, Name=text)

    def operator(code: int, kind: str, inputs: tuple[int, int], output: int) -> int:
        options = {"BuiltinOptions": table(kind), "BuiltinOptionsType": getattr(tflite.BuiltinOptions, kind)}
        return table("Operator", OpcodeIndex=code, Inputs=integers(*inputs), Outputs=integers(output), **options)

    shapes = [(1, 4), second, (1, 4), (1, 4)]
    graph = table(
        "SubGraph",
        Tensors=tables(*[tensor(name, shape) for name, shape in zip(names, shapes, strict=True)]),
        Inputs=integers(0, 1),
        Outputs=integers(3),
        Operators=tables(operator(0, "SubOptions", (0, 1), 2), operator(1, "MulOptions", (2, 0), 3)),
    )
    numbers = (tflite.BuiltinOperator.SUB, tflite.BuiltinOperator.MUL)
    codes = tables(*[table("OperatorCode", DeprecatedBuiltinCode=one, BuiltinCode=one, Version=1) for one in numbers])
    model = table("Model", Version=3, OperatorCodes=codes, Subgraphs=tables(graph), Buffers=tables(table("Buffer")))
    made.Finish(model, b"TFL3")
    path.write_bytes(bytes(made.Output()))


def load(path: Path, **options: Any) -> Any:
    return FRONTENDS.get("tflite").load(ModelRequest(source="tflite", name=str(path), **options))


@pytest.mark.parametrize(
    ("names", "inputs"),
    [
        (("a", "b", "difference", "product"), ["a", "b"]),
        ((None, None, None, None), ["input_0", "input_1"]),
        (("", "", "", ""), ["input_0", "input_1"]),
        (("a", "a", "a", "a"), ["a", "input_1"]),
        (("input_1", "", "tensor_3", ""), ["input_1", "input_1_"]),
    ],
)
@pytest.mark.parametrize("batch", [1, 3])
def test_tensors_are_told_apart(
    names: Sequence[str | None], inputs: list[str], batch: int, tmp_path: Path, run: Run
) -> None:
    write_difference_times(tmp_path / "net.tflite", names)
    model = load(tmp_path / "net.tflite", batch_size=batch)
    assert [(spec.name, spec.shape) for spec in model.inputs] == [(name, (batch, 4)) for name in inputs]
    rng = np.random.default_rng(0)
    first, second = (rng.standard_normal((batch, 4)).astype("float32") for _ in range(2))
    (made,) = run(model, dict(zip(inputs, (first, second), strict=True)))
    np.testing.assert_allclose(made, (first - second) * first, rtol=1e-5)


@pytest.mark.parametrize("shape", [None, ()])
def test_a_scalar_may_be_written_without_a_shape(shape: Shape, tmp_path: Path, run: Run) -> None:
    write_difference_times(tmp_path / "net.tflite", ("a", "b", "c", "d"), shape)
    model = load(tmp_path / "net.tflite")
    assert [(spec.name, spec.shape) for spec in model.inputs] == [("a", (1, 4)), ("b", ())]
    first = np.arange(4, dtype="float32")[None]
    (made,) = run(model, {"a": first, "b": np.float32(2)})
    np.testing.assert_allclose(made, (first - 2) * first)


def test_inputs_without_names_take_shapes_by_the_names_that_they_get(tmp_path: Path) -> None:
    write_difference_times(tmp_path / "net.tflite", ("", None, "c", "d"))
    model = load(tmp_path / "net.tflite", input_names=("input_0", "input_1"), input_shapes=((2, 4), (2, 4)))
    assert [spec.shape for spec in model.inputs] == [(2, 4), (2, 4)]


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    write_difference_times(tmp_path / "net.tflite", ("", "", "", ""))
    content = (tmp_path / "net.tflite").read_bytes()
    (tmp_path / "net.tflite").write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match="cannot be read as TFLite"):
        load(tmp_path / "net.tflite")


def test_a_weight_that_is_cut_off_is_named(tmp_path: Path) -> None:
    row, weight = TensorSpec((1, 4), "float32"), TensorSpec((4, 4), "float32", np.zeros(8))
    content = write("FULLY_CONNECTED", "FullyConnectedOptions", {}, [row, weight], [row])
    (tmp_path / "net.tflite").write_bytes(content)
    with pytest.raises(ModelError, match="tensor 'input_1' is incomplete: it needs 64 bytes, and 32 are there"):
        load(tmp_path / "net.tflite")


def test_a_custom_operator_is_refused_by_its_name(tmp_path: Path) -> None:
    row = TensorSpec((1, 4), "float32")
    (tmp_path / "net.tflite").write_bytes(write("MyOp", "", {}, [row], [row]))
    with pytest.raises(ModelError, match="no converter for MyOp"):
        load(tmp_path / "net.tflite")
