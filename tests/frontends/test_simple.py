"""Single operators."""

from __future__ import annotations

from typing import Any

import pytest

from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest

SIMPLE = FRONTENDS.get("simple")


def load(name: str, **fields: Any) -> Any:
    return SIMPLE.load(ModelRequest(source="simple", name=name, **fields))


@pytest.mark.parametrize("name", SIMPLE.names())
def test_every_operator_lowers_and_uses_the_batch(name: str) -> None:
    one, three = load(name), load(name, batch_size=3)
    assert three.batch_size == 3
    assert three.inputs[0].shape == (3 * one.inputs[0].shape[0], *one.inputs[0].shape[1:])
    assert three.mod["main"].ret_type.shape[0] == 3 * one.mod["main"].ret_type.shape[0]


def test_shapes_go_to_operands_in_order_or_by_name() -> None:
    ordered = load("conv2d", input_shapes=((2, 8, 16, 16), (4, 8, 5, 5)))
    assert [int(d) for d in ordered.mod["main"].ret_type.shape] == [2, 4, 16, 16]
    named = load("dense", input_names=("weight",), input_shapes=((10, 1024),))
    assert [int(d) for d in named.mod["main"].ret_type.shape] == [1, 10]
    assert list(named.params) == ["weight"] and [i.name for i in named.inputs] == ["data"]


def test_depthwise_is_grouped_and_add_broadcasts() -> None:
    model = load("depthwise_conv2d", input_shapes=((1, 32, 8, 8),))
    assert int(model.mod["main"].body.attrs.groups) == 32
    assert [int(d) for d in load("add", input_shapes=((4, 5), (5,))).mod["main"].ret_type.shape] == [4, 5]


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("conv2d", {"input_shapes": ((1, 3, 8),)}, "conv2d takes data of 4 dimensions"),
        ("conv2d", {"input_shapes": ((1, 8, 9, 9), (4, 3, 3, 3))}, "must divide"),
        ("matmul", {"input_shapes": ((4, 5), (6, 7))}, "do not fit together"),
        ("dense", {"input_shapes": ((1, 2), (3, 2), (4,))}, "2 inputs"),
        ("dense", {"input_names": ("bias",)}, "'bias'"),
        ("softmax", {"input_shapes": ((0, 3),)}, "below 1"),
        ("conv2d", {"input_shapes": ((2, 3, 8, 8),), "batch_size": 4}, "but --batchsize is 4"),
    ],
)
def test_shapes_that_cannot_be(name: str, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        load(name, **fields)


def test_unknown() -> None:
    with pytest.raises(UnknownNameError, match="conv2d"):
        load("conv2")
