"""LSTM, GRU and RNN of ONNX compute what onnxruntime computes, with every attribute and input that they have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.errors import ModelError
from op_profiler.frontends.importers.onnx_graph import dims_of

from ..installed import needs
from .conftest import Run
from .test_onnx import load, node

pytestmark = needs("onnx", "onnxruntime")

STEPS, BATCH, INPUTS, HIDDEN = 3, 3, 5, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
OUTPUTS = {"RNN": 2, "GRU": 2, "LSTM": 3}
ACTIVATIONS: dict[str, list[list[str]]] = {
    "RNN": [["Relu"], ["Affine"], ["ScaledTanh"], ["ThresholdedRelu"], ["Softplus"], ["Elu"], ["LeakyRelu"]],
    "GRU": [["HardSigmoid", "Softsign"], ["Sigmoid", "Relu"], ["Sigmoid", "Elu"]],
    "LSTM": [["HardSigmoid", "Tanh", "elu"], ["Sigmoid", "Relu", "Tanh"], ["HardSigmoid", "Affine", "LeakyRelu"]],
}
SCALED = {"Affine": 2, "ScaledTanh": 2, "HardSigmoid": 2, "ThresholdedRelu": 1, "Elu": 1, "elu": 1, "LeakyRelu": 1}
"""How many numbers an activation takes."""


def options_of(kind: str, direction: str) -> Iterator[dict[str, Any]]:
    """Attributes, and what is among the inputs."""
    count = DIRECTIONS[direction]
    yield from ({}, {"b": False}, {"state": True}, {"lengths": [3, 2, 0]}, {"lengths": [3, 3, 3]}, {"clip": 0.2})
    yield {"lengths": [3, 1, 2], "state": True, "run_time": True}
    yield {"clip": 0.1, "state": True, "b": False, "lengths": [1, 3, 2]}
    for names in ACTIVATIONS[kind]:
        given = {"activations": names * count}
        if not {"Affine", "ScaledTanh", "ThresholdedRelu"} & set(names):  # which have no defaults
            yield given
        numbers = sum(SCALED.get(name, 0) > 0 for name in names) * count
        others = sum(SCALED.get(name, 0) > 1 for name in names) * count
        if numbers:
            alphas = {"activation_alpha": [0.1 + 0.2 * at for at in range(numbers)]}
            betas = {"activation_beta": [0.6 - 0.1 * at for at in range(others)]}
            yield given | alphas | (betas if others else {})
    if kind == "GRU":
        yield from (
            {"linear_before_reset": 1} | one for one in ({}, {"clip": 0.1}, {"lengths": [3, 2, 1]}, {"b": False})
        )
    if kind == "LSTM":
        yield from ({"peepholes": True} | one for one in ({}, {"state": True, "clip": 0.3}, {"lengths": [2, 3, 1]}))
        yield from ({"input_forget": 1} | one for one in ({}, {"peepholes": True, "state": True}))


def network(kind: str, direction: str, cases: list[dict[str, Any]], path: Path, layout: int = 0) -> dict[str, Any]:
    """Write a model with one node a case; what it is given."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    numbers, count, gates = np.random.default_rng(0), DIRECTIONS[direction], GATES[kind]
    shapes = {
        "w": (count, gates * HIDDEN, INPUTS),
        "r": (count, gates * HIDDEN, HIDDEN),
        "b": (count, 2 * gates * HIDDEN),
        "state": (count, BATCH, HIDDEN),
        "cell": (count, BATCH, HIDDEN),
        "peepholes": (count, 3 * HIDDEN),
    }
    constants = {name: numbers.standard_normal(shape).astype("float32") / 2 for name, shape in shapes.items()}
    given = {"x": numbers.standard_normal((STEPS, BATCH, INPUTS)).astype("float32")}
    if layout:
        constants |= {name: constants[name].swapaxes(0, 1) for name in ("state", "cell")}
        given["x"] = given["x"].swapaxes(0, 1)
    nodes, outputs = [], []
    for index, case in enumerate(cases):
        options = dict(case)
        inputs = ["x", "w", "r", "b" if options.pop("b", True) else "", "", ""]
        if "lengths" in options:
            lengths = np.array(options.pop("lengths"), "int32")
            (given if options.pop("run_time", False) else constants)[f"lengths_{index}"] = lengths
            inputs[4] = f"lengths_{index}"
        has_state = options.pop("state", False)
        inputs[5] = "state" if has_state else ""
        if kind == "LSTM":
            inputs += ["cell" if has_state else "", "peepholes" if options.pop("peepholes", False) else ""]
        made = [f"y_{index}_{at}" for at in range(OUTPUTS[kind])]
        if layout:
            options["layout"] = 1
        if not layout or "clip" not in options:  # onnxruntime wants what ONNX leaves to the weights
            options["hidden_size"] = HIDDEN
        nodes.append(node(kind, inputs, made, direction=direction, **options))
        outputs += made
    kinds = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, kinds[str(one.dtype)], one.shape) for name, one in given.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.ascontiguousarray(one), name) for name, one in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return given


def reference(path: Path, given: dict[str, Any]) -> list[Any]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)  # it warns of constants that no node uses
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    made: list[Any] = session.run(None, given)
    return made


def rewritten(path: Path, to: Path) -> Path:
    """Write the model as TVM's importers get it."""
    import onnx

    from op_profiler.frontends.importers.onnx_recurrent import RecurrentRepairs

    model = onnx.load(path)
    RecurrentRepairs(model, {one.name: dims_of(one) for one in model.graph.input}, "m").for_all()
    onnx.save(model, to)
    return to


def compare(made: list[Any], expected: list[Any]) -> None:
    assert [np.shape(one) for one in made] == [np.shape(one) for one in expected]
    for one, other in zip(made, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", GATES)
def test_every_variant_is_written_in_operators_that_compute_the_same(kind: str, direction: str, tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    given = network(kind, direction, list(options_of(kind, direction)), path)
    compare(reference(rewritten(path, tmp_path / "rewritten.onnx"), given), reference(path, given))


@pytest.mark.parametrize("kind", GATES)
def test_a_layout_with_the_batch_in_front_is_the_other_one_transposed(kind: str, tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = [{}, {"state": True}, {"state": True, "clip": 0.1, "lengths": [3, 1, 2]}]
    usual, other = tmp_path / "usual.onnx", tmp_path / "other.onnx"
    given = network(kind, "bidirectional", cases, usual)
    expected = reference(usual, given)
    expected = [one.transpose(2, 0, 1, 3) if one.ndim == 4 else one.swapaxes(0, 1) for one in expected]
    given = network(kind, "bidirectional", cases, other, layout=1)
    compare(reference(rewritten(other, tmp_path / "rewritten.onnx"), given), expected)


END_TO_END: dict[str, list[dict[str, Any]]] = {
    "forward": [{"lengths": [3, 1, 2], "run_time": True, "clip": 0.1}],
    "reverse": [{}],
}


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", END_TO_END)
def test_tvm_computes_the_same(kind: str, direction: str, tmp_path: Path, run: Run) -> None:
    path = tmp_path / "x.onnx"
    given = network(kind, direction, END_TO_END[direction], path)
    compare(run(load(str(path)), given), reference(path, given))


@pytest.mark.parametrize(
    ("activations", "why"), [(["Affine"], "Affine has no defaults"), (["Step"], "has no activation Step")]
)
def test_an_activation_without_meaning_is_refused(activations: list[str], why: str, tmp_path: Path) -> None:
    network("RNN", "forward", [{"activations": activations}], tmp_path / "x.onnx")
    with pytest.raises(ModelError, match=why):
        load(str(tmp_path / "x.onnx"))
