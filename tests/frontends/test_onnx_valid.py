"""ONNX that is valid and that TVM's importer alone refuses or takes for something else: compared with onnxruntime."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.errors import ModelError

from ..installed import needs
from .conftest import Run
from .test_onnx import load, node

pytestmark = needs("onnx", "onnxruntime")
RNG = np.random.default_rng(0)
TEXTS_OF_TVM = ("Check failed", "Var(", "NoneType", "KeyError", "No module named", "Traceback")


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def write(
    path: Path,
    nodes: Sequence[Any],
    inputs: Mapping[str, np.ndarray],
    constants: Mapping[str, Any] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
) -> str:
    """A model whose inputs are of the types of `inputs`, and whose outputs are of any type; its path."""
    import onnx
    from onnx import helper, numpy_helper

    given = [(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()]
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info(*one) for one in given],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return str(path)


def computed(path: str, inputs: Mapping[str, np.ndarray]) -> list[Any]:
    """What onnxruntime computes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    made: list[Any] = session.run(None, dict(inputs))
    return made


def check(run: Run, path: str, inputs: Mapping[str, np.ndarray]) -> Any:
    """The model computes what onnxruntime computes; the model."""
    expected = computed(path, inputs)
    model = load(path)
    made = run(model, {name: array for name, array in inputs.items() if name in {spec.name for spec in model.inputs}})
    assert [one.shape for one in made] == [np.shape(one) for one in expected]
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_allclose(
            one, other, rtol=3e-3 if one.dtype == np.float16 else 1e-4, atol=1e-3 if one.dtype == np.float16 else 1e-5
        )
    return model


def windows() -> Iterator[tuple[str, dict[str, Any], tuple[int, ...]]]:
    modes = ("SAME_UPPER", "SAME_LOWER", "VALID")
    sizes = {1: (9,), 2: (8, 9), 3: (5, 6, 7)}
    for kind, rank, mode in itertools.product(("Conv", "MaxPool", "AveragePool"), (1, 2, 3), modes):
        kernel = (3, 2, 3)[:rank]
        yield kind, {"auto_pad": mode, "kernel_shape": kernel, "strides": (2, 1, 2)[:rank]}, sizes[rank]
    for mode in modes:
        yield "Conv", {"auto_pad": mode}, (8, 9)
        yield "ConvTranspose", {"auto_pad": mode, "strides": (2, 3)}, (5, 6)
        yield "MaxPool", {"auto_pad": mode, "kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}, (8, 9)
    yield "ConvTranspose", {"output_shape": (10, 12), "strides": (2, 2)}, (5, 6)


@pytest.mark.parametrize(("kind", "attributes", "size"), windows())
def test_padding_that_is_left_to_calculate(
    kind: str, attributes: dict[str, Any], size: tuple[int, ...], tmp_path: Path, run: Run
) -> None:
    data = {"x": floats(1, 3, *size)}
    kernel = tuple(attributes.get("kernel_shape", (3, 2)))[: len(size)]
    shape = (3, 4, *kernel) if kind == "ConvTranspose" else (4, 3, *kernel)
    weights = {"w": floats(*shape)} if kind.startswith("Conv") else {}
    check(run, write(tmp_path / "x.onnx", [node(kind, ["x", *weights], **attributes)], data, weights), data)


def zero() -> np.ndarray:
    return np.array([[0, -1], [-2, 1]])


BYTES, SIGNED = np.arange(32, dtype="uint8").reshape(2, 16) * 7, (np.arange(128) - 60).astype("int8").reshape(16, 8)
HALF, NO, YES = np.float32(0.5), np.bool_(False), np.bool_(True)
X = {"x": floats(3, 4, 5)}
Case = tuple[list[Any], dict[str, np.ndarray], dict[str, Any], tuple[str, ...], int]


def case(
    nodes: list[Any],
    inputs: dict[str, np.ndarray],
    constants: dict[str, Any] | None = None,
    *outputs: str,
    opset: int = 18,
) -> Case:
    return nodes, inputs, constants or {}, outputs or ("y",), opset


def cases() -> dict[str, Case]:
    boxes = {"b": np.abs(floats(1, 6, 4)).cumsum(-1), "s": np.abs(floats(1, 2, 6))}
    quantized = [node("QuantizeLinear", ["x", "s"], ["q"]), node("DequantizeLinear", ["q", "s"])]
    return {
        "dropout 13": case([node("Dropout", ["x", "r"])], X, {"r": HALF}, opset=13),
        "dropout 12 in use": case([node("Dropout", ["x", "r", "t"])], X, {"r": HALF, "t": NO}, opset=12),
        "dropout with a mask": case([node("Dropout", ["x"], ["y", "m"])], X, None, "y", "m"),
        "no zero point": case(quantized, X, {"s": np.float32(0.02)}),
        "no zero point of rows": case(
            [node("QuantizeLinear", ["x", "s"], ["q"], axis=1), node("DequantizeLinear", ["q", "s"], axis=1)],
            X,
            {"s": np.abs(floats(4)) / 9},
        ),
        "scatter none": case(
            [node("ScatterND", ["x", "i", "u"], reduction="none")], X, {"i": np.array([[1]]), "u": floats(1, 4, 5)}
        ),
        "scatter elements none": case(
            [node("ScatterElements", ["x", "i", "u"], reduction="none", axis=0)],
            X,
            {"i": np.zeros((1, 4, 5), "int64"), "u": floats(1, 4, 5)},
        ),
        "the least": case([node("TopK", ["x", "k"], ["y", "i"], largest=0)], X, {"k": np.array([2])}, "y", "i"),
        "unsqueeze from behind": case([node("Unsqueeze", ["x", "a"])], X, {"a": np.array([0, -1])}),
        "unsqueeze out of order": case([node("Unsqueeze", ["x", "a"])], X, {"a": np.array([3, 0])}),
        "unsqueeze 11": case([node("Unsqueeze", ["x"], axes=[0, -1])], X, opset=11),
        "uint8 by int8": case([node("MatMulInteger", ["a", "w"])], {"a": BYTES}, {"w": SIGNED}),
        "uint8 by int8, zero points": case(
            [node("MatMulInteger", ["a", "w", "z", "v"])],
            {"a": BYTES},
            {"w": SIGNED, "z": np.uint8(11), "v": np.int8(-3)},
        ),
        "int8 by uint8": case(
            [node("MatMulInteger", ["a", "w", "z"])],
            {"a": SIGNED.T.copy()},
            {"w": BYTES.T.copy(), "z": np.int8(5)},
        ),
        "dynamic quantizer": case(
            [
                node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
                node("MatMulInteger", ["q", "w", "z"], ["m"]),
                node("Cast", ["m"], ["f"], to=1),
                node("Mul", ["f", "s"]),
            ],
            {"x": floats(3, 16)},
            {"w": SIGNED},
        ),
        "integer convolution": case(
            [node("ConvInteger", ["a", "w", "z"], pads=[1, 1, 1, 1])],
            {"a": BYTES.reshape(1, 2, 4, 4)},
            {"w": SIGNED.reshape(-1)[:36].reshape(2, 2, 3, 3), "z": np.uint8(7)},
        ),
        "gather from behind": case([node("GatherND", ["x", "i"])], X, {"i": zero()}),
        "gather from behind at run time": case([node("GatherND", ["x", "i"])], X | {"i": zero()}),
        "gather in batches from behind": case(
            [node("GatherND", ["x", "i"], batch_dims=1)], X | {"i": np.array([[-1], [0], [-4]])}
        ),
        "gather rows from behind": case([node("Gather", ["x", "i"], axis=1)], X | {"i": np.array([-1, 2])}),
        "gather elements from behind": case(
            [node("GatherElements", ["x", "i"], axis=2)], X | {"i": np.full((3, 4, 2), -2)}
        ),
        "scatter from behind": case(
            [node("ScatterND", ["x", "i", "u"])], X | {"i": np.array([[-1], [0]]), "u": floats(2, 4, 5)}
        ),
        "scatter elements from behind": case(
            [node("ScatterElements", ["x", "i", "u"], axis=1)], X | {"i": np.full((3, 1, 5), -1), "u": floats(3, 1, 5)}
        ),
        "global power of 3": case([node("GlobalLpPool", ["x"], p=3)], X),
        "power of 3": case([node("LpPool", ["x"], p=3, kernel_shape=[2], strides=[2])], X),
        "power, padded": case([node("LpPool", ["x"], kernel_shape=[3], strides=[2], pads=[1, 1])], X),
        "power, rounded up": case(
            [node("LpPool", ["x"], p=1, kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1)], {"x": floats(1, 2, 5, 6)}
        ),
        "norm of halves": case(
            [node("BatchNormalization", ["x", "s", "b", "m", "v"])],
            {"x": floats(2, 3, 4).astype("float16")},
            {n: np.abs(floats(3)).astype("float16") + np.float16(0.5) for n in "sbmv"},
        ),
        "remainders": case(
            [node("Mod", ["a", "b"])],
            {"a": np.arange(-20, 44).reshape(4, 16), "b": np.full((4, 16), 7) * np.array([[1], [-1], [1], [-1]])},
        ),
        "remainders of constants": case(
            [node("Mod", ["a", "b"], ["m"]), node("Add", ["m", "x"])],
            {"x": np.arange(8)},
            {"a": np.arange(-4, 4), "b": np.array([3, -3] * 4)},
        ),
        "indices along an axis from behind": case(
            [node("Gather", ["x", "i"], axis=-1), node("GatherElements", ["x", "j"], ["z"], axis=-1)],
            {"x": floats(2, 5), "i": np.array([-1, 0]), "j": np.array([[-1, 0], [-5, 4]])},
            None,
            "y",
            "z",
        ),
        "least whole numbers": case(
            [node("TopK", ["a", "k"], ["y", "i"], largest=0), node("TopK", ["b", "k"], ["z", "j"], largest=0)],
            {"a": np.array([[5, -(2**63), 0, 7]]), "b": np.array([[5, 0, 200, 7]], "uint8")},
            {"k": np.array([2])},
            *"yizj",
        ),
        "a scale that leaves a fraction": case(
            [node("Resize", ["x", "", "s"], mode="linear")],
            {"x": floats(1, 2, 5, 7)},
            {"s": np.array([1, 1, 0.6, 1.3], "float32")},
        ),
        "windows of which the last begins outside": case(
            [
                node("MaxPool", ["x"], ["y"], kernel_shape=[3, 2], strides=[3, 3], ceil_mode=1),
                node("LpPool", ["x"], ["z"], kernel_shape=[3, 2], strides=[2, 3], ceil_mode=1, p=3),
            ],
            {"x": floats(1, 2, 6, 6)},
            None,
            "y",
            "z",
        ),
        "suppression": case([node("NonMaxSuppression", ["b", "s", "n"])], boxes, {"n": np.array([3])}),
    }


@pytest.mark.parametrize("name", cases())
def test_valid_forms(name: str, tmp_path: Path, run: Run) -> None:
    nodes, inputs, constants, outputs, opset = cases()[name]
    if name == "suppression":
        load(write(tmp_path / "x.onnx", nodes, inputs, constants, outputs, opset))  # its size is known at run time
        return
    check(run, write(tmp_path / "x.onnx", nodes, inputs, constants, outputs, opset), inputs)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_scales_that_leave_a_fraction_are_written_in_operators_that_compute_the_same(mode: str, tmp_path: Path) -> None:
    import onnx

    from op_profiler.frontends.importers.onnx_resize import FractionalScales

    places = ("half_pixel", "pytorch_half_pixel", "asymmetric", "half_pixel_symmetric")
    options: list[dict[str, Any]] = [{"coordinate_transformation_mode": place} for place in places]
    options += [{"nearest_mode": rounding} for rounding in ("floor", "ceil", "round_prefer_ceil") if mode == "nearest"]
    options += [{"exclude_outside": 1, "cubic_coeff_a": -0.5}] if mode == "cubic" else []
    outputs = [f"y{at}" for at in range(2 * len(options))]
    nodes = [
        node("Resize", ["x", "", scales], [outputs[2 * at + place]], mode=mode, **given)
        for at, given in enumerate(options)
        for place, scales in enumerate(("more", "mixed"))
    ]
    data = {"x": floats(1, 2, 5, 7)}
    scales = {"more": np.array([1, 1, 1.3, 1.3], "float32"), "mixed": np.array([1, 1, 0.6, 1.7], "float32")}
    path = write(tmp_path / "x.onnx", nodes, data, scales, outputs, opset=19)
    model = onnx.load(path)
    FractionalScales(model, {"x": data["x"].shape}, "m").spell_out()
    assert not any(one.op_type == "Resize" for one in model.graph.node)
    onnx.save(model, tmp_path / "rewritten.onnx")
    for one, other in zip(computed(str(tmp_path / "rewritten.onnx"), data), computed(path, data), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


THRESHOLDS = {"i": np.array([0.5], "float32"), "t": np.array([0.1], "float32")}


@pytest.mark.parametrize("count", range(3))
def test_suppression_with_thresholds_that_are_left_out(count: int, tmp_path: Path, tvm: Any) -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3], [2, 2, 3.1, 3], [5, 5, 6, 6]]], "float32")
    data = {"b": boxes, "s": np.array([[[0.5, -0.2, 0.9, 0.3, -0.7]]], "float32")}
    constants = {"n": np.array([3]), **dict(list(THRESHOLDS.items())[:count])}
    path = write(tmp_path / "x.onnx", [node("NonMaxSuppression", [*data, *constants])], data, constants)
    expected = computed(path, data)[0]
    model = load(path)
    made = tvm.relay.create_executor("vm", mod=model.mod, target="llvm").evaluate()(*data.values(), **model.params)
    np.testing.assert_array_equal(made.numpy(), expected)


def body(
    nodes: Sequence[Any],
    inputs: Sequence[tuple[str, int, Sequence[int] | None]],
    outputs: Sequence[str],
    *constants: Any,
) -> Any:
    import onnx
    from onnx import helper

    given = [helper.make_tensor_value_info(*one) for one in inputs]
    return helper.make_graph(
        list(nodes), "body", given, [onnx.ValueInfoProto(name=n) for n in outputs], list(constants)
    )


def test_a_branch_that_is_known_is_all_that_is_left(tmp_path: Path, run: Run) -> None:
    inner = node("If", ["no"], ["z"], then_branch=body([node("Exp", ["r"], ["a"])], [], ["a"]),
                 else_branch=body([node("Neg", ["r"], ["a"])], [], ["a"]))  # fmt: skip
    choice = node(
        "If",
        ["yes"],
        ["c"],
        then_branch=body([inner], [], ["z"]),
        else_branch=body([node("Squeeze", ["r", "zero"], ["z"])], [], ["z"]),
    )
    nodes = [node("Relu", ["x"], ["r"]), choice, node("Abs", ["c"])]
    data = {"x": floats(1, 3, 2)}
    check(run, write(tmp_path / "x.onnx", nodes, data, {"yes": YES, "no": NO, "zero": np.array([0])}), data)


def loop(count: str, size: int, *, ends: bool = False) -> list[Any]:
    """``x = relu(x) @ w + i`` some times; all steps are an output, too."""
    goes_on = node("Less", ["i", "two"], ["co"]) if ends else node("Identity", ["ci"], ["co"])
    steps = body(
        [
            goes_on,
            node("MatMul", ["a", "w"], ["m"]),
            node("Cast", ["i"], ["f"], to=1),
            node("Add", ["m", "f"], ["o"]),
            node("Identity", ["o"], ["s"]),
        ],
        [("i", 7, []), ("ci", 9, []), ("a", 1, [4, size])],
        ["co", "o", "s"],
    )
    return [node("Relu", ["x"], ["x0"]), node("Loop", [count, "t", "x0"], ["y", "all"], body=steps)]


@pytest.mark.parametrize("size", [30, 32], ids=["small weights", "weights of 1,024"])
def test_a_loop_of_known_steps_is_written_out(size: int, tmp_path: Path, run: Run) -> None:
    data, constants = {"x": floats(4, size)}, {"n": np.int64(3), "t": YES, "w": floats(size, size) / 6}
    path = write(tmp_path / "x.onnx", loop("n", size), data, constants, ("y", "all"))
    model = check(run, path, data)
    assert "loops of 3 steps are written out step by step" in model.notes


def test_a_loop_that_ends_by_its_counter_is_written_out(tmp_path: Path, run: Run) -> None:
    data, constants = {"x": floats(4, 32)}, {"n": np.int64(9), "t": YES, "w": floats(32, 32) / 6, "two": np.int64(2)}
    path = write(tmp_path / "x.onnx", loop("n", 32, ends=True), data, constants, ("y", "all"))
    model = check(run, path, data)
    assert "loops of 3 steps are written out step by step" in model.notes


def test_a_loop_that_only_run_time_ends_is_imported(tmp_path: Path) -> None:
    data, constants = {"x": floats(4, 32), "n": np.array(3)}, {"t": YES, "w": floats(32, 32), "two": np.int64(2)}
    model = load(write(tmp_path / "m.onnx", loop("n", 32), data, constants, ("y", "all")))
    assert not any("written out" in note for note in model.notes)


@pytest.mark.parametrize("backward", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_scan_is_written_out(axis: int, backward: int, tmp_path: Path, run: Run) -> None:
    steps = body(
        [node("Add", ["s", "p"], ["t"]), node("Mul", ["t", "w"], ["o"]), node("Identity", ["t"], ["u"])],
        [("s", 1, None), ("p", 1, None)],
        ["t", "o"],
    )
    given = {
        "num_scan_inputs": 1,
        "scan_input_axes": [axis],
        "scan_output_axes": [axis],
        "scan_input_directions": [backward],
        "scan_output_directions": [backward],
    }
    data = {"b": floats(4), "x": floats(3, 4) if axis == 0 else floats(4, 3)}
    path = write(
        tmp_path / "x.onnx",
        [node("Scan", ["b", "x"], ["e", "y"], body=steps, **given)],
        data,
        {"w": floats(4)},
        ("e", "y"),
    )
    check(run, path, data)


def test_branches_that_read_an_input_of_the_model(tmp_path: Path) -> None:
    choice = node(
        "If",
        ["c"],
        ["y"],
        then_branch=body([node("Relu", ["x"], ["z"])], [], ["z"]),
        else_branch=body([node("Exp", ["x"], ["z"])], [], ["z"]),
    )
    data = {"x": floats(2, 3), "k": np.array(1)}
    model = load(write(tmp_path / "x.onnx", [node("Equal", ["k", "one"], ["c"]), choice], data, {"one": np.int64(1)}))
    assert sorted(spec.name for spec in model.inputs) == ["k", "x"]


REFUSED: dict[str, Case] = {
    "pool padded by less than nothing": case(
        [node("MaxPool", ["x"], kernel_shape=[2], pads=[-1, 0])], {"x": floats(1, 2, 8)}
    ),
    "convolution padded by less than nothing": case(
        [node("Conv", ["x", "w"], pads=[-1, 0])], {"x": floats(1, 2, 8)}, {"w": floats(3, 2, 2)}
    ),
    "zero point of a shape that is not known": case([node("QuantizeLinear", ["x", "s"])], X | {"s": floats(0)}),
    "unknown operator": case([node("Det", ["x"])], {"x": floats(3, 3)}),
    "training": case([node("Dropout", ["x", "r", "t"])], X, {"r": HALF, "t": YES}),
    "uneven parts": case([node("Split", ["x"], ["y", "z"], num_outputs=2, axis=9)], X),
    "wrong type": case([node("Conv", ["x", "w"])], X, {"w": floats(4, 9, 3)}),
    "wrong rank": case([node("Gemm", ["x", "w"])], X, {"w": floats(5, 2)}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_refusal_has_the_text_of_tvm(name: str, tmp_path: Path) -> None:
    nodes, inputs, constants, outputs, opset = REFUSED[name]
    with pytest.raises(ModelError) as refused:
        load(write(tmp_path / "x.onnx", nodes, inputs, constants, outputs, opset))
    assert not any(text in str(refused.value) for text in TEXTS_OF_TVM), refused.value
