"""Features against counts made by hand, and against what TVM decides."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from op_profiler.dataset.formats.shapes import Conv, Dense, operator_of
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.predict.latency import default_schedule
from op_profiler.predict.latency.features import KINDS, NAMES, kind_of, operator_features, transcendental_work


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
        (operator_of(Dense(batch=1, in_features=8, out_features=8)), "dense"),
    ],
)
def test_kinds(operator: Operator, kind: str) -> None:
    assert kind_of(operator) == kind


def test_functions_are_counted_for_every_element() -> None:
    shape = TensorSpec((4, 8), "float32")
    names = ("nn.dense", "erf", "multiply", "tanh")
    operator = Operator("x", "nn.dense", names, (shape,), (), (shape,), ({},) * 4, {}, "", 1, 1, 1)
    assert transcendental_work(operator) == 2 * 32


def test_tiles_are_those_that_tvm_takes(tvm: Any) -> None:
    """The default knobs of real builds, against the rules; compiled for the vectors that features reckon with."""
    from op_profiler.collection.sampling.batches import batch_name, operators_of_points, sampled
    from op_profiler.collection.sampling.kinds import Conv2d
    from op_profiler.collection.sampling.kinds import Dense as DensePoint
    from op_profiler.compilers.relay.chosen import chosen_schedules
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.frontends.sample import write_batch
    from op_profiler.predict.latency.features import _sizes
    from op_profiler.targets.target import resolve_target

    target = resolve_target("llvm -mcpu=skylake-avx512")
    points = [
        Conv2d(1, 32, 14, 14, 48, 3, 1),
        Conv2d(1, 32, 26, 26, 32, 1, 1),
        Conv2d(1, 32, 29, 29, 32, 3, 1),
        DensePoint(24, 64, 100),
        DensePoint(6, 64, 96),
    ]
    wanted = operators_of_points(points, target, seed=0)
    name = batch_name("tiles", [1])
    write_batch(name, [sampled(o) for o in wanted])
    model = FRONTENDS.get("sample").load(ModelRequest(source="sample", name=name))
    with chosen_schedules() as choices:
        compiled = compile_model(model, target)
    checked = 0
    for occurrence in compiled.by_label.values():
        operator, knobs = occurrence.operator, choices.schedule_of(occurrence).knobs
        kind = kind_of(operator)
        if kind not in ("conv2d", "dense"):
            continue
        out = operator.outputs[0].shape
        tiles = dict(zip(default_schedule.NAMES, default_schedule.tiles_of(kind, _sizes(operator, kind), out)))
        if kind == "dense":
            assert (tiles["tile_columns"], tiles["tile_rows"]) == (knobs["tile_x"][-1], knobs["tile_y"][-1])
        else:
            rows = knobs.get("tile_oh", 1)
            assert tiles["tile_rows"] == knobs["tile_ow"][-1] * (rows if isinstance(rows, int) else rows[-1])
            assert tiles["tile_columns"] == knobs["tile_oc"][-1]
        checked += 1
    assert checked == len(points)
