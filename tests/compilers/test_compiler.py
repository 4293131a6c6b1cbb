"""What every compiler answers: the contract of `op_profiler.compilers.compiler`."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from op_profiler.compilers.compiled_model import BuiltModel
from op_profiler.compilers.compiler import NotKept, compiler_in_use
from op_profiler.operators.cost import HEAVY
from op_profiler.schedules.records import Conditions
from op_profiler.schedules.usable_records import UsableRecords

NONE = UsableRecords.of_file(None, Conditions(1, "model"))


@pytest.fixture(scope="module")
def built(small_network: Any, target: Any) -> BuiltModel:
    return compiler_in_use().build(small_network, target, NONE)


def test_a_compiler_answers_everything() -> None:
    assert not inspect.isabstract(type(compiler_in_use()))
    assert (Path(inspect.getfile(type(compiler_in_use()))).parent.name) == compiler_in_use().name


def test_fusing_gives_the_operators_of_a_build(small_network: Any, target: Any, built: BuiltModel) -> None:
    operators = compiler_in_use().operators(small_network, target)
    assert [o.operator.key for o in operators] == [o.operator.key for o in built.compiled.occurrences]
    fused = compiler_in_use().fuse(lambda: operators, target, NONE)
    assert fused.occurrences == operators and fused.asked and fused.asked <= built.asked


def test_every_operator_of_a_build_has_a_schedule(built: BuiltModel) -> None:
    keys = {occurrence.operator.key for occurrence in built.compiled.by_label.values()}
    assert built.schedules.keys() == keys
    heavy = [o for o in built.compiled.occurrences if o.operator.anchor in HEAVY]
    assert heavy and all(built.schedules[o.operator.key].template != "injective" for o in heavy)


def test_an_operator_is_built_alone_with_the_schedule_of_the_model(built: BuiltModel, target: Any) -> None:
    occurrence = next(o for o in built.compiled.occurrences if o.operator.anchor in HEAVY)
    model = compiler_in_use().single_operator(occurrence)
    assert len(model.inputs) == len(occurrence.operator.inputs) + len(occurrence.operator.params)
    alone = compiler_in_use().build_operator(occurrence, target, NONE)
    assert [o.label for o in alone.compiled.occurrences] == [occurrence.label]
    assert alone.schedules == {occurrence.operator.key: built.schedules[occurrence.operator.key]}


def test_what_can_be_tuned_are_the_anchors_of_heavy_operators(small_network: Any, target: Any) -> None:
    items, occurrences = compiler_in_use().tunables(small_network, target, None)
    heavy = {o.operator.key for o in occurrences if o.operator.anchor in HEAVY}
    assert {key for item in items for key in item.operators} == heavy
    assert all(item.tasks and item.anchor.anchor in HEAVY for item in items)
    one, _ = compiler_in_use().tunables(small_network, target, {items[0].operators[0]})
    assert [item.anchor.key for item in one] == [items[0].anchor.key]


def test_only_heavy_operators_have_tasks_in_place(built: BuiltModel, target: Any) -> None:
    for occurrence in built.compiled.occurrences:
        tasks = compiler_in_use().tasks(occurrence, target)
        assert bool(tasks) == (occurrence.operator.anchor in HEAVY)


def test_a_built_model_is_read_back(built: BuiltModel, tmp_path: Path) -> None:
    compiler_in_use().write(tmp_path, built.compiled)
    read = compiler_in_use().read(tmp_path)
    assert read.by_label.keys() == built.compiled.by_label.keys()
    assert [o.operator for o in read.occurrences] == [o.operator for o in built.compiled.occurrences]
    assert (read.executor, read.notes, read.loops) == (
        built.compiled.executor,
        built.compiled.notes,
        built.compiled.loops,
    )


def test_damaged_files_are_no_model(built: BuiltModel, tmp_path: Path) -> None:
    compiler_in_use().write(tmp_path, built.compiled)
    next(tmp_path.glob("*.bc")).write_bytes(b"nothing")
    with pytest.raises(NotKept):
        compiler_in_use().read(tmp_path)
