"""Records of schedules as MetaSchedule's databases."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import small_network
from tuned import model_of, record_of, softmax, tunable

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relax.pipeline import lower
from op_profiler.compilers.tvm_build import load_tvm, runtime_device
from op_profiler.errors import ModelError
from op_profiler.schedules import record_files
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.records import Conditions
from op_profiler.schedules.usable_records import UsableRecords
from op_profiler.testing.compiler import NO_RECORDS
from op_profiler.tuning.candidate import Candidate
from op_profiler.tuning.search import candidate_of
from op_profiler.tuning.tunable import Tunable

SHAPE = (1, 16, 12, 12)


def test_what_the_knobs_of_rows_do_stands_in_the_same_columns_and_records_of_them_are_used(target: Any) -> None:
    shape = (6, 8, 64)
    item = tunable(target, shape, softmax)
    knobs = {"tile_row": 4, "split_k": 32, "fuse": 1, "compute_at": -1, "vectorize": 8, "unroll": 2}
    record = record_of(target, item, knobs)
    built = compiler_in_use().build(model_of(shape, softmax), target, UsableRecords.only(record))
    found = built.schedules[item.anchor.key]
    assert (found.template, found.origin, found.knobs) == ("rows.relax", "tuned", knobs)
    factors = Factors(tile={"row": 4}, split={"k": 32}, fuse=1, compute_at="inline", vectorize=8)
    assert found.factors == dataclasses.replace(factors, unroll="row", parallel="rows")
    data = np.random.default_rng(1).standard_normal(shape).astype("float32")
    (made,) = compiler_in_use().load(built.compiled, runtime_device(target), {"data": data}).output_arrays()
    expected = np.exp(data) / np.exp(data).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(made, expected, rtol=1e-4)


@pytest.fixture(scope="module")
def small(target: Any) -> tuple[ImportedModel, list[Tunable]]:
    model = ImportedModel("small", "test", small_network(), {}, (InputSpec("data", SHAPE),))
    return model, compiler_in_use().tunables(model, target, None)[0]


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
        assert record_files.keep(place, record_of(target, item, {"tile_oh": 3, "tile_ow": 4, "compute_at": -1}))
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
    record = record_of(target, item, {"unroll": 0})
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
    record = record_of(target, item, {"unroll": 0})
    record_files.keep(tmp_path, record)
    (read,) = record_files.read_records(tmp_path)[0]
    assert (read.computation, read.knobs, read.conditions) == (record.computation, record.knobs, record.conditions)
    assert candidate_of(read, item.specs, target) == Candidate(item.tasks[0], record.config["index"])
    again = dataclasses.replace(record_of(target, item, {"unroll": 2}), seconds=(2e-5,))
    assert not record_files.keep(tmp_path, again) and record_files.keep(tmp_path, again, [read])
    (kept,) = record_files.read_records(tmp_path)[0]
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

    file = record_files.record_file(str(tmp_path), "relax/llvm", "some processor", compiler_in_use().record_form)
    assert file == tmp_path
    usable = UsableRecords.of_file(file, Conditions(1))
    built = compiler_in_use().build(model, target, usable)
    found = built.schedules[item.anchor.key]
    assert (found.template, found.origin, found.knobs) == ("metaschedule", "tuned", {})
    expected = _output(compiler_in_use().build(model, target, NO_RECORDS), target)
    np.testing.assert_allclose(_output(built, target), expected, rtol=1e-4, atol=1e-6)
