"""The loops of kernels, and operators made again from their description."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from op_profiler.collection.sampling.batches import operators_of_points
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.loop_nest import LoopNest
from op_profiler.compilers.relay.extract import describe
from op_profiler.compilers.relay.lower import fuse
from op_profiler.compilers.relay.read_kernel import read_kernel
from op_profiler.compilers.relay.rebuilt import relay_function
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError
from op_profiler.operators.kinds.convolutions import Conv2d, Conv2dTranspose
from op_profiler.operators.kinds.described import described
from op_profiler.operators.kinds.elementwise import Elementwise
from op_profiler.operators.kinds.norms import LayerNorm, Mean, Softmax
from op_profiler.operators.kinds.pooling import Pool2d
from op_profiler.operators.kinds.products import BatchMatmul, Dense
from op_profiler.operators.kinds.rearrangements import Concatenate, Transpose
from op_profiler.operators.operator import Operator
from op_profiler.targets.target import resolve_target

TARGET = "llvm -mcpu=skylake-avx512"


def nests_of(operator: Operator) -> tuple[LoopNest, ...]:
    load_tvm()
    return compiler_in_use().read_kernel(operator, resolve_target(TARGET)).nests


def reduction(nests: tuple[LoopNest, ...]) -> LoopNest:
    """The statement with most multiply-adds."""
    return max(nests, key=lambda n: n.operations.get("fma", 0) * math.prod(loop.extent for loop in n.loops))


def test_a_convolution_does_as_many_multiply_adds_as_it_has_to() -> None:
    operator = described(Conv2d(1, 32, 14, 14, 48, 3, 1, epilogue="bias_relu"))
    nest = reduction(nests_of(operator))
    assert 2 * math.prod(loop.extent for loop in nest.loops) == 2 * 48 * 14 * 14 * 32 * 9
    assert nest.loops[0].kind == "parallel"
    assert (nest.loops[-1].kind, nest.loops[-1].extent) == ("vectorized", 16)
    data, weight = (next(a for a in nest.accesses if a.elements == size) for size in (32 * 16 * 16, 48 * 32 * 9))
    assert weight.argument and not data.argument  # what is read is the padded copy
    assert weight.strides[-1] == 1 and data.strides[-1] == 0
    assert nest.accesses[-1].written


def test_rows_that_no_tile_divides_read_the_weights_once_a_row() -> None:
    rows = {n: reduction(nests_of(described(Dense(n, 64, 128, "bias")))) for n in (8, 197)}
    unrolled = {n: math.prod(loop.extent for loop in nest.loops if loop.kind == "unrolled") for n, nest in rows.items()}
    assert unrolled[197] == 1
    assert rows[197] != rows[8]


@pytest.mark.parametrize(("inner", "kind"), [(192, "vectorized"), (197, "serial")])
def test_lanes_that_a_condition_tells_apart_are_no_vector(inner: int, kind: str) -> None:
    """Of 16 places of a sum the last ones are behind its end: TVM computes them one by one."""
    nest = reduction(nests_of(described(BatchMatmul(2, 64, 64, inner))))
    (lanes,) = (loop.kind for loop in nest.loops if loop.extent == 16)
    assert lanes == kind and bool(nest.guards) == (kind == "serial")


def test_a_transposed_convolution_repacks_its_weights_serially() -> None:
    load_tvm()
    target = resolve_target(TARGET)
    operator = operators_of_points([Conv2dTranspose(64, 4, 32)], target, 0)[0].operator
    weights = 64 * 32 * 16
    copies = [n for n in nests_of(operator) if not n.operations and n.accesses[-1].elements == weights]
    serial = [n for n in copies if all(loop.kind != "parallel" for loop in n.loops)]
    assert len(serial) == 1
    assert 32 * 16 in serial[0].accesses[0].strides  # from one input channel to the next


def test_functions_are_called_and_places_come_from_data() -> None:
    softmax = nests_of(described(Softmax(2, 5, 9)))
    assert sum(n.operations.get("call", 0) for n in softmax) == 1
    assert not any(a.gathers for n in softmax for a in n.accesses)


def test_what_no_inner_loop_changes_is_taken_out_of_it() -> None:
    load_tvm()
    target = resolve_target(TARGET)
    operators = [o.operator for o in operators_of_points([LayerNorm(4, 64)], target, 0)]
    norm = next(operator for operator in operators if "rsqrt" in operator.op_names)
    (nest,) = nests_of(norm)
    assert nest.operations["div"] == 2 / 64  # one over the root of each row's variance
    assert "call" not in nest.operations


def test_functions_of_the_c_library_count_by_what_they_take() -> None:
    calls = {}
    for name in ("exp", "tanh", "gelu", "gelu_tanh", "sqrt"):
        (nest,) = nests_of(described(Elementwise(name, (4, 64))))
        calls[name] = nest.operations.get("call", 0)
    assert calls == {"exp": 1, "tanh": 2, "gelu": 1.5, "gelu_tanh": 4.5, "sqrt": 0}


def nests_of_relay(body: Any) -> tuple[LoopNest, ...]:
    tvm = load_tvm()
    function = tvm.relay.Function(tvm.relay.analysis.free_vars(body), body).with_attr("Primitive", 1)
    function = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
    return read_kernel(function, resolve_target(TARGET), 16).nests


def test_a_vectorized_loop_is_the_innermost_one() -> None:
    relay = load_tvm().relay
    data, weight = relay.var("data", shape=(1, 8, 64)), relay.var("weight", shape=(4, 8, 1))
    nest = reduction(nests_of_relay(relay.nn.conv1d(data, weight)))
    assert [loop.kind for loop in nest.loops][-1] == "vectorized"
    read = next(access for access in nest.accesses if access.elements == 8 * 64)
    assert read.strides[-2:] == (64, 1)


def test_a_value_that_is_used_twice_is_computed_once() -> None:
    relay = load_tvm().relay
    gate = relay.sigmoid(relay.var("x", shape=(4, 64)))
    one, other = relay.var("one", shape=(4, 64)), relay.var("other", shape=(4, 64))
    (nest,) = nests_of_relay(gate * one + (relay.const(1.0) - gate) * relay.tanh(other))
    assert nest.operations["call"] == 1 + 2
    (nest,) = nests_of_relay(relay.sigmoid(one) * relay.sigmoid(other))  # the same function of another tensor
    assert nest.operations["call"] == 2


def test_a_number_that_is_known_divides_by_its_inverse() -> None:
    tvm = load_tvm()
    divided, divisor = (tvm.relay.var(name, shape=(4, 64)) for name in "ab")
    found = {}
    for other in (divisor, tvm.relay.const(6.0)):
        (nest,) = nests_of_relay(divided / other)
        found[other is divisor] = nest.operations
    assert found == {True: {"div": 1}, False: {"mul": 1}}


def test_operators_are_made_again_from_their_description() -> None:
    load_tvm()
    points = [
        Conv2d(1, 16, 8, 8, 32, 3, 2, epilogue="bias_swish"),
        Conv2d(1, 32, 8, 8, 32, 3, 1, 32, "bias"),
        Dense(3, 20, 30, "bias_gelu"),
        BatchMatmul(2, 5, 6, 7),
        Pool2d(1, 32, 9, 9, 3, 2, "avg"),
        LayerNorm(4, 64),
        Transpose((1, 4, 3, 8), (0, 2, 1, 3)),
        Concatenate((1, 2, 5, 5, 16), 3),
        Mean(4, 64),
        Conv2dTranspose(8, 4, 4),
    ]
    found = [o.operator for o in operators_of_points(points, resolve_target(TARGET), 0)]
    assert len(found) > len(points)
    for operator in found:
        assert len(relay_function(operator).params) >= len(operator.params)


def scaled(relay: Any, x: Any) -> Any:
    return x * relay.const(0.125)


def hard_swish(relay: Any, x: Any) -> Any:
    return x * (relay.clip(x + relay.const(3.0), 0.0, 6.0) / relay.const(6.0))


def square_mean(relay: Any, x: Any) -> Any:
    return relay.mean(relay.power(x, relay.const(2.0)), axis=-1)


def cubic_gelu(relay: Any, x: Any) -> Any:
    inner = x + relay.const(0.044715) * relay.power(x, relay.const(3.0))
    return relay.const(0.5) * x * (relay.tanh(relay.const(0.797885) * inner) + relay.const(1.0))


def root(relay: Any, x: Any) -> Any:
    return relay.power(x, relay.const(0.5))


def counted(relay: Any, x: Any) -> Any:
    return relay.floor_mod(relay.cast(x, "int64"), relay.const(7, "int64"))


@pytest.mark.parametrize("written", [scaled, hard_swish, square_mean, cubic_gelu, root, counted])
def test_a_kernel_made_again_executes_what_the_models_does(written: Any) -> None:
    """A description does not tell the values of constants, and a product with one would be no product."""
    tvm = load_tvm()
    relay, target = tvm.relay, resolve_target(TARGET)
    x = relay.var("x", shape=(2, 197, 197))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], written(relay, x))))
    (occurrence,) = fuse(module, target, {}, ())
    of_model = read_kernel(occurrence.function, target, 16)
    assert of_model.executed is not None and sum(of_model.executed.parallel.values()) > 1000
    again = read_kernel(relay_function(occurrence.operator), target, 16)
    assert again.executed == of_model.executed


def test_a_power_of_an_unknown_exponent_is_not_guessed() -> None:
    """Descriptions of earlier versions do not tell it: no kernel is made, so its loops stay unknown."""
    tvm = load_tvm()
    relay = tvm.relay
    x = relay.var("x", shape=(2, 8))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], root(relay, x))))
    (occurrence,) = fuse(module, resolve_target(TARGET), {}, ())
    structure = occurrence.operator.structure
    assert structure.endswith("]=0.5)")
    with pytest.raises(ModelError, match="cannot be made again"):
        relay_function(dataclasses.replace(occurrence.operator, structure=structure.replace("=0.5", "")))


def test_ops_whose_attributes_tvm_does_not_name_end_no_process() -> None:
    """Type inference reads the attributes of these unasked: `opt` adds up its positions with the first."""
    tvm = load_tvm()
    relay = tvm.relay
    tokens = relay.var("tokens", shape=(1, 128), dtype="int32")
    found = {}
    for name, result in (("cumsum", relay.cumsum(tokens, axis=1)), ("dilate", relay.nn.dilate(tokens, (1, 2)))):
        module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([tokens], result)))
        (occurrence,) = fuse(module, resolve_target(TARGET), {}, ())
        found[name] = occurrence.operator
    assert len(relay_function(found["cumsum"]).params) == 1
    with pytest.raises(ModelError):
        relay_function(found["dilate"])
    bare = dataclasses.replace(found["dilate"], attrs=({},))
    with pytest.raises(ModelError):
        relay_function(bare)


def test_a_description_that_does_not_tell_is_refused() -> None:
    operator = described(Dense(2, 8, 4))
    for structure in ("nn.unheard_of(i0,p1)", "nn.contrib_dense_pack(i0,p7)", "nn.contrib_dense_pack(i0.1,i1.2)"):
        with pytest.raises(ModelError, match="cannot be made again"):
            relay_function(dataclasses.replace(operator, structure=structure))
    other = dataclasses.replace(operator, outputs=operator.inputs)
    with pytest.raises(ModelError, match="cannot be made again"):
        relay_function(other)


def test_what_a_description_leaves_out_is_found() -> None:
    """Empty attributes, and how many fields each of two tuples has."""
    relay = load_tvm().relay
    data = relay.var("data", shape=(1, 1, 4, 4))
    gates = [relay.TupleGetItem(relay.split(relay.var(name, shape=(1, 6)), 3, axis=1).astuple(), 1) for name in "ab"]
    pair, five = (relay.var(f"of_{n}", relay.TupleType([relay.TensorType((2, 8))] * n)) for n in (2, 5))
    functions = [
        relay.Function([data], relay.squeeze(data, axis=[]) + relay.const(1.0)),
        relay.Function([data], relay.squeeze(data) + relay.const(1.0)),
        relay.Function([data], relay.image.resize2d(data, (8, 8), method="nearest_neighbor", rounding_method="")),
        relay.Function([pair, five], relay.TupleGetItem(pair, 1) + relay.TupleGetItem(five, 2)),
        relay.Function(relay.analysis.free_vars(relay.Tuple(gates)), gates[0] * gates[1]),
        relay.Function([data], relay.cast(relay.not_equal(data, relay.const(1, "int64").astype("float32")), "int32")),
    ]
    for function in functions:
        module = load_tvm().IRModule.from_expr(function.with_attr("Primitive", 1))
        typed = relay.transform.InferType()(module)["main"]
        operator = describe(typed, (False,) * len(typed.params))
        assert describe(relay_function(operator), (False,) * len(typed.params)).key == operator.key
