"""Knobs of the default rules, the search over them, and records as MetaSchedule's databases."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import constant, module, quickly_built, small_network

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relax.pipeline import lower
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.errors import ModelError
from op_profiler.schedules import records
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.records import Conditions, Record
from op_profiler.schedules.usable_records import UsableRecords
from op_profiler.targets.target import resolve_target
from op_profiler.testing.compiler import NO_RECORDS
from op_profiler.tuning.candidate import Candidate, TaskSpec, candidate_of
from op_profiler.tuning.reference import unwritten_array
from op_profiler.tuning.search import OperatorSearch
from op_profiler.tuning.task import InvalidPointError, Task
from op_profiler.tuning.trials.runner import TrialLimits, TrialRunner
from op_profiler.tuning.tunable import Tunable

SHAPE = (1, 16, 12, 12)


@pytest.fixture(scope="module")
def target() -> Any:
    load_tvm()
    return resolve_target("llvm")


@pytest.fixture(scope="module")
def quick(target: Any) -> Any:
    return quickly_built(target)


def tunable(target: Any, shape: tuple[int, ...], body: Any, rule: str = "") -> Tunable:
    """What can be tuned in a model of one op, or the one that gets a rule."""
    model = ImportedModel("one", "test", module(shape, body), {}, (InputSpec("data", shape),))
    items, _ = compiler_in_use().tunables(model, target, None)
    (item,) = [one for one in items if one.tasks[0].template.startswith(rule)]
    return item


def convolution(weight: tuple[int, ...], **options: Any) -> Any:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        made = relax.op.add(relax.op.nn.conv2d(data, constant(*weight), **options), constant(1, weight[0], 1, 1))
        return relax.op.nn.relu(made)

    return body


def dense(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.nn.relu(relax.op.matmul(data, constant(33, 48)))


def batched(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.matmul(data, relax.op.permute_dims(data, [0, 2, 1]))


def transposed(builder: Any, relax: Any, data: Any) -> Any:
    made = relax.op.nn.conv2d_transpose(data, constant(6, 24, 4, 4), strides=2, padding=1)
    return relax.op.nn.relu(builder.emit(made))


def pooling(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.nn.max_pool2d(data, pool_size=(3, 2), strides=2, padding=1)


def pooling_of_blocks(builder: Any, relax: Any, data: Any) -> Any:
    made = builder.emit(relax.op.nn.conv2d(data, constant(48, 16, 1, 1)))
    return relax.op.nn.avg_pool2d(made, pool_size=3, strides=1, padding=1)


def sums(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.sum(data, axis=[0, 2])


def mean(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.mean(data, axis=[2, 3])


def softmax(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.nn.softmax(data, axis=-1)


def layer_norm(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.nn.gelu(relax.op.nn.layer_norm(data, constant(40), constant(40), axes=[-1]))


CASES = [
    ("conv2d_NCHWc", (2, 6, 9, 14), convolution((28, 6, 3, 3), padding=(1, 0, 2, 1), strides=2)),
    ("conv2d_NCHWc", (1, 24, 7, 10), convolution((24, 1, 3, 3), padding=2, groups=24, dilation=2)),
    ("conv2d_NCHWc", (1, 64, 8, 6), convolution((64, 16, 3, 3), padding=1, groups=4)),
    ("conv", (1, 12, 10, 9), convolution((8, 6, 3, 3), groups=2, padding=1)),
    ("matmul", (7, 33), dense),
    ("matmul", (3, 12, 20), batched),
    ("conv2d_transpose", (2, 6, 5, 7), transposed),
    ("reduction", (2, 5, 11, 13), pooling),
    ("reduction", (1, 16, 9, 6), pooling_of_blocks),
    ("reduction", (3, 5, 4, 48), sums),
    ("rows", (2, 6, 6, 8), mean),
    ("rows", (6, 8, 64), softmax),
    ("rows", (9, 40), layer_norm),
]


@pytest.mark.parametrize(("rule", "shape", "body"), CASES)
def test_points_compute_what_the_kernel_does_before_it_is_scheduled(
    quick: Any, rule: str, shape: tuple[int, ...], body: Any
) -> None:
    item = tunable(quick, shape, body, rule)
    (spec,) = item.tasks
    assert spec == item.default and spec.template == f"{rule}.relax"
    task, tvm = spec.create(quick), load_tvm()
    default = task.point(task.default().knobs)
    assert default is not None and task.schedule(default) == task.default()
    reference = task.reference()
    assert reference is not None
    arrays = [tvm.runtime.tensor(array) for array in reference.arrays]
    built = 0
    for point in [None, *_corners(task), *_drawn(task, 2)]:
        try:
            made = task.build(point)
        except InvalidPointError:
            with pytest.raises(InvalidPointError):
                task.config(point)
            continue
        output = tvm.runtime.tensor(unwritten_array(*made.tensors[made.output]))
        made.function["main"](*arrays, output)
        assert reference.difference(output.numpy()) is None, point
        built += 1
    assert built >= 4


def _corners(task: Task) -> list[int]:
    """The default with the last value of one knob: each inlined, fused, unrolled and reordered as far as can be."""
    default = task.default().knobs
    changed = [default | {name: values[end]} for name, values in task.knobs.items() for end in (0, -1)]
    points = {task.point(knobs) for knobs in changed if knobs != default}
    valid = [point for point in points if point is not None]
    return sorted(valid)[:: max(len(valid) // 3, 1)]


def _drawn(task: Task, count: int) -> list[int]:
    random.seed(0)
    return [task.random_point() for _ in range(count)]


def test_what_the_knobs_do_stands_in_the_columns_of_the_dataset(target: Any) -> None:
    task = tunable(target, (1, 64, 8, 6), convolution((32, 64, 3, 3), padding=1)).tasks[0].create(target)
    others = {"tile_oc": 1, "tile_oh": 2, "split_ici": 4, "fuse": 1, "compute_at": -1, "unroll": 2}
    knobs = task.default().knobs | others
    point = task.point(knobs | {"tile_ow": 3})
    assert point is not None
    factors = task.schedule(point).factors
    assert factors.tile == {"oc": 1, "oh": 2, "ow": 3} and factors.split == {"ici": 4}
    assert factors.compute_at == "inline" and factors.unroll == "tile and reduction"
    assert factors.reorder == "n oc oh ow | ic kh kw ici.o ici.i" and factors.parallel == "n oc" and factors.fuse == 2


def test_what_the_knobs_of_rows_do_stands_in_the_same_columns_and_records_of_them_are_used(target: Any) -> None:
    shape = (6, 8, 64)
    item = tunable(target, shape, softmax)
    knobs = {"tile_row": 4, "split_k": 32, "fuse": 1, "compute_at": -1, "vectorize": 8, "unroll": 2}
    record = _record(target, item, knobs)
    model = ImportedModel("one", "test", module(shape, softmax), {}, (InputSpec("data", shape),))
    built = compiler_in_use().build(model, target, UsableRecords.only(record))
    found = built.schedules[item.anchor.key]
    assert (found.template, found.origin, found.knobs) == ("rows.relax", "tuned", knobs)
    factors = Factors(tile={"row": 4}, split={"k": 32}, fuse=1, compute_at="inline", vectorize=8)
    assert found.factors == dataclasses.replace(factors, unroll="row", parallel="rows")
    data = np.random.default_rng(1).standard_normal(shape).astype("float32")
    (made,) = compiler_in_use().load(built.compiled, runtime_device(target), {"data": data}).output_arrays()
    expected = np.exp(data) / np.exp(data).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(made, expected, rtol=1e-4)


@pytest.fixture(scope="module")
def runner(target: Any) -> Iterator[TrialRunner]:
    limits = TrialLimits(build_seconds=600.0, run_seconds=600.0, minimum_us=100.0)
    with TrialRunner(str(target), 1, limits=limits) as made:
        yield made


@pytest.mark.parametrize("tuner", ["trees", "random"])
def test_a_search_in_processes_checks_the_outputs(
    target: Any, runner: TrialRunner, tuner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("op_profiler.tuning.search._FINAL_ROUNDS", 3)
    monkeypatch.setattr("op_profiler.tuning.tuners.trees._FIRST", 4)
    monkeypatch.setattr("op_profiler.tuning.search._BATCH", 5)
    item = tunable(target, (7, 33), dense)
    found = OperatorSearch(item.tasks, target, runner, tuner=tuner, trials=10, defaults=item.tasks).run()
    assert len(found.trials) == 11 and len({trial.candidate.index for trial in found.trials}) == 11
    assert all(trial.result.checked for trial in found.trials if trial.result.error is None)
    assert found.default is not None and found.finalists[0].result.median_us <= found.default.result.median_us
    default, *others = found.trials
    twins = [trial for trial in others if trial.schedule.key == default.schedule.key]
    assert not any(trial.new for trial in twins) and (twins or tuner != "trees")
    finalists = [finalist.schedule.key for finalist in found.finalists]
    assert len(finalists) == len(set(finalists))


def _automatic(target: Any, shape: tuple[int, ...], body: Any) -> Tunable:
    model = ImportedModel("one", "test", module(shape, body), {}, (InputSpec("data", shape),))
    (item,), _ = compiler_in_use().tunables(model, target, None, "automatic")
    return item


def test_sketches_of_metaschedule_are_spaces_whose_points_compute_the_same(quick: Any) -> None:
    item = _automatic(quick, (1, 6, 9, 14), convolution((28, 6, 3, 3), padding=1, strides=2))
    assert item.default is not None and item.default.template == "conv2d_NCHWc.relax"
    assert [spec.template for spec in item.tasks] == [f"metaschedule.{number}" for number in range(len(item.tasks))]
    tvm, built = load_tvm(), 0
    for spec in item.tasks:
        task = spec.create(quick)
        assert {"tile_oh", "tile_ow", "split_ici", "unroll"} <= task.knobs.keys()
        default = task.point(task.default().knobs)
        assert default is not None and task.schedule(default) == task.default()
        reference = task.reference()
        assert reference is not None
        arrays = [tvm.runtime.tensor(array) for array in reference.arrays]
        for point in [default, *_drawn(task, 2)]:
            try:
                made = task.build(point)
            except InvalidPointError:
                continue
            output = tvm.runtime.tensor(unwritten_array(*made.tensors[made.output]))
            made.function["main"](*arrays, output)
            assert reference.difference(output.numpy()) is None, point
            built += 1
    assert built >= len(item.tasks)


def test_a_place_that_a_sketch_has_not_got_is_refused(target: Any) -> None:
    item = _automatic(target, (1, 6, 9, 14), convolution((28, 6, 3, 3), padding=1, strides=2))
    places = [name for name in item.tasks[0].create(target).knobs if name.startswith("compute_at")]
    assert places == ["compute_at_data_pad"]
    text, template = json.loads(item.tasks[0].arguments[-1]), item.tasks[0].template
    text[2][places[0]][1].append(39)
    spec = TaskSpec(template, (*item.tasks[0].arguments[:-1], json.dumps(text)))
    task = spec.create(target)
    point = task.point(task.default().knobs | {places[0]: 39})
    assert point is not None
    with pytest.raises(InvalidPointError, match="cannot be computed there"):
        task.build(point)


def test_a_search_of_the_automatic_space_gives_records_that_builds_use(
    target: Any, runner: TrialRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("op_profiler.tuning.search._FINAL_ROUNDS", 2)
    item = _automatic(target, (7, 33), dense)
    assert item.default is not None
    found = OperatorSearch(item.tasks, target, runner, tuner="random", trials=6, defaults=[item.default]).run()
    assert found.default is not None and found.default.candidate.task == item.default
    best = next(f for f in found.finalists if f is not found.default)
    assert best.schedule.template.startswith("metaschedule.") and best.result.checked
    assert best.schedule.factors.tile is not None and best.schedule.factors.split is not None

    task = best.candidate.task
    record = Record(str(target), task.template, task.arguments, best.config, (1e-5,), conditions=Conditions(1))
    assert records.keep(tmp_path, record)
    (read,) = records.read_records(tmp_path)[0]
    assert (read.template, read.knobs) == (best.schedule.template, best.schedule.knobs)
    assert candidate_of(read, item.specs, target) == best.candidate
    model = ImportedModel("one", "test", module((7, 33), dense), {}, (InputSpec("data", (7, 33)),))
    built = compiler_in_use().build(model, target, UsableRecords.of_file(tmp_path, Conditions(1)))
    schedule = built.schedules[item.anchor.key]
    assert (schedule.origin, schedule.knobs) == ("tuned", best.schedule.knobs)
    assert schedule.factors == best.schedule.factors
    with target:
        applied = load_tvm().relax.transform.MetaScheduleApplyDatabase(str(tmp_path / "1-threads-model"))(
            lower(model.mod, target).kernels
        )
    assert sum("tirx.is_scheduled" in (function.attrs or {}) for _, function in applied.functions_items()) == 1


def test_operators_that_differ_in_a_number_only_are_tuned_apart(target: Any) -> None:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        made = data
        for least in (0.1, 0.2):
            made = builder.emit(relax.op.nn.conv2d(made, constant(16, 16, 3, 3), padding=1))
            made = builder.emit(relax.op.maximum(made, relax.const(least)))
        return made

    model = ImportedModel("two", "test", module(SHAPE, body), {}, (InputSpec("data", SHAPE),))
    items, occurrences = compiler_in_use().tunables(model, target, None)
    assert len({item.anchor.key for item in items}) == 2
    numbers = [attrs["scalars"] for one in occurrences for attrs in one.operator.attrs if "scalars" in attrs]
    assert sorted(numbers) == [[pytest.approx(0.1)], [pytest.approx(0.2)]]


def test_a_cold_search_flushes_the_weights_only(target: Any) -> None:
    reference = tunable(target, (7, 33), dense).tasks[0].create(target).reference()
    assert reference is not None
    assert [reference.is_weight(array.shape) for array in reference.arrays] == [False, True]


@pytest.fixture(scope="module")
def small(target: Any) -> tuple[ImportedModel, list[Tunable]]:
    model = ImportedModel("small", "test", small_network(), {}, (InputSpec("data", SHAPE),))
    return model, compiler_in_use().tunables(model, target, None)[0]


def _record(target: Any, item: Tunable, knobs: dict[str, int]) -> Record:
    """Of the default with other values of some knobs."""
    (spec,) = item.tasks
    task = spec.create(target)
    point = task.point(task.default().knobs | knobs)
    assert point is not None
    config = task.config(point)
    return Record(str(target), spec.template, spec.arguments, config, (1e-5,), conditions=Conditions(1))


def _output(built: Any, target: Any) -> np.ndarray:
    data = np.random.default_rng(1).standard_normal(SHAPE).astype("float32")
    output: np.ndarray = (
        compiler_in_use().load(built.compiled, runtime_device(target), {"data": data}).output_arrays()[0]
    )
    return output


def test_records_are_databases_that_builds_and_tvm_s_own_pass_read(
    target: Any, small: tuple[ImportedModel, list[Tunable]], tmp_path: Path
) -> None:
    model, items = small
    convolutions = [item for item in items if "conv2d" in item.anchor.anchor]
    place = tmp_path / "processor.metaschedule"
    for item in convolutions:
        assert records.keep(place, _record(target, item, {"tile_oh": 3, "tile_ow": 4, "compute_at": -1}))
    usable = UsableRecords.of_file(place, Conditions(2))
    assert len(usable.chosen) == len(convolutions) == 2 and usable.skipped == 0

    plain, built = (compiler_in_use().build(model, target, one) for one in (NO_RECORDS, usable))
    assert built.asked >= usable.chosen.keys()
    assert any("other conditions (1 thread" in note for note in usable.notes(built.asked))
    for item in convolutions:
        schedule = built.schedules[item.anchor.key]
        assert schedule.origin == "tuned" and schedule.knobs["tile_ow"] == 4 and schedule.factors.compute_at == "inline"
        assert plain.schedules[item.anchor.key].origin == "default"
    np.testing.assert_allclose(_output(built, target), _output(plain, target), rtol=1e-4, atol=1e-6)

    tvm = load_tvm()
    with target:
        applied = tvm.relax.transform.MetaScheduleApplyDatabase(str(place / "1-threads-model"))(
            lower(model.mod, target).kernels
        )
    functions = [f for _, f in applied.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    assert sum(bool(f.attrs.get("tirx.is_scheduled")) for f in functions) == 2


def test_records_of_another_version_are_told_of_or_used_as_far_as_they_fit(
    target: Any, small: tuple[ImportedModel, list[Tunable]]
) -> None:
    model, items = small
    item = next(item for item in items if "conv2d" in item.anchor.anchor)
    record = _record(target, item, {"unroll": 0})
    fewer = record.config | {"entity": [knob for knob in record.config["entity"] if knob[0] != "fuse"]}
    for other in (dataclasses.replace(record, template="gone.relax"), dataclasses.replace(record, config=fewer)):
        found = compiler_in_use().build(model, target, UsableRecords.only(other)).schedules[item.anchor.key]
        assert (found.template, found.origin, found.factors) == (other.template, "tuned", Factors())

    trace = json.loads(json.dumps(record.config["trace"]).replace('"root"', '"gone"'))
    unfit = UsableRecords.only(dataclasses.replace(record, config=record.config | {"trace": trace}))
    built = compiler_in_use().build(model, target, unfit)
    assert built.schedules[item.anchor.key].origin == "default"
    assert any("no longer fit" in note for note in built.compiled.notes)
    assert built.refused == unfit.chosen.keys() and not unfit.notes(built.asked - built.refused)
    occurrence = next(one for one in built.compiled.occurrences if one.operator.key == item.anchor.key)
    with pytest.raises(ModelError, match="no longer fits"):
        compiler_in_use().build_operator(occurrence, target, unfit)


def test_a_record_is_the_candidate_that_it_was_made_of(
    target: Any, small: tuple[ImportedModel, list[Tunable]], tmp_path: Path
) -> None:
    item = small[1][0]
    record = _record(target, item, {"unroll": 0})
    records.keep(tmp_path, record)
    (read,) = records.read_records(tmp_path)[0]
    assert (read.computation, read.knobs, read.conditions) == (record.computation, record.knobs, record.conditions)
    assert candidate_of(read, item.specs, target) == Candidate(item.tasks[0], record.config["index"])
    again = dataclasses.replace(_record(target, item, {"unroll": 2}), seconds=(2e-5,))
    assert not records.keep(tmp_path, again) and records.keep(tmp_path, again, [read])
    (kept,) = records.read_records(tmp_path)[0]
    assert kept.knobs["unroll"] == 2 and kept.seconds == (2e-5,)


def test_a_database_of_tvm_s_own_tools_is_applied(
    target: Any, small: tuple[ImportedModel, list[Tunable]], tmp_path: Path
) -> None:
    model, items = small
    load_tvm()
    from tvm import s_tir
    from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord

    from op_profiler.compilers.relax.tuning.workload import module_of

    item = next(item for item in items if "dense" in item.anchor.anchor)
    mod = module_of(item.tasks[0].arguments)
    schedule = s_tir.Schedule(mod)
    *_, last = schedule.get_child_blocks(schedule.get_sblock("root"))
    schedule.parallel(schedule.get_loops(last)[0])
    database = JSONDatabase(work_dir=str(tmp_path))
    database.commit_tuning_record(TuningRecord(schedule.trace, database.commit_workload(mod), [1e-6], target))

    file = records.record_file(str(tmp_path), "relax/llvm", "some processor", compiler_in_use().record_form)
    assert file == tmp_path
    usable = UsableRecords.of_file(file, Conditions(1))
    built = compiler_in_use().build(model, target, usable)
    found = built.schedules[item.anchor.key]
    assert (found.template, found.origin, found.knobs) == ("metaschedule", "tuned", {})
    expected = _output(compiler_in_use().build(model, target, NO_RECORDS), target)
    np.testing.assert_allclose(_output(built, target), expected, rtol=1e-4, atol=1e-6)
