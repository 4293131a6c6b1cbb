"""The templates against numpy, on shapes that divide by nothing, at random points of their spaces."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.schedules.factors import NAMES
from op_profiler.tuning import reference
from op_profiler.tuning.candidate import Candidate, TaskSpec

_spec = importlib.util.spec_from_file_location("schedule_tasks", Path(__file__).with_name("conftest.py"))
assert _spec is not None and _spec.loader is not None
tasks = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tasks)

DEPTHWISE, WINOGRAD = "depthwise_conv2d_NCHWc.op_profiler", "conv2d_NCHWc_winograd.op_profiler"
ODD = {
    "7x7": tasks.conv2d(),
    "channels that divide by nothing": tasks.conv2d(channels=13, out=11, block=13, lanes=11, size=5),
    "stem with three channels, stride 2": tasks.conv2d(channels=3, out=10, block=3, lanes=5, size=9, stride=2),
    "dilation 2": tasks.conv2d(dilation=2, padding=2, size=11),
    "1x1, batch 2": tasks.conv2d(kernel=1, padding=0, n=2, channels=24, out=8),
    "groups": tasks.conv2d(groups=2, channels=16, out=16),
    "depthwise 7x7": tasks.conv2d(template=DEPTHWISE, channels=14, block=7, lanes=7),
    "depthwise, stride 2, 5x5": tasks.conv2d(
        template=DEPTHWISE, channels=16, kernel=5, stride=2, padding=2, size=9, block=16, lanes=16
    ),
    "depthwise, dilation 2": tasks.conv2d(template=DEPTHWISE, dilation=2, padding=2, size=8),
    "winograd 7x7": tasks.conv2d(template=WINOGRAD),
    "winograd without padding, odd channels": tasks.conv2d(
        template=WINOGRAD, channels=6, out=5, block=3, lanes=5, size=9, padding=0
    ),
    "winograd, batch 2": tasks.conv2d(template=WINOGRAD, n=2, size=12),
    "dense": tasks.dense(7, 33, 13, 11),
    "dense of one row": tasks.dense(1, 64, 48, 32),
    "batch_matmul": tasks.batch_matmul(3, 7, 13, 5),
    "batch_matmul, vectors": tasks.batch_matmul(2, 8, 32, 16),
    "batch_matmul, both orders": tasks.batch_matmul(2, 5, 6, 9, transpose_a=1, transpose_b=0),
}


@pytest.mark.parametrize("count", [4, pytest.param(16, marks=pytest.mark.slow, id="many")])
@pytest.mark.parametrize("name", ODD)
def test_random_points_compute_what_numpy_computes(name: str, count: int, worker: Any, target: Any) -> None:
    spec = ODD[name]
    count //= 2 if "winograd" in name else 1  # which take seconds to build
    for number, index in enumerate(tasks.points(compiler_in_use().task(spec, target), count)):
        built = worker.build(number, Candidate(spec, index))
        assert built.error is None, built.error
        result = worker.measure(number, float("inf"), 1, 1.0, 1e9)
        assert result.error is None and result.checked, (index, result)
        assert result.samples_us[0] > 0


def test_the_reference_is_the_same_as_torch() -> None:
    torch = pytest.importorskip("torch")
    for groups, dilation, stride in ((1, 1, 1), (2, 2, 1), (4, 1, 2)):
        data = np.random.default_rng(0).standard_normal((2, 8, 9, 9)).astype("float32")
        weight = np.random.default_rng(1).standard_normal((12, 8 // groups, 3, 3)).astype("float32")
        mine = reference.convolve(data, weight, (stride, stride), (1, 1, 1, 1), (dilation, dilation))
        theirs = torch.nn.functional.conv2d(
            torch.from_numpy(data), torch.from_numpy(weight), None, stride, 1, dilation, groups
        )
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-4, atol=1e-4)


def test_a_wrong_output_is_told_with_its_size() -> None:
    spec = tasks.dense(4, 8, 16, 8)
    known = reference.reference_of(spec)
    assert known is not None and known.difference(known.output.astype("float32")) is None
    wrong = known.output.astype("float32").copy()
    wrong[1, 3] += 0.1 * np.abs(wrong).max()
    assert "wrong numbers: the error is 0.1" in str(known.difference(wrong))
    assert "shape" in str(known.difference(wrong[:2]))
    wrong[0, 0] = np.nan
    assert known.difference(wrong) is not None


@pytest.mark.parametrize("triple", ["aarch64-linux-gnu", "armv7l-linux-gnueabihf"])
@pytest.mark.parametrize("name", ["7x7", "depthwise 7x7", "winograd 7x7", "dense", "batch_matmul, vectors"])
def test_they_build_for_arm_with_vector_instructions(name: str, triple: str, tvm: Any) -> None:
    arm = tvm.target.Target(f"llvm -device=arm_cpu -mtriple={triple} -mattr=+neon")
    task = compiler_in_use().task(ODD[name], arm)
    assembly = task.build(tasks.points(task, 1)[0]).function.get_source("asm")
    multiply_adds = ("fmla", "fmul") if triple.startswith("aarch64") else ("vmla.f32", "vmul.f32", "vfma.f32")
    assert any(instruction in assembly for instruction in multiply_adds)


@pytest.mark.parametrize("name", ODD)
def test_points_and_knobs_are_the_same_thing(name: str, target: Any) -> None:
    task = compiler_in_use().task(ODD[name], target)
    for index in tasks.points(task, 10):
        schedule = task.schedule(index)
        assert task.point(schedule.knobs) == index == task.point(schedule.knobs, nearest=True)
        factors = {n: getattr(schedule.factors, n) for n in NAMES}
        assert factors["tile"] is not None and factors["reorder"] and factors["parallel"] and factors["unroll"]
    assert task.point({**schedule.knobs, "unroll": 17}) is None
    assert task.point({"other": 1}) is None and task.point({"other": 1}, nearest=True) is None


def test_the_factors_of_a_point_in_words(target: Any) -> None:
    task = compiler_in_use().task(tasks.conv2d(channels=32, out=32, size=8), target)
    knobs = {"tile_oc": 2, "tile_oh": 1, "tile_ow": 4, "split_ic": 8, "outer": 0, "fuse": 2, "reorder": 0}
    factors = task.factors({**knobs, "compute_at": 1, "vectorize": 8, "unroll": 1})
    assert factors.tile == {"oc": 2, "oh": 1, "ow": 4} and factors.split == {"ic": 8}
    assert factors.reorder == "n oc oh ow | ic.o ic.i kh kw"
    assert (factors.parallel, factors.fuse, factors.compute_at) == ("n oc oh", 3, "n oc oh")
    assert (factors.vectorize, factors.unroll) == (8, "tile")
    assert task.factors({**knobs, "compute_at": 0, "vectorize": 8, "unroll": 1}).compute_at == "root"
    assert task.factors({**knobs, "compute_at": -1, "vectorize": 8, "unroll": 1}).compute_at == "inline"
    assert task.factors({**knobs, "compute_at": 2, "vectorize": 8, "unroll": 1}).compute_at == "ow"


def test_tile_sizes() -> None:
    from op_profiler.compilers.relay.templates.nest import tile_sizes

    assert tile_sizes(7) == [1, 7]
    assert tile_sizes(28) == [1, 2, 4, 7, 28]
    assert tile_sizes(64) == [1, 2, 4, 8, 16, 32, 64]
    assert tile_sizes(90) == [1, 2, 3, 5, 6, 9, 10]


def test_what_does_not_fit_the_registers_is_not_in_the_space(target: Any) -> None:
    task = compiler_in_use().task(tasks.conv2d(channels=32, out=256, size=16), target)
    for index in tasks.points(task, 200):
        knobs = task.schedule(index).knobs
        lanes = 8 // knobs["vectorize"]
        assert knobs["tile_oc"] * knobs["tile_oh"] * knobs["tile_ow"] * lanes <= 32


def test_equal_tasks_have_equal_keys() -> None:
    assert tasks.dense(4, 8, 16, 8).key == tasks.dense(4, 8, 16, 8).key != tasks.dense(4, 8, 17, 8).key
    assert isinstance(tasks.dense(4, 8, 16, 8), TaskSpec)


def test_what_is_fused_behind_may_have_other_axes(tvm: Any, target: Any, tmp_path: Path) -> None:
    """A product of one row, broadcast over a batch by the addition behind it, under a record of ours."""
    from op_profiler.compilers.relay.relay_compiler import RELAY
    from op_profiler.schedules import record_files, records

    relay = tvm.relay
    data, other = relay.var("data", shape=(4, 48)), relay.var("other", shape=(3, 4, 64))
    weight = np.random.default_rng(0).standard_normal((64, 48)).astype("float32")
    total = relay.add(relay.nn.dense(data, relay.const(weight)), other)
    module = tvm.IRModule.from_expr(relay.Function([data, other], total))
    spec = tasks.dense(4, 64, 48, 2 * RELAY.vector_lanes(target))  # TVM packs a weight so by itself
    task = compiler_in_use().task(spec, target)
    index = tasks.points(task, 1)[0]
    assert task.point(task.schedule(index).knobs) == index
    config = task.config(index)
    file = tmp_path / "x.jsonl"
    record_files.keep(file, records.Record(str(target), spec.template, spec.arguments, config, (1e-9,)))
    from op_profiler.compilers.relay.applied_records import applied
    from op_profiler.compilers.relay.chosen import chosen_schedules
    from op_profiler.schedules.usable_records import UsableRecords

    shapes = [(4, 48), (3, 4, 64)]
    values = [np.random.default_rng(i).standard_normal(s).astype("float32") for i, s in enumerate(shapes)]
    with (
        applied(UsableRecords.of_file(file, records.Conditions(1))),
        chosen_schedules() as choices,
        tvm.transform.PassContext(opt_level=3),
    ):
        library = tvm.relay.build(module, target=target)
    assert spec.template in {choice.template for choice in choices._choices.values()}
    executor = tvm.contrib.graph_executor.GraphModule(library["default"](tvm.cpu()))
    executor.set_input("data", values[0])
    executor.set_input("other", values[1])
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), values[0] @ weight.T + values[1], rtol=1e-4, atol=1e-4)
