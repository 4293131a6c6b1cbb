"""Operators made from sizes are those that Relay makes; blocked ones come back to the same sizes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from op_profiler.operators.kinds.shapes import Conv, DenseLayer, Plain, Unfit, operator_of, shape_of, sizes
from op_profiler.operators.operator import Operator, TensorSpec

CONV = Conv(
    batch=2, in_channels=8, height=9, width=7, out_channels=16, kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1)
)


@st.composite
def convolutions(draw: Any) -> Conv:
    groups = draw(st.sampled_from([1, 2, 8]))
    size, kernel = draw(st.integers(5, 20)), draw(st.integers(1, 5))
    return Conv(
        batch=draw(st.integers(1, 4)),
        in_channels=groups * draw(st.integers(1, 4)),
        height=size,
        width=draw(st.integers(5, 20)),
        out_channels=groups * draw(st.integers(1, 4)),
        kernel=(kernel, draw(st.integers(1, 5))),
        stride=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        padding=(draw(st.integers(0, 3)), draw(st.integers(0, 3)), draw(st.integers(0, 3)), draw(st.integers(0, 3))),
        groups=groups,
        bias=draw(st.booleans()),
        activation=draw(st.sampled_from(["", "nn.relu", "clip"])),
        residual=draw(st.booleans()),
        dtypes=draw(st.sampled_from([("float32",) * 3, ("uint8", "int8", "int32")])),
    )


@given(convolutions())
def test_sizes_come_back_from_the_operator(conv: Conv) -> None:
    assume(conv.bias or conv.dtypes[0] == conv.dtypes[2])
    assert shape_of(operator_of(conv)) == conv


def test_costs_by_hand() -> None:
    operator = operator_of(dataclasses.replace(CONV, bias=True, residual=True))
    outputs = 2 * 16 * 5 * 4
    assert operator.outputs[0].shape == (2, 16, 5, 4)
    assert operator.flops == 2 * outputs * 8 * 9 + outputs + outputs
    assert operator.bytes_read == 4 * (2 * 8 * 9 * 7 + 16 * 8 * 9 + 16 + outputs)
    assert operator.bytes_written == 4 * outputs


def test_workload_keys_are_those_of_relay(tvm: Any) -> None:
    from op_profiler.compilers.relay.extract import describe

    relay = tvm.relay

    def var(name: str, *shape: int) -> Any:
        return relay.var(name, shape=shape, dtype="float32")

    def relay_operator(call: Any) -> Operator:
        function = relay.Function(relay.analysis.free_vars(call), call)
        function = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
        return describe(function, tuple(str(v.name_hint).startswith("w") for v in function.params))

    conv = relay.nn.conv2d(
        var("data", 2, 8, 9, 7),
        var("weight", 16, 8, 3, 3),
        strides=(2, 2),
        padding=(1, 1, 1, 1),
        channels=16,
        kernel_size=(3, 3),
    )
    relu = relay.nn.relu(relay.nn.bias_add(conv, var("w2", 16)))
    dense = relay.nn.dense(var("data", 2, 8), var("weight", 4, 8))
    pool = relay.nn.max_pool2d(var("data", 1, 8, 9, 9), pool_size=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1))
    attrs = {"pool_size": (3, 3), "strides": (2, 2), "dilation": (1, 1), "padding": (1, 1, 1, 1), "layout": "NCHW"}
    pairs: list[tuple[Any, Any]] = [
        (conv, CONV),
        (relay.add(conv, var("other", 2, 16, 5, 4)), dataclasses.replace(CONV, residual=True)),
        (relu, dataclasses.replace(CONV, bias=True, activation="nn.relu")),
        (dense, DenseLayer(batch=2, in_features=8, out_features=4)),
        (
            pool,
            Plain(
                op="nn.max_pool2d",
                attrs=(*attrs.items(), ("ceil_mode", 0)),
                inputs=(TensorSpec((1, 8, 9, 9), "float32"),),
            ),
        ),
    ]
    for call, shape in pairs:
        ours, theirs = operator_of(shape), relay_operator(call)
        assert dataclasses.replace(ours, name=theirs.name) == theirs and ours.key == theirs.key


def blocked(depthwise: bool, structure: str, **changes: Any) -> Operator:
    """64 to 128 channels (depthwise: 64) of 14 x 14 in blocks of 16, as TVM's x86 schedules lay them out."""
    name = "nn.contrib_depthwise_conv2d_NCHWc" if depthwise else "nn.contrib_conv2d_NCHWc"
    channels = 64 if depthwise else 128
    weight = (4, 1, 3, 3, 1, 16) if depthwise else (8, 4, 3, 3, 16, 16)
    attrs = {
        "strides": [1, 1],
        "padding": [1, 1, 1, 1],
        "dilation": [1, 1],
        "groups": 64 if depthwise else 1,
        "channels": channels,
        "kernel_size": [3, 3],
        "data_layout": "NCHW16c",
        "kernel_layout": "OIHW1i16o" if depthwise else "OIHW16i16o",
        "out_layout": "NCHW16c",
    }
    output = TensorSpec((1, channels // 16, 14, 14, 16), "float32")
    ops = tuple(edge.split("(")[0] for edge in structure.replace("conv", name).split(";"))
    fields: dict[str, Any] = {
        "name": "x",
        "anchor": name,
        "op_names": ops,
        "inputs": (TensorSpec((1, 4, 14, 14, 16), "float32"),),
        "params": (TensorSpec(weight, "float32"), TensorSpec((1, channels // 16, 1, 1, 16), "float32")),
        "outputs": (output,),
        "attrs": (attrs, *({} for _ in ops[1:])),
        "layouts": {},
        "structure": structure.replace("conv", name),
        "flops": 1,
        "bytes_read": 1,
        "bytes_written": 1,
    }
    return Operator(**(fields | changes))


FUSED = "conv(i0,p1);add(%0,p2);nn.relu(%1)"


@pytest.mark.parametrize("depthwise", [False, True])
def test_blocked_layouts_come_back_to_plain_sizes(depthwise: bool) -> None:
    found = shape_of(blocked(depthwise, FUSED))
    channels = 64 if depthwise else 128
    assert isinstance(found, Conv)
    assert (found.batch, found.in_channels, found.height, found.width) == (1, 64, 14, 14)
    assert (found.out_channels, found.groups, found.depthwise) == (channels, 64 if depthwise else 1, depthwise)
    assert operator_of(found).params[0].shape == (channels, 1 if depthwise else 64, 3, 3)
    assert (found.bias, found.activation, found.residual) == (True, "nn.relu", False)


def test_a_blocked_residual() -> None:
    inputs = (TensorSpec((1, 4, 14, 14, 16), "float32"), TensorSpec((1, 8, 14, 14, 16), "float32"))
    found = shape_of(blocked(False, "conv(i0,p1);add(%0,p2);add(i3,%1)", inputs=inputs))
    assert isinstance(found, Conv) and found.residual and found.bias


def test_a_packed_dense_layer() -> None:
    plain = operator_of(DenseLayer(batch=3, in_features=8, out_features=32))
    packed = dataclasses.replace(
        plain,
        anchor="nn.contrib_dense_pack",
        op_names=("nn.contrib_dense_pack",),
        structure="nn.contrib_dense_pack(i0,p1)",
        params=(TensorSpec((2, 8, 16), "float32"),),
    )
    assert shape_of(packed) == DenseLayer(batch=3, in_features=8, out_features=32)


@pytest.mark.parametrize(
    ("structure", "changes", "reason"),
    [
        ("conv(i0,p1);add(%0,p2);sigmoid(%1)", {}, "fused with sigmoid"),
        ("conv(i0,p1);add(%0,p2);nn.relu(p2)", {}, "one after the other"),
        ("conv(i0,p1);add(%0,p2)", {"inputs": (TensorSpec((-1, 4, 14, 14, 16), "float32"),)}, "run time"),
        ("conv(i0,p1)", {}, "structure"),
        ("pad(i0);conv(%0,p1);add(%1,p2)", {}, "before the heavy one"),
    ],
)
def test_what_cannot_be_said(structure: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        shape_of(blocked(False, structure, **changes))


def test_sizes_of_a_layout() -> None:
    assert sizes(TensorSpec((4, 2, 3, 3, 8, 16), "float32"), "OIHW8i16o") == {"O": 64, "I": 16, "H": 3, "W": 3}
    with pytest.raises(Unfit, match="layout NCHW"):
        sizes(TensorSpec((1, 2), "float32"), "NCHW")


@pytest.mark.parametrize(
    "changes", [{"groups": 3}, {"kernel": (30, 3)}, {"batch": 0}, {"stride": (0, 1)}, {"padding": (-1, 0, 0, 0)}]
)
def test_sizes_that_do_not_go_together(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        operator_of(dataclasses.replace(CONV, **changes))
