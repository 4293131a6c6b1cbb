"""Features against counts made by hand, and against what TVM decides."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from op_profiler.operators.cost import flops
from op_profiler.operators.kinds.shapes import Conv, DenseLayer, operator_of
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.prediction.latency.features import (
    KINDS,
    NAMES,
    kind_of,
    operator_features,
    transcendental_work,
    work_of,
)


def _conv(**changes: Any) -> Operator:
    sizes: dict[str, Any] = {
        "batch": 1,
        "in_channels": 64,
        "height": 28,
        "width": 28,
        "out_channels": 128,
        "kernel": (3, 3),
        "stride": (1, 1),
        "padding": (1, 1, 1, 1),
    }
    return operator_of(Conv(**{**sizes, **changes}))


def _value(operator: Operator, name: str) -> float:
    return float(operator_features(operator)[NAMES.index(name)])


def test_sizes_of_a_convolution_are_logarithms() -> None:
    operator = _conv()
    assert 2 ** _value(operator, "rows") == pytest.approx(28 * 28)
    assert 2 ** _value(operator, "columns") == pytest.approx(128)
    assert 2 ** _value(operator, "reduction") == pytest.approx(64 * 9)
    assert 2 ** _value(operator, "flops") == pytest.approx(2 * 28 * 28 * 128 * 64 * 9)
    assert _value(operator, "padded") == 1.0
    assert sum(operator_features(operator)[: len(KINDS)]) == 1.0


@pytest.mark.parametrize("kernel", [1, 3])
def test_a_blocked_convolution_of_any_batch_has_features(kernel: int) -> None:
    known = _conv(kernel=(kernel, kernel))
    shapes = ((-1, 4, 28, 28, 16),), ((-1, 8, 28, 28, 16),)
    inputs, outputs = (tuple(TensorSpec(shape, "float32") for shape in some) for some in shapes)
    operator = dataclasses.replace(known, inputs=inputs, outputs=outputs)
    assert kind_of(operator) == "conv2d"
    assert all(map(math.isfinite, operator_features(operator)))


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        (_conv(), "conv2d"),
        (_conv(in_channels=64, out_channels=64, groups=64), "depthwise"),
        (_conv(groups=4), "grouped"),
        (operator_of(DenseLayer(batch=1, in_features=8, out_features=8)), "dense"),
    ],
)
def test_kinds(operator: Operator, kind: str) -> None:
    assert kind_of(operator) == kind


def test_functions_are_counted_for_every_element() -> None:
    shape = TensorSpec((4, 8), "float32")
    names = ("nn.dense", "erf", "multiply", "tanh")
    operator = Operator("x", "nn.dense", names, (shape,), (), (shape,), ({},) * 4, {}, "", 1, 1, 1)
    assert transcendental_work(operator) == 2 * 32


def test_the_least_work_of_winograds_algorithm_is_less_than_its_flops() -> None:
    direct = _conv()
    name = "nn.contrib_conv2d_winograd_without_weight_transform"
    attrs = ({**direct.attrs[0], "tile_size": 4},)
    winograd = dataclasses.replace(direct, anchor=name, op_names=(name,), attrs=attrs)
    assert work_of(direct)[0] == direct.flops
    assert work_of(winograd)[0] == pytest.approx(direct.flops / 4)
    assert work_of(winograd)[1:] == work_of(direct)[1:]


@pytest.mark.parametrize(("method", "kind"), [("nearest_neighbor", "layout"), ("linear", "elementwise")])
def test_a_resize_that_computes_is_no_copy(method: str, kind: str) -> None:
    attrs = {"method": method, "layout": "NCHW", "size": [16, 16]}
    small, large = (TensorSpec((1, 8, size, size), "float32") for size in (8, 16))
    count = flops("image.resize2d", attrs, [small], [large])
    resize = dataclasses.replace(
        _conv(), anchor="image.resize2d", op_names=("image.resize2d",), attrs=(attrs,), inputs=(small,), params=(),
        outputs=(large,), flops=count,
    )  # fmt: skip
    assert kind_of(resize) == kind
