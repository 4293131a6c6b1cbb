"""ONNX that is valid, and that TVM's importers refuse or take for something else; and which inputs get a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.errors import ModelError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest

from ..installed import needs
from .conftest import Run

pytestmark = needs("onnx")
FLOATS = np.random.default_rng(0).standard_normal((2, 4, 6)).astype("float32")


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any) -> Any:
    from onnx import helper

    return helper.make_node(kind, inputs, outputs, **attributes)


def write(
    path: Path,
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[int | str | None]],
    constants: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
) -> str:
    """A model of floats; its path."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return str(path)


def load(path: str, **options: Any) -> Any:
    return FRONTENDS.get("file").load(ModelRequest(source="file", name=path, **options))


def check(run: Run, path: str, **arrays: Any) -> None:
    """The model computes what onnx computes."""
    from onnx.reference import ReferenceEvaluator

    made, expected = run(load(path), arrays), ReferenceEvaluator(path).run(None, arrays)
    assert [one.shape for one in made] == [np.shape(one) for one in expected]
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


HALF = np.float32(0.5)
CLIPS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "lowest": (["x", "low"], {"low": -HALF}),
    "highest": (["x", "", "high"], {"high": HALF}),
    "both": (["x", "low", "high"], {"low": -HALF, "high": HALF}),
    "neither": (["x"], {}),
}


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("case", CLIPS)
def test_a_clip_keeps_the_bound_that_it_has(case: str, opset: int, tmp_path: Path, run: Run) -> None:
    inputs, constants = CLIPS[case]
    check(run, write(tmp_path / "x.onnx", [node("Clip", inputs)], {"x": [2, 4, 6]}, constants, opset=opset), x=FLOATS)


@pytest.mark.parametrize("computed", ["low", "high"])
def test_a_clip_keeps_a_bound_that_is_computed(computed: str, tmp_path: Path, run: Run) -> None:
    constants = {"low": -HALF, "high": HALF}
    del constants[computed]
    path = write(tmp_path / "x.onnx", [node("Clip", ["x", "low", "high"])], {"x": [2, 4, 6], computed: []}, constants)
    check(run, path, x=FLOATS, **{computed: np.float32(0.1)})


def test_two_constant_bounds_stay_one_operator(tmp_path: Path) -> None:
    nodes = [node("Cast", ["six"], ["high"], to=1), node("Clip", ["x", "low", "high"])]
    path = write(tmp_path / "x.onnx", nodes, {"x": [2, 4, 6]}, {"low": -HALF, "six": np.int64(6)})
    assert load(path).mod["main"].body.op.name == "clip"


def test_a_clip_in_a_branch_keeps_its_bound(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    made = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 4, 6])]
    clip, same = node("Clip", ["x", "low"], ["z"]), node("Identity", ["x"], ["z"])
    branches = [helper.make_graph([one], "branch", [], made) for one in (clip, same)]
    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Cast", ["most"], ["is"], to=9),
        node("If", ["is"], then_branch=branches[0], else_branch=branches[1]),
    ]
    path = write(tmp_path / "x.onnx", nodes, {"x": [2, 4, 6]}, {"low": -HALF}, opset=13)
    assert "maximum" in str(load(path).mod)


@pytest.mark.parametrize(
    ("values", "use"),
    [
        ({"value_float": 2.5}, "Mul"),
        ({"value_floats": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}, "Mul"),
        ({"value_ints": [4, 12]}, "Reshape"),
        ({"value_int": 1}, "Gather"),
    ],
)
def test_constants_are_numbers_and_lists_too(values: dict[str, Any], use: str, tmp_path: Path, run: Run) -> None:
    nodes = [node("Constant", [], ["c"], **values), node(use, ["x", "c"])]
    check(run, write(tmp_path / "x.onnx", nodes, {"x": [2, 4, 6]}), x=FLOATS)


REDUCTIONS = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare"]


@pytest.mark.parametrize("axes", [[1], [-1, 0]])
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_reductions_are_over_all_axes_of_their_input(kind: str, axes: list[int], tmp_path: Path, run: Run) -> None:
    path = tmp_path / "x.onnx"
    write(path, [node(f"Reduce{kind}", ["x", "axes"], keepdims=0)], {"x": [2, 4, 6]}, {"axes": axes})
    check(run, str(path), x=np.abs(FLOATS))


def test_axes_may_be_made_from_constants(tmp_path: Path, run: Run) -> None:
    nodes = [node("Concat", ["one", "two"], ["axes"], axis=0), node("ReduceSum", ["x", "axes"])]
    check(run, write(tmp_path / "x.onnx", nodes, {"x": [2, 4, 6]}, {"one": [1], "two": [2]}), x=FLOATS)


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMax", "ReduceLogSumExp"])
def test_a_reduction_over_no_axis_may_do_nothing(kind: str, tmp_path: Path, run: Run) -> None:
    """Onnx's own evaluator reduces all axes by some of them, which its documents do not say."""
    for inputs in (["a"], ["a", "axes"]):
        nodes = [node("Abs", ["x"], ["a"]), node(kind, inputs, noop_with_empty_axes=1)]
        path = write(tmp_path / "x.onnx", nodes, {"x": [2, 4, 6]}, {"axes": np.zeros(0, "int64")})
        np.testing.assert_array_equal(run(load(path), {"x": FLOATS})[0], np.abs(FLOATS))


def test_a_reduction_over_no_axis_that_would_do_something_is_refused(tmp_path: Path) -> None:
    nodes = [node("ReduceL2", ["x"], noop_with_empty_axes=1)]
    with pytest.raises(ModelError, match="ReduceL2 reduces no axis"):
        load(write(tmp_path / "x.onnx", nodes, {"x": [2, 4, 6]}))


def test_axes_that_are_not_constant_are_refused(tmp_path: Path) -> None:
    nodes = [node("Cast", ["a"], ["axes"], to=7), node("ReduceSum", ["x", "axes"], name="sum")]
    path = write(tmp_path / "x.onnx", nodes, {"x": [2, 4, 6], "a": [2]})
    with pytest.raises(ModelError, match="ReduceSum sum has axes that are only known at run time"):
        load(path)


@pytest.mark.parametrize(("parts", "axis"), [(4, -1), (3, 1), (2, 0)])
def test_the_last_part_of_a_split_may_be_smaller(parts: int, axis: int, tmp_path: Path, run: Run) -> None:
    outputs = [f"y{place}" for place in range(parts)]
    nodes = [node("Relu", ["x"], ["r"]), node("Split", ["r"], outputs, num_outputs=parts, axis=axis)]
    path = write(tmp_path / "x.onnx", nodes, {"x": [2, 5, 7]}, outputs=outputs)
    check(run, path, x=np.arange(70, dtype="float32").reshape(2, 5, 7))


def test_a_split_into_more_parts_than_there_are_is_refused(tmp_path: Path) -> None:
    outputs = [f"y{place}" for place in range(4)]
    nodes = [node("Split", ["x"], outputs, num_outputs=4, axis=0)]
    with pytest.raises(ModelError, match="cannot divide 5 elements into 4 parts"):
        load(write(tmp_path / "x.onnx", nodes, {"x": [5, 8]}, outputs=outputs))


PADS: dict[str, tuple[list[int], list[int]]] = {
    "one": ([1, 2], [-1]),
    "all in another order": ([1, 2, 0, 3, 0, 0], [2, 1, 0]),
}


@pytest.mark.parametrize("mode", ["constant", "edge"])
@pytest.mark.parametrize("value", [False, True])
@pytest.mark.parametrize("case", PADS)
def test_pads_go_to_their_axes(case: str, value: bool, mode: str, tmp_path: Path, run: Run) -> None:
    pads, axes = PADS[case]
    nodes = [node("Pad", ["x", "pads", "value" if value else "", "axes"], mode=mode)]
    constants = {"pads": pads, "axes": axes, "value": HALF}
    check(run, write(tmp_path / "x.onnx", nodes, {"x": [2, 4, 6]}, constants), x=FLOATS)


@pytest.mark.parametrize(("pads", "axes"), [([1, 2, 3], [1]), ([1, 2], [7])])
def test_pads_that_do_not_fit_their_axes_are_refused(pads: list[int], axes: list[int], tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("Pad", ["x", "pads", "", "axes"], ["y"])]
    with pytest.raises(ModelError, match="does not lower: Pad"):
        load(write(tmp_path / "x.onnx", nodes, {"x": [2, 4, 6]}, {"pads": pads, "axes": axes}))


def test_pads_without_axes_keep_their_value(tmp_path: Path, run: Run) -> None:
    nodes = [node("Pad", ["x", "pads", "value", ""])]
    constants = {"pads": [0, 0, 1, 0, 2, 0], "value": HALF}
    check(run, write(tmp_path / "x.onnx", nodes, {"x": [2, 4, 6]}, constants), x=FLOATS)


@pytest.mark.parametrize(
    ("which", "values", "axes"),
    [
        ("scales", np.array([2, 3], "float32"), [2, 3]),
        ("scales", np.array([2], "float32"), [3]),
        ("sizes", [5, 8], [3, 2]),
    ],
)
def test_a_resize_is_along_its_axes(which: str, values: Any, axes: list[int], tmp_path: Path, run: Run) -> None:
    inputs = ["x", "", which] if which == "scales" else ["x", "", "", which]
    nodes = [node("Resize", inputs, mode="linear", axes=axes)]
    check(run, write(tmp_path / "x.onnx", nodes, {"x": [1, 2, 4, 6]}, {which: values}), x=FLOATS[None, :])


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"axes": [1, 2]}, "resizes one of the first two axes"),
        ({"keep_aspect_ratio_policy": "not_larger", "axes": [2, 3]}, "ignores keep_aspect_ratio_policy='not_larger'"),
    ],
)
def test_a_resize_that_tvm_does_not_do_is_refused(attributes: dict[str, Any], told: str, tmp_path: Path) -> None:
    nodes = [node("Resize", ["x", "", "", "sizes"], **attributes)]
    with pytest.raises(ModelError, match=told):
        load(write(tmp_path / "x.onnx", nodes, {"x": [1, 2, 4, 6]}, {"sizes": [8, 12]}))


def shapes_of(model: Any) -> dict[str, tuple[int | None, ...]]:
    return {spec.name: spec.shape for spec in model.inputs}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (["N", 8], ["N", 8], (4, 8)),
        ([None, 8], [None, 8], (4, 8)),
        ([1, 8], [1, 8], (4, 8)),
        (["N", 8], ["M", 8], (None, 8)),
        (["N", 8], [None, 8], (None, 8)),
        (["N", 8], [1, 8], (1, 8)),
        (["a_dynamic_axes_1", 8], ["b_dynamic_axes_1", 8], (4, 8)),  # as torch names what nobody named
    ],
)
def test_a_batch_goes_to_dimensions_of_the_same_name_and_size(
    first: list[int | str | None], second: list[int | str | None], expected: tuple[int | None, ...], tmp_path: Path
) -> None:
    nodes = [node("ReduceSum", ["b", "axes"], ["s"]), node("Add", ["a", "s"])]
    path = write(tmp_path / "x.onnx", nodes, {"a": first, "b": second}, {"axes": [0]})
    model = load(path, batch_size=4)
    assert shapes_of(model) == {"a": (4, 8), "b": expected} and model.batch_size == 4


def test_a_size_that_is_equal_by_chance_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "x.onnx", [node("MatMul", ["a", "b"])], {"a": [8, 8], "b": [8, 8]})
    with pytest.raises(ModelError, match=r"a \(2, 8\), b \(2, 8\): .*MatMul.* --inputname and --inputshape"):
        load(path, batch_size=2)
    model = load(path, batch_size=2, input_names=("b",), input_shapes=((8, 8),))
    assert shapes_of(model) == {"a": (2, 8), "b": (8, 8)}
    assert shapes_of(load(path)) == {"a": (8, 8), "b": (8, 8)}


def test_a_norm_as_in_training_is_refused(tmp_path: Path) -> None:
    """Importers take it for the norm of a trained model."""
    ones = dict.fromkeys("sbmv", np.ones(4, "float32"))
    norm = node("BatchNormalization", ["x", *"sbmv"], ["y", "means", "variances"], training_mode=1)
    path = write(tmp_path / "x.onnx", [norm], {"x": [2, 4, 5]}, ones)
    with pytest.raises(ModelError, match="converter of BatchNormalization ignores training_mode=1"):
        load(path)


def test_functions_of_a_model_are_written_in_place_of_their_calls(tmp_path: Path, run: Run) -> None:
    import onnx
    from onnx import helper

    body = [node("Mul", ["a", "a"], ["square"]), node("ReduceSum", ["square", "axes"], ["b"], keepdims=0)]
    opsets = [helper.make_opsetid("", 18)]
    function = helper.make_function("mine", "Squares", ["a", "axes"], ["b"], body, opsets)
    path = write(tmp_path / "x.onnx", [node("Squares", ["x", "axes"], domain="mine")], {"x": [2, 4, 6]}, {"axes": [1]})
    model = onnx.load(path)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("mine", 1))
    onnx.save(model, path)
    check(run, path, x=FLOATS)


def test_an_operator_of_another_vendor_is_not_taken_for_onnx_s_own(tmp_path: Path) -> None:
    import onnx
    from onnx import helper

    path = write(tmp_path / "x.onnx", [node("Relu", ["x"], domain="acme")], {"x": [2, 4, 6]})
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("acme", 1))
    onnx.save(model, path)
    with pytest.raises(ModelError, match="no converter for acme::Relu"):
        load(path)


def test_an_output_of_another_shape_than_onnx_tells_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from op_profiler.frontends.importers import onnx as importer

    path = write(tmp_path / "x.onnx", [node("Relu", ["x"])], {"x": [2, 4, 6]})
    monkeypatch.setattr(importer, "output_shapes", lambda module: [(2, 4, 1)])
    with pytest.raises(ModelError, match=r"output y became one of shape \(2, 4, 1\), which is \(2, 4, 6\) by ONNX"):
        load(path)
