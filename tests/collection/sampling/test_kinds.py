"""Kinds that are drawn where they are named: each lowers and runs, in its precision, and predictors know what it is."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.building.requested_target import compiled_for
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.collection.sampling import batch as cut
from op_profiler.collection.sampling import run, spaces
from op_profiler.collection.sampling.batches import operators_of_points
from op_profiler.collection.sampling.mixtures import USUAL
from op_profiler.collection.supervisor import Collection
from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_types import Node
from op_profiler.dataset import flat_rows
from op_profiler.errors import EXIT_FAILURES_RECORDED
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.operators import cost
from op_profiler.operators.kinds.convolutions import Conv1d, Conv2d, Conv2dNHWC, Int8Conv2d
from op_profiler.operators.kinds.elementwise import (
    BROADCASTS,
    CELLS,
    INT8_ELEMENTWISE,
    Broadcast,
    Elementwise,
    Gates,
    Int8Elementwise,
)
from op_profiler.operators.kinds.functions import BINARY, LIBRARY, LIGHT, REMAINDERS, SECOND, AppliedFunction
from op_profiler.operators.kinds.lookups import Gather, Resize
from op_profiler.operators.kinds.norms import REDUCTIONS, ImageNorm, LocalResponseNorm, Reduction, Softmax
from op_profiler.operators.kinds.odd_convolutions import LongConv1d
from op_profiler.operators.kinds.point import InFloat16, Point, Scope
from op_profiler.operators.kinds.pooling import LargeWindow, Pool2d, UnpaddedPool2d
from op_profiler.operators.kinds.products import (
    BatchMatmul,
    Dense,
    DenseOfActivations,
    GatedDense,
    Int8Dense,
    Repacking,
)
from op_profiler.operators.kinds.rearrangements import JoinedSlices, LayerScale, Rearranged, Relayout, TurnedPositions
from op_profiler.prediction.latency.features import operator_features
from op_profiler.prediction.latency.traffic import traffic_features
from op_profiler.report.collection import Screen
from op_profiler.targets.target import kind_of

from ...command_line import forked_workers

POINTS: list[Point] = [
    Conv2dNHWC(10, 8, 16, 3, 1, epilogue="bias_relu6"),
    Conv2dNHWC(10, 8, 8, 3, 2, depthwise=True, epilogue="bias"),
    DenseOfActivations(8, 32, 48),
    DenseOfActivations(8, 32, 48, transposed=True),
    Repacking(48, 64, 16),
    *(Reduction(op, (1, 6, 40), axes) for op, axes in zip(REDUCTIONS, [(2,), (1,), (1, 2)])),
    InFloat16(Conv2d(1, 16, 10, 10, 32, 3, 1, epilogue="bias_swish")),
    InFloat16(Conv2d(1, 16, 10, 10, 16, 3, 1, 16, "bias_relu")),
    InFloat16(Dense(5, 32, 48, "bias_relu")),
    InFloat16(BatchMatmul(2, 8, 9, 16, transposed=False)),
    InFloat16(Pool2d(1, 16, 10, 10, 3, 2, "avg")),
    InFloat16(Elementwise("add_relu", (1, 6, 48))),
    Int8Conv2d(16, 10, 32, 3, 1),
    Int8Conv2d(16, 10, 24, 1, 2),
    Int8Conv2d(16, 10, 16, 3, 1, groups=16),
    Int8Dense(1, 36, 50),
    Int8Dense(16, 64, 64),
    *(Int8Elementwise(op, (1, 2, 5, 5, 16)) for op in INT8_ELEMENTWISE),
    *(Gates(cell, 1, 24) for cell in CELLS),
    LocalResponseNorm(16, 7, 5),
    Relayout(24, 6, 12, 8),
    Relayout(24, 6, 0, 12, relu=True),
    Rearranged((49, 64), (49, 4, 16), (1, 2, 0), (4, 16, 49)),
    Rearranged((1, 24, 6, 6), (1, 2, 12, 6, 6), (0, 2, 1, 3, 4), (1, 24, 6, 6), block=12, from_blocked=True),
    Rearranged((36, 24), (1, 36, 24), (0, 2, 1), (1, 24, 6, 6), block=8, added=True),
    *(Broadcast(op, (1, 2, 5, 5, 12), (1, 2, 1, 1, 12)) for op in BROADCASTS),
    JoinedSlices((1, 4, 5, 5, 8), (1, 3, 2)),
    UnpaddedPool2d(24, 9, 2, 2, "max", 12),
    UnpaddedPool2d(24, 9, 3, 2, "avg", 0),
    ImageNorm("group", 24, 6, 2),
    ImageNorm("channels_last", 24, 6),
    LayerScale(24, 6, blocked=False),
    LayerScale(24, 6, blocked=True),
    TurnedPositions(2, 9, 16, pairs=True, transposed=True),
    TurnedPositions(2, 9, 16, pairs=False, transposed=False),
    GatedDense(32, 48),
    AppliedFunction("power", (2, 4, 12), second="constant", exponent=3.0),
    AppliedFunction("mod", (2, 4, 12), second="channels"),
    AppliedFunction("logical_xor", (2, 4, 12), "bool", "tensor"),
    AppliedFunction("where", (2, 4, 12)),
    Resize(2, 3, 6, 9, "cubic", "align_corners"),
    Gather((2, 5, 7), 1, 4),
    LargeWindow(2, 3, 9, 5, 2, 2, "max"),
    LongConv1d(2, 1, 300, 2, 5, 1, 1, "bias"),
    Conv1d(16, 40, 24, 3, dilation=2, epilogue="bias_relu"),
]
HEAVY_FLOPS = {
    0: 2 * 10 * 10 * 16 * 8 * 9,
    1: 2 * 5 * 5 * 8 * 9,
    2: 2 * 8 * 32 * 48,
    3: 2 * 8 * 32 * 48,
    8: 2 * 10 * 10 * 32 * 16 * 9,
    14: 2 * 10 * 10 * 32 * 16 * 9,
    18: 2 * 16 * 64 * 64,
    len(POINTS) - 1: 2 * 40 * 24 * 16 * 3,
}
"""Of points by their place, what their heavy op computes, counted by hand."""


def lowered(point: Point, target: Any) -> list[Occurrence]:
    return operators_of_points([point], compiled_for(kind_of("llvm"), point.precision, target), 0)


@pytest.mark.parametrize("place", range(len(POINTS)), ids=[str(point) for point in POINTS])
def test_each_is_an_operator_whose_loops_and_features_are_numbers(place: int, target: Any) -> None:
    point = POINTS[place]
    found = lowered(point, target)
    assert found
    for occurrence in found:
        kernel = compiler_in_use().read_kernel(
            occurrence.operator, compiled_for(kind_of("llvm"), point.precision, target)
        )
        assert np.isfinite(traffic_features(kernel)).all()
        assert np.isfinite(operator_features(occurrence.operator)).all()
        assert occurrence.operator.bytes_read > 0 and occurrence.operator.bytes_written > 0
    if place in HEAVY_FLOPS:
        heavy = next(o.operator for o in found if o.operator.anchor in cost.HEAVY)
        assert HEAVY_FLOPS[place] <= heavy.flops <= 1.5 * HEAVY_FLOPS[place]
    assert {"float16", "int8"} & dtypes(found) == ({point.precision} & {"float16", "int8"})


def dtypes(occurrences: list[Occurrence]) -> set[str]:
    operators = [o.operator for o in occurrences]
    return {t.dtype for o in operators for t in (*o.inputs, *o.params, *o.outputs)}


def test_every_function_lowers_to_one_operator(target: Any) -> None:
    shape = (2, 4, 12)
    points = [AppliedFunction(op, shape) for op in (*LIBRARY, *LIGHT)]
    points += [AppliedFunction(op, shape, second=second) for op in (*BINARY, *REMAINDERS) for second in SECOND]
    reasons: list[str] = []
    found = operators_of_points(points, compiled_for(kind_of("llvm"), "float32", target), 0, reasons.append)
    assert (len(found), reasons) == (len(points), [])


def test_a_weight_that_is_an_activation_is_packed_while_the_model_runs(target: Any) -> None:
    packed = [o.operator.op_names for o in lowered(DenseOfActivations(8, 32, 48), target)]
    assert ("layout_transform",) in packed
    transposed = [name for o in lowered(POINTS[3], target) for name in o.operator.op_names]
    assert {"transpose", "layout_transform"} <= set(transposed)
    gated = [o.operator.op_names for o in lowered(GatedDense(32, 48), target)]
    assert any(names[-2:] == ("multiply", "layout_transform") for names in gated)


def test_what_is_computed_from_weights_is_folded_as_in_networks(target: Any) -> None:
    points: list[Point] = [*(p for p in POINTS if isinstance(p, Int8Conv2d | Int8Dense | Conv2dNHWC))]
    names = {name for point in points for o in lowered(point, target) for name in o.operator.op_names}
    assert {"subtract", "fixed_point_multiply"} <= names and not {"expand_dims", "multiply"} & names


def test_sums_of_int8_are_instructions_and_no_calls(target: Any) -> None:
    resolved = compiled_for(kind_of("llvm"), "int8", target)
    for point in (Int8Conv2d(16, 10, 32, 3, 1), Int8Dense(16, 64, 64)):
        heavy = next(o.operator for o in lowered(point, target) if o.operator.anchor in cost.HEAVY)
        operations = [nest.operations for nest in compiler_in_use().read_kernel(heavy, resolved).nests]
        assert sum(found.get("mul", 0) for found in operations) > 0
        assert not any("call" in found for found in operations)


def test_what_tvm_advises_is_not_printed(target: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It has schedules of NHWC convolutions of which it says, once an operator, that they are not the best."""
    batch = next(cut.batches_of_points(iter([Conv2dNHWC(11, 8, 16, 3, 1)]), "advice", 0))
    written = run.written(
        batch, BuildRequest(model=ModelRequest(source="sample", name=""), schedules="none"), Screen(quiet=True)
    )
    assert written.startswith("advice") and not caplog.records


class Refused(Point):
    """A convolution of channels that are not there."""

    kind = "refused"

    def expression(self, scope: Scope) -> Node:
        relay = scope.relay
        return relay.nn.conv2d(scope.input(1, 8, 8, 8), scope.weight(8, 5, 3, 3), kernel_size=(3, 3), channels=8)

    def work(self) -> tuple[float, float]:
        return 1.0, 1.0


class Unbuilt(Point):
    """A transposed 3-D convolution in groups, for which TVM 0.19 has no schedule."""

    kind = "unbuilt"

    def expression(self, scope: Scope) -> Node:
        data, weight = scope.input(1, 8, 4, 4, 4), scope.weight(8, 4, 3, 3, 3)
        return scope.relay.nn.conv3d_transpose(data, weight, groups=2, channels=8, kernel_size=(3, 3, 3))

    def work(self) -> tuple[float, float]:
        return 1.0, 1.0


def measured(points: list[Point], folder: Path) -> tuple[run.SampleReport, list[dict[str, Any]]]:
    """What a run says, and the rows of it."""
    db = f"sqlite:///{folder / 's.db'}"
    build = BuildRequest(model=ModelRequest(source="sample", name=""), schedules="none")
    request = CollectRequest(build=build, measuring=Measuring(rounds=3), db=db)
    batches = cut.batches_of_points(iter(points), "kinds", 0)
    with forked_workers(), Collection(db) as collection:
        report = run.measure_batches(batches, request, collection, Screen(quiet=True), count=None, budget_seconds=None)
        return report, [dict(row) for row in flat_rows(collection.dataset)]


def test_each_runs_in_batches_of_one_precision_on_one_device(tmp_path: Path) -> None:
    report, rows = measured(POINTS, tmp_path)
    assert (report.batches, report.errors, report.failed) == (5, [], 0)
    assert all(row["median_us"] > 0 for row in rows)
    assert len({row["device_key"] for row in rows}) == 1
    anchors = {
        precision: {r["anchor"] for r in rows if r["precision"] == precision} for precision in ("float16", "int8")
    }
    for found in anchors.values():
        assert any("conv2d" in anchor for anchor in found) and any("dense" in anchor for anchor in found)


def test_what_cannot_be_lowered_or_built_is_told_and_costs_no_other(tmp_path: Path) -> None:
    good: list[Point] = [Softmax(1, 4, 20), Elementwise("relu", (4, 20))]
    report, rows = measured([Refused(), Unbuilt(), *good], tmp_path)
    assert any("Refused() cannot be lowered" in error for error in report.errors)
    assert report.error_code != EXIT_FAILURES_RECORDED
    broken = [row for row in rows if row["error"] is not None]
    assert {row["anchor"] for row in broken} == {"nn.conv3d_transpose"}
    times = [row for row in rows if row["error"] is None and row["whole_model_us"] is not None]
    assert {row["anchor"] for row in times} >= {"nn.softmax", "nn.relu"}


def test_a_batch_of_which_only_the_surroundings_run_counts_no_operators(tmp_path: Path) -> None:
    report, rows = measured([Unbuilt()], tmp_path)
    assert report.operators == 0 < report.failed
    assert any(row["error"] is None for row in rows)


def test_points_of_a_precision_wait_until_there_are_enough_for_their_batches() -> None:
    of_float32 = [Dense(1, 32, n) for n in range(1, 221)]
    mixed = [x for n, point in enumerate(of_float32) for x in [point, *([Int8Dense(1, 32, n + 1)] if n % 2 else [])]]
    alone = list(cut.batches_of_points(iter(of_float32), "x", 0))
    found = list(cut.batches_of_points(iter(mixed), "x", 0))
    assert [len(batch.identity) for batch in alone] == [*cut.BATCH_SIZES] * 2  # type: ignore[arg-type]
    assert [b.identity for b in found if b.precision == "float32"] == [b.identity for b in alone]
    assert [len(b.identity) for b in found if b.precision == "int8"] == [*cut.BATCH_SIZES]  # type: ignore[arg-type]


def test_small_batches_keep_their_weights_in_the_cache() -> None:
    dense = [Dense(1, 64, columns) for columns in range(16, 4096, 16)]
    batches = list(cut.batches_of_points(iter(dense), "x", 0, cached=True))
    work = {json.dumps(point.identity()): point.work()[1] for point in dense}
    points = [batch.identity if batch.steps == 1 else batch.identity[2:] for batch in batches]  # type: ignore[index]
    elements = [[work[json.dumps(identity)] for identity in of_one] for of_one in points]  # type: ignore[union-attr]
    assert all(sum(of_one) <= 1 << 17 and len(of_one) <= cut.CACHED_SIZE for of_one in elements)
    kept = [point for point in dense if point.work()[1] <= 1 << 17]
    assert 0 < len(kept) < len(dense) and sum(map(len, elements)) == len(kept)
    assert [batch.steps for batch in batches[:4]] == [*cut.CACHED_STEPS] * 2


def digest(names: list[str], seed: int) -> str:
    points = itertools.islice(spaces.draw(random.Random(seed), names), 400)
    return hashlib.sha256(json.dumps([point.identity() for point in points]).encode()).hexdigest()[:12]


@pytest.mark.parametrize(
    ("names", "drawn"),
    [
        ([], "b9daf6fb501b"),
        (["conv2d_dilated", "conv2d_grouped", "conv3d", "decoder_step"], "13e9d1c10886"),
        (["dense", "conv3d"], "55adc781a54d"),
    ],
)
def test_what_a_seed_draws_stays(names: list[str], drawn: str) -> None:
    """Batches are found again by their content: these were drawn before the newest kinds came."""
    assert digest(names, 7) == drawn


def test_all_stands_for_every_kind_half_of_them_the_usual_ones() -> None:
    points = list(itertools.islice(spaces.draw(random.Random(5), [spaces.ALL]), 3000))
    kinds = {point.kind for point in points}
    assert kinds >= {
        "conv2d_nhwc",
        "reduction",
        "repacking",
        "float16",
        "conv2d_int8",
        "dense_int8",
        "conv3d",
        "conv2d",
    }
    for precision, share in {"float16": 0.04, "int8": 0.06}.items():
        assert sum(point.precision == precision for point in points) == pytest.approx(share * len(points), rel=0.3)
    assert max(point.work()[0] for point in points) <= 1e9  # one that takes half a second costs fifty others
    assert spaces.checked_names([spaces.ALL]) == tuple(spaces.space_names()[:-1])


@pytest.mark.parametrize("name", [n for n in spaces.space_names() if n not in (*USUAL, spaces.ALL)])
def test_every_named_kind_draws_what_differs(name: str) -> None:
    points = list(itertools.islice(spaces.draw(random.Random(1), [name]), 60))
    assert len({json.dumps(point.identity()) for point in points}) >= 55
    assert all(dataclasses.is_dataclass(point) for point in points)
