"""The time of a model by its layers."""

from __future__ import annotations

import pytest

from op_profiler.collection.summary import attributed, time_by_layer
from op_profiler.measure.measurement import Measurement
from op_profiler.operators.layers import by_operator, shortened

TIMES = {
    "conv": Measurement(samples_us=((30.0, 10.0), (50.0, 10.0), (40.0, 10.0)), median_us=25.0),
    "pool": Measurement(samples_us=((5.0,), (5.0,)), median_us=5.0),
    "imported": Measurement(median_us=2.5),
    "failed": Measurement(error="no time"),
}
CALLS = {"conv": 2, "pool": 1, "imported": 2, "failed": 1}
LAYERS = {
    "conv": (("stage.1.conv", "stage.1.relu"), ("stage.2.conv",)),
    "imported": (("head.fc",), ()),
    "failed": (("head.act",),),
}


def test_each_call_counts_for_the_layer_of_its_anchor() -> None:
    found = time_by_layer(TIMES, CALLS, LAYERS)
    assert [(one.layer, one.us, one.calls) for one in found] == [
        ("stage.1.conv", 40.0, 1),
        ("stage.2.conv", 10.0, 1),
        ("", 7.5, 2),  # the pooling, and one call of the imported operator: not known
        ("head.fc", 2.5, 1),
    ]
    assert sum(one.us for one in found) == 25.0 * 2 + 5.0 + 2.5 * 2
    assert attributed(found) == pytest.approx(52.5 / 60)


def test_layers_come_together_at_the_depth_that_is_asked_for() -> None:
    found = time_by_layer(TIMES, CALLS, LAYERS, depth=1)
    assert [(one.layer, one.us, one.calls) for one in found] == [("stage", 50.0, 2), ("", 7.5, 2), ("head", 2.5, 1)]


def test_without_times_nothing_is_attributed() -> None:
    assert time_by_layer({"failed": TIMES["failed"]}, CALLS, LAYERS) == []
    assert attributed([]) is None


@pytest.mark.parametrize(
    ("layer", "depth", "expected"),
    [
        ("encoder.layer.3.output", 3, "encoder.layer.3"),
        ("/layer1/layer1.0/conv1/Conv", 2, "/layer1/layer1.0"),
        ("model/dense/BiasAdd", 1, "model"),
        ("stage1_unit1_conv1", 2, "stage1_unit1_conv1"),
        ("", 1, ""),
    ],
)
def test_a_layer_is_a_path(layer: str, depth: int, expected: str) -> None:
    assert shortened(layer, depth) == expected


def test_layers_are_told_by_operator_in_the_order_of_its_calls() -> None:
    layers = [("a",), (), ("b", "c"), ()]
    assert by_operator(["x", "y", "x", "z"], layers) == {"x": [("a",), ("b", "c")]}
