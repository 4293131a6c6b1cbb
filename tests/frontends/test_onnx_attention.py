"""Attention of ONNX and of com.microsoft, and other operators of com.microsoft, compute what onnxruntime computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.errors import ModelError
from op_profiler.frontends.importers.onnx_graph import dims_of

from ..installed import needs
from .conftest import Run
from .test_onnx import load, node
from .test_onnx_recurrent import compare, reference

pytestmark = needs("onnx", "onnxruntime")
MICROSOFT = "com.microsoft"


def floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


def write(
    path: Path,
    nodes: Sequence[Any],
    given: Mapping[str, Any],
    constants: Mapping[str, Any] | None = None,
    opset: int = 17,
) -> Path:
    """A model of everything that its nodes make and do not take."""
    import onnx
    from onnx import ValueInfoProto, helper, numpy_helper

    taken = {name for one in nodes for name in one.input}
    made = [name for one in nodes for name in one.output if name and name not in taken]
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
            for name, one in given.items()
        ],
        [ValueInfoProto(name=name) for name in made],
        [numpy_helper.from_array(np.asarray(one), name) for name, one in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def rewritten(path: Path) -> Path:
    """Write the model as TVM's importers get it."""
    import onnx

    from op_profiler.frontends.importers.onnx_attention import AttentionRepairs
    from op_profiler.frontends.importers.onnx_contrib import ContribRepairs

    model, to = onnx.load(path), path.with_name("rewritten.onnx")
    shapes = {one.name: dims_of(one) for one in model.graph.input}
    AttentionRepairs(model, shapes, "m").for_all()
    ContribRepairs(model, shapes, "m").for_all()
    onnx.save(model, to)
    return to


BATCH, QUERIES, KEYS, PAST, SIZE = 2, 4, 6, 3, 8
MASK = np.tri(QUERIES, KEYS, 1, dtype=bool)
VARIANTS: list[tuple[dict[str, Any], list[str], int]] = [
    ({}, [], 1),
    ({"scale": 0.3}, [], 1),
    ({"is_causal": 1}, [], 1),
    ({}, ["numbers"], 1),
    ({}, ["truths"], 1),
    ({"is_causal": 1}, ["numbers"], 1),
    ({"is_causal": 1}, ["truths"], 1),
    ({"softcap": 2.0}, ["numbers"], 1),
    ({"is_causal": 1}, ["", "past_key", "past_value"], 3),
    *(({"softcap": 2.0, "qk_matmul_output_mode": mode}, ["numbers"], 4) for mode in range(4)),
]
"""Attributes of ONNX's Attention, inputs behind the values, and how many outputs."""


def attention(batch: int, heads: int, flat: bool, path: Path, variants: Sequence[Any] = VARIANTS) -> dict[str, Any]:
    """Write one node a variant; what they are given."""
    shared = 2  # heads of keys and values
    shapes = {"q": (heads, QUERIES, SIZE), "k": (shared, KEYS, SIZE), "v": (shared, KEYS, SIZE)}
    given = {name: floats(batch, *shape) for name, shape in shapes.items()}
    counts = {}
    if flat:
        given = {name: one.swapaxes(1, 2).reshape(batch, one.shape[2], -1) for name, one in given.items()}
        counts = {"q_num_heads": heads, "kv_num_heads": shared}
    given |= {"numbers": floats(QUERIES, KEYS), "truths": MASK}
    given |= {name: floats(batch, shared, PAST, SIZE) for name in ("past_key", "past_value")}
    nodes = [
        node("Attention", ["q", "k", "v", *more], [f"y{index}_{at}" for at in range(count)], **counts, **attributes)
        for index, (attributes, more, count) in enumerate(variants)
    ]
    write(path, nodes, given, opset=23)
    return given


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("heads", [2, 4])
@pytest.mark.parametrize("flat", [False, True])
def test_attention_is_written_in_operators_that_compute_the_same(
    batch: int, heads: int, flat: bool, tmp_path: Path
) -> None:
    path = tmp_path / "x.onnx"
    given = attention(batch, heads, flat, path)
    compare(reference(rewritten(path), given), reference(path, given))


def test_tvm_computes_the_attention_of_onnx(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "x.onnx"
    given = attention(1, 4, False, path, [({"is_causal": 1}, ["truths"], 1)])
    compare(run(load(str(path)), given), reference(path, given))


LENGTH, WIDTH, HEADS = 5, 16, 4
MASKS = {
    "mask": np.array([[1] * LENGTH, [1, 1, 1, 0, 0]], "int32"),
    "square": np.tril(np.ones((BATCH, LENGTH, LENGTH), "int32")),
    "longer": np.array([[1] * (LENGTH + PAST), [1, 1, 1, 1, 0, 1, 1, 0]], "int32"),
}
OPTIONS: list[dict[str, Any]] = [{}, {"scale": 0.05}, {"scale": 0.5}, {"mask_filter_value": -5.0}]
INPUTS: list[tuple[list[str], int]] = [
    (["bias", "mask"], 1),
    (["bias"], 1),
    (["bias", "square"], 1),
    (["bias", "longer", "past"], 2),
    (["", "mask"], 1),
    (["bias", "mask", "", "scores"], 1),
]


def vendors_attention(path: Path, options: Sequence[dict[str, Any]], inputs: Sequence[Any]) -> dict[str, Any]:
    """Write com.microsoft's Attention with all pairs; what they are given."""
    given = MASKS | {"x": floats(BATCH, LENGTH, WIDTH), "scores": floats(1, HEADS, LENGTH, LENGTH)}
    given |= {"past": floats(2, BATCH, HEADS, PAST, WIDTH // HEADS)}
    constants = {"w": floats(WIDTH, 3 * WIDTH), "bias": floats(3 * WIDTH)}
    nodes: list[Any] = []
    for attributes in options:
        for more, count in inputs:
            made = [f"y{len(nodes)}_{at}" for at in range(count)]
            names = ["x", "w", *more]
            nodes.append(node("Attention", names, made, num_heads=HEADS, domain=MICROSOFT, **attributes))
    write(path, nodes, given, constants)
    return given


@pytest.mark.parametrize("unidirectional", [{}, {"unidirectional": 1}])
def test_a_vendors_attention_is_written_in_operators_that_compute_the_same(
    unidirectional: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "x.onnx"
    given = vendors_attention(path, [one | unidirectional for one in OPTIONS], INPUTS)
    compare(reference(rewritten(path), given), reference(path, given))


def test_tvm_computes_a_vendors_attention(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "x.onnx"
    options = [{}, {"scale": 0.05, "unidirectional": 1, "mask_filter_value": -5.0}]
    given = vendors_attention(path, options, INPUTS[:1])
    compare(run(load(str(path)), given), reference(path, given))


QUANTIZED = {"s": np.float32(0.02), "z": np.uint8(9), "w": np.arange(54, dtype="uint8").reshape(2, 3, 3, 3)}


def test_channels_last_of_quantized_operators(tmp_path: Path, run: Run) -> None:
    kinds: dict[str, tuple[list[str], dict[str, Any]]] = {
        "QLinearGlobalAveragePool": (["a", "s", "z", "s", "z"], {}),
        "QLinearAveragePool": (["a", "s", "z", "s", "z"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        "QLinearConv": (["a", "s", "z", "w", "s", "z", "s", "z"], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    }
    nodes = [
        node(kind, inputs, [f"{kind}_{last}"], channels_last=last, domain=MICROSOFT, **attributes)
        for kind, (inputs, attributes) in kinds.items()
        for last in ((1,) if kind == "QLinearConv" else (0, 1))
    ]
    image = np.random.default_rng(0).integers(0, 255, (2, 5, 5, 3)).astype("uint8")
    path = write(tmp_path / "x.onnx", nodes, {"a": image}, QUANTIZED)
    made, expected = run(load(str(path)), {"a": image}), reference(path, {"a": image})
    assert [one.shape for one in made] == [one.shape for one in expected]
    for one, other in zip(made, expected, strict=True):  # which round halves differently
        assert np.abs(one.astype(int) - other.astype(int)).max() <= 1


def test_defaults_of_quantized_activations(tmp_path: Path, run: Run) -> None:
    nodes = [
        node("QLinearLeakyRelu", ["a", "s", "z", "s", "z"], ["leaky"], domain=MICROSOFT),
        node("QLinearSoftmax", ["a", "s", "z", "s", "z"], ["soft"], domain=MICROSOFT, opset=13, axis=-1),
    ]
    data = np.arange(12, dtype="uint8").reshape(3, 4)
    path = write(tmp_path / "x.onnx", nodes, {"a": data}, QUANTIZED)
    compare(run(load(str(path)), {"a": data}), reference(path, {"a": data}))


def test_what_other_operators_of_a_vendor_leave_out(tmp_path: Path, run: Run) -> None:
    constants: dict[str, Any] = {
        "gamma": floats(WIDTH),
        "bias": floats(WIDTH),
        "s": np.float32(0.02),
        "z": np.uint8(99),
    }
    constants["w"] = np.random.default_rng(1).integers(0, 255, (WIDTH, 3 * WIDTH)).astype("uint8")
    constants["three"] = floats(3 * WIDTH)
    given = {"x": floats(2, LENGTH, WIDTH), "skip": floats(2, LENGTH, WIDTH) * 2}
    given["q"] = np.random.default_rng(2).integers(0, 255, (2, LENGTH, WIDTH)).astype("uint8")
    given["rows"] = given["q"][0]
    nodes = [
        node("SkipLayerNormalization", ["x", "skip", "gamma"], ["y0"], domain=MICROSOFT),
        node("SkipLayerNormalization", ["x", "skip", "gamma", "", "bias"], ["y1", "", "", "sum"], domain=MICROSOFT),
        node("QGemm", ["rows", "s", "z", "w", "s", "z"], ["y2"], domain=MICROSOFT),
        node(
            "QAttention",
            ["q", "w", "three", "s", "s", "", "z", "z"],
            ["y3"],
            num_heads=HEADS,
            scale=0.5,  # the usual one
            domain=MICROSOFT,
        ),
    ]
    path = write(tmp_path / "x.onnx", nodes, given, constants)
    compare(run(load(str(path)), given), reference(path, given))


@pytest.mark.parametrize(
    ("attributes", "inputs", "why"),
    [
        ({"do_rotary": 1}, ["x", "w", "b", "m"], "has do_rotary=1"),
        ({"scale": 0.05}, ["x", "w", "b", "ends"], "has a mask of other than two or three dimensions"),
    ],
)
def test_what_a_vendors_attention_cannot_be_is_refused(
    attributes: dict[str, Any], inputs: list[str], why: str, tmp_path: Path
) -> None:
    constants = {"w": floats(WIDTH, 3 * WIDTH), "b": floats(3 * WIDTH), "m": MASKS["mask"]}
    constants["ends"] = np.array([5, 3], "int32")
    nodes = [node("Attention", inputs, ["y"], num_heads=HEADS, domain=MICROSOFT, **attributes)]
    with pytest.raises(ModelError, match=why):
        load(str(write(tmp_path / "x.onnx", nodes, {"x": floats(BATCH, LENGTH, WIDTH)}, constants)))
