"""MetaSchedule's automatic space, searched by our tuners."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tuned import convolution, dense, drawn, model_of

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.relax.pipeline import lower
from op_profiler.compilers.relax.vectors import divisor, vectors_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.schedules import record_files
from op_profiler.schedules.records import Conditions, Record
from op_profiler.schedules.usable_records import UsableRecords
from op_profiler.tuning.candidate import TaskSpec
from op_profiler.tuning.reference import unwritten_array
from op_profiler.tuning.search import OperatorSearch, candidate_of
from op_profiler.tuning.task import InvalidPointError
from op_profiler.tuning.trials.runner import TrialRunner
from op_profiler.tuning.tunable import Tunable


def _automatic(target: Any, shape: tuple[int, ...], body: Any) -> Tunable:
    (item,), _ = compiler_in_use().tunables(model_of(shape, body), target, None, "automatic")
    return item


def test_sketches_of_metaschedule_are_spaces_whose_points_compute_the_same(quick: Any) -> None:
    item = _automatic(quick, (1, 6, 9, 14), convolution((28, 6, 3, 3), padding=1, strides=2))
    assert item.default is not None and item.default.template == "conv2d_NCHWc.relax"
    assert [spec.template for spec in item.tasks] == [f"metaschedule.{number}" for number in range(len(item.tasks))]
    tvm, built, block = load_tvm(), 0, divisor(28, vectors_of(quick).lanes)
    for spec in item.tasks:
        task = compiler_in_use().task(spec, quick)
        assert {"tile_oh", "tile_ow", "split_ici", "unroll"} <= task.knobs.keys()
        default = task.point(task.default().knobs)
        assert default is not None and task.schedule(default) == task.applied(default) == task.default()
        factors = task.applied(default).factors
        assert factors.reorder is not None and factors.parallel is not None and factors.fuse is not None
        assert (
            factors.reorder.startswith("n.0 oc.0 oh.0 ow.0 lane.0 ") and " | ic.0 kh.0 kw.0 ici.0 " in factors.reorder
        )
        assert factors.parallel.startswith("n oc oh") and factors.fuse >= 3
        vectors = task.point(task.default().knobs | {"tile_lane": [1, 1, 1, block], "tile_ow": [7, 1, 1, 1]})
        assert vectors is not None and task.applied(vectors).factors.vectorize == block
        reference = task.reference()
        assert reference is not None
        arrays = [tvm.runtime.tensor(array) for array in reference.arrays]
        for point in [default, *drawn(task, 2)]:
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
    places = [name for name in compiler_in_use().task(item.tasks[0], target).knobs if name.startswith("compute_at")]
    assert places == ["compute_at_data_pad"]
    text, template = json.loads(item.tasks[0].arguments[-1]), item.tasks[0].template
    text[2][places[0]][1].append(39)
    spec = TaskSpec(template, (*item.tasks[0].arguments[:-1], json.dumps(text)))
    task = compiler_in_use().task(spec, target)
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
    assert best.schedule.factors.reorder is not None and " | " in best.schedule.factors.reorder

    task = best.candidate.task
    record = Record(str(target), task.template, task.arguments, best.config, (1e-5,), conditions=Conditions(1))
    assert record_files.keep(tmp_path, record)
    (read,) = record_files.read_records(tmp_path)[0]
    assert (read.template, read.knobs) == (best.schedule.template, best.schedule.knobs)
    assert candidate_of(read, item.specs, target) == best.candidate
    model = model_of((7, 33), dense)
    built = compiler_in_use().build(model, target, UsableRecords.of_file(tmp_path, Conditions(1)))
    schedule = built.schedules[item.anchor.key]
    assert (schedule.origin, schedule.knobs) == ("tuned", best.schedule.knobs)
    assert schedule.factors == best.schedule.factors
    with target:
        applied = load_tvm().relax.transform.MetaScheduleApplyDatabase(str(tmp_path / "1-threads-model"))(
            lower(model.mod, target).kernels
        )
    assert sum("tirx.is_scheduled" in (function.attrs or {}) for _, function in applied.functions_items()) == 1
