"""Operators as the compiler emits them: what they are called, what they cost, and what identifies them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relay import lower
from op_profiler.compilers.relay.extract import describe
from op_profiler.compilers.relay.graph_executor import load_graph
from op_profiler.compilers.relay.lower import compile_model, optimize
from op_profiler.compilers.relay.rebuilt import relay_function
from op_profiler.errors import ModelError
from op_profiler.operators.operator import Operator


def _function(tvm: Any, expression: Any, parameters: list[Any]) -> Any:
    module = tvm.IRModule.from_expr(tvm.relay.Function(parameters, expression))
    return tvm.relay.transform.InferType()(module)["main"]


def test_every_kernel_of_the_graph_has_its_operator(compiled_small: Any) -> None:
    graph = json.loads(compiled_small.library.get_graph_json())
    labels = [n["attrs"]["hash"] for n in graph["nodes"] if n["op"] == "tvm_op" and n["attrs"]["func_name"] != "__nop"]
    assert labels and set(labels) <= set(compiled_small.by_label)
    assert sorted(labels) == sorted(o.label for o in compiled_small.occurrences)


def test_fusing_alone_finds_the_operators_of_a_build(small_network: Any, target: Any, compiled_small: Any) -> None:
    fused = [o.operator.key for o in optimize(small_network, target)]
    built = [o.operator.key for o in compiled_small.occurrences]
    assert sorted(fused) == sorted(built)


def test_networks_of_many_convolutions_are_lowered_to_the_same_operators(
    tvm: Any, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a pass that takes too long for them; a padding of its own, as nasnet has it, stays one either way."""
    relay = tvm.relay
    x, w = relay.var("x", shape=(1, 16, 14, 14)), relay.var("w", shape=(16, 16, 3, 3))
    padded = relay.nn.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    network = relay.nn.relu(relay.nn.conv2d(padded, w, channels=16, kernel_size=(3, 3)))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x, w], network)))
    weights = {"w": tvm.nd.array(np.ones((16, 16, 3, 3), "float32"))}
    model = ImportedModel("padded", "test", module, weights, (InputSpec("x", (1, 16, 14, 14)),))
    usual = [o.operator.key for o in optimize(model, target)]
    monkeypatch.setattr(lower, "_MOST_CONVOLUTIONS", 0)
    assert [o.operator.key for o in optimize(model, target)] == usual
    compiled = compile_model(model, target)
    assert [o.operator.key for o in compiled.occurrences] == usual
    assert compiled.left_out == ("SimplifyExpr",)
    assert "convolutions" in compiled.notes[0]


def test_kernels_whose_debug_information_llvm_refuses_are_built_without_it(tvm: Any, target: Any) -> None:
    relay = tvm.relay
    x = relay.var("x", shape=(1, 6, 6, 8))
    resized = relay.image.resize2d(
        x, size=(12, 12), layout="NHWC", method="linear", coordinate_transformation_mode="half_pixel"
    )
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], resized)))
    compiled = compile_model(ImportedModel("resize", "test", module, {}, (InputSpec("x", (1, 6, 6, 8)),)), target)
    assert [o.operator.anchor for o in compiled.occurrences] == ["image.resize2d"]
    assert compiled.left_out == ("tir.CommonSubexprElim",)
    data = np.arange(6 * 6 * 8, dtype="float32").reshape(1, 6, 6, 8)
    (found,) = load_graph(compiled, tvm.cpu(), {"x": data}).output_arrays()
    assert found.shape == (1, 12, 12, 8)
    np.testing.assert_allclose(found[0, 1:-1:2, 1:-1:2].mean(), found[0, 1:-1, 1:-1].mean(), rtol=0.1)
    np.testing.assert_array_equal(found[0, 0, 0], data[0, 0, 0])


def test_convolutions_are_anchors_and_their_flops_add_up(compiled_small: Any) -> None:
    convolutions = [o.operator for o in compiled_small.occurrences if "conv2d" in o.operator.anchor]
    expected = 2 * 16 * 16 * 9 * (32 * 32 + 32 * 32 + 16 * 16)
    relu = 2 * 16 * 32 * 32
    assert len(convolutions) == 3
    assert sum(o.flops for o in convolutions) == expected + relu


def test_key_does_not_depend_on_the_name_and_does_on_the_structure(compiled_small: Any) -> None:
    operator = compiled_small.occurrences[0].operator
    assert dataclasses.replace(operator, name="another").key == operator.key
    assert dataclasses.replace(operator, structure="another").key != operator.key
    assert dataclasses.replace(operator, flops=1).key == operator.key


@pytest.mark.parametrize(
    ("op", "dtype", "first"),
    [
        *(("power", "float32", first) for first in (False, True)),
        *((op, "float32", False) for op in ("mod", "floor_mod")),
        *((op, dtype, False) for op in ("divide", "floor_divide", "mod", "floor_mod") for dtype in ("int32", "int64")),
    ],
)
def test_a_constant_that_decides_the_code_is_in_the_key(tvm: Any, op: str, dtype: str, first: bool) -> None:
    """A power by 2 is a product, by 3 a call; a division of whole numbers by 7 is a wide product, by 8 a shift."""
    found = [_with_constant(tvm, op, dtype, value, first) for value in (2, 3, 7, 8)]
    assert len({one.key for one in found}) == 4
    for one in found:
        assert describe(relay_function(one), (False,)).key == one.key


@pytest.mark.parametrize(
    ("op", "key"),
    [
        ("add", "108d5c39ca6d354b"),
        ("multiply", "9e7d078dad761155"),
        ("divide", "2b5389d74c43887c"),
        ("maximum", "bfda41bbcede6086"),
        ("less", "f9afc8d7f9b73871"),
    ],
)
def test_a_constant_that_decides_nothing_leaves_the_key_as_it_was(tvm: Any, op: str, key: str) -> None:
    assert {_with_constant(tvm, op, "float32", value).key for value in (0.5, 3.0, 7.5, -2.0)} == {key}


def _with_constant(tvm: Any, op: str, dtype: str, value: float, first: bool = False) -> Operator:
    relay = tvm.relay
    x = relay.var("x", shape=(64, 64), dtype=dtype)
    arguments = [x, relay.const(value, dtype)]
    return describe(_function(tvm, getattr(relay, op)(*arguments[:: -1 if first else 1]), [x]), (False,))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("conv2d", 2 * 8 * 14 * 14 * 4 * 9), ("depthwise", 2 * 4 * 14 * 14 * 9), ("grouped", 2 * 8 * 14 * 14 * 2 * 9)],
)
def test_flops_of_convolutions(tvm: Any, kind: str, expected: int) -> None:
    relay = tvm.relay
    groups = {"conv2d": 1, "depthwise": 4, "grouped": 2}[kind]
    channels = 4 if kind == "depthwise" else 8
    x = relay.var("x", shape=(1, 4, 16, 16))
    w = relay.var("w", shape=(channels, 4 // groups, 3, 3))
    conv = relay.nn.conv2d(x, w, groups=groups, channels=channels, kernel_size=(3, 3))
    assert describe(_function(tvm, conv, [x, w]), (False, True)).flops == expected


def test_flops_of_matrix_products_and_transposed_convolution(tvm: Any) -> None:
    relay = tvm.relay
    x, w = relay.var("x", shape=(5, 7)), relay.var("w", shape=(3, 7))
    assert describe(_function(tvm, relay.nn.dense(x, w), [x, w]), (False, True)).flops == 2 * 5 * 7 * 3
    a, b = relay.var("a", shape=(2, 5, 7)), relay.var("b", shape=(2, 3, 7))
    assert describe(_function(tvm, relay.nn.batch_matmul(a, b), [a, b]), (False, False)).flops == 2 * 2 * 5 * 7 * 3
    d, k = relay.var("d", shape=(1, 4, 8, 8)), relay.var("k", shape=(4, 6, 2, 2))
    up = relay.nn.conv2d_transpose(d, k, channels=6, kernel_size=(2, 2), strides=(2, 2))
    assert describe(_function(tvm, up, [d, k]), (False, True)).flops == 2 * 4 * 8 * 8 * 6 * 4


def test_a_table_look_up_reads_what_it_returns(tvm: Any) -> None:
    relay = tvm.relay
    table, index = relay.var("t", shape=(30000, 64)), relay.var("i", shape=(8,), dtype="int32")
    operator = describe(_function(tvm, relay.take(table, index, axis=0), [table, index]), (True, False))
    assert operator.bytes_read == 8 * 64 * 4 + 8 * 4
    assert operator.flops == 0


def test_of_a_tuple_what_is_taken_from_it_is_read(tvm: Any) -> None:
    relay = tvm.relay
    parts = relay.var("parts", type_annotation=relay.TupleType([relay.TensorType((4, width)) for width in (8, 16, 32)]))
    other = relay.var("other", shape=(4, 16))
    operator = describe(_function(tvm, relay.add(other, relay.TupleGetItem(parts, 1)), [other, parts]), (False, False))
    assert [tensor.shape for tensor in operator.inputs] == [(4, 16), (4, 8), (4, 16), (4, 32)]
    assert [tensor.shape for tensor in operator.inputs_read] == [(4, 16), (4, 16)]
    assert operator.bytes_read == 2 * 4 * 16 * 4


def test_slices_read_what_they_return_together(tvm: Any) -> None:
    relay = tvm.relay
    x = relay.var("x", shape=(4, 64))
    halves = [relay.strided_slice(x, [0, first], [4, first + 32]) for first in (0, 32)]
    halved = describe(_function(tvm, halves[0] + halves[1], [x]), (False,))
    one = describe(_function(tvm, relay.nn.relu(halves[0]), [x]), (False,))
    whole = describe(_function(tvm, x + relay.concatenate(halves, axis=1), [x]), (False,))
    assert (halved.bytes_read, one.bytes_read, whole.bytes_read) == (4 * 64 * 4, 4 * 32 * 4, 4 * 64 * 4)


def test_weights_and_activations_are_told_apart(compiled_small: Any) -> None:
    dense = next(o.operator for o in compiled_small.occurrences if "dense" in o.operator.anchor)
    assert len(dense.params) == 1 and len(dense.inputs) == 1


def test_a_model_that_does_not_compile_names_the_reason(broken_network: Any, target: Any) -> None:
    with pytest.raises(ModelError, match=r"broken does not compile: only support groups == 1"):
        compile_model(broken_network, target)
