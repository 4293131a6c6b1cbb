"""Plans as files, and plans that are refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from op_profiler.parallel.planning.graph import KernelGraph
from op_profiler.parallel.planning.plan import ROWS, Group, Plan, PlanError, Stage, Step, read_plan
from op_profiler.testing.graphs import diamond


def _check(plan: Plan, graph: KernelGraph) -> None:
    plan.check(graph, device="d0", processor="a processor", cores=(0, 1))


def _plan(graph: KernelGraph, stages: tuple[Stage, ...]) -> Plan:
    return Plan("by hand", graph.models, graph.digest, "d0", "a processor", stages, 12.5)


@pytest.fixture
def graph() -> KernelGraph:
    return diamond()


@pytest.fixture
def plan(graph: KernelGraph) -> Plan:
    """First node on both cores, the two in the middle side by side, the last on both."""
    first = Stage((Group((Step(0, 2),), (0, 1)),))
    middle = Stage((Group((Step(1, 1),), (0,)), Group((Step(2, 1),), (1,))))
    return _plan(graph, (first, middle, Stage((Group((Step(3, 2),), (0, 1)),))))


def test_a_plan_comes_back_from_its_file(graph: KernelGraph, plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan.to_json(graph)))
    assert read_plan(path) == plan
    _check(read_plan(path), graph)
    names = [o["name"] for stage in json.loads(path.read_text())["stages"] for g in stage for o in g["operators"]]
    assert names == [node.name for node in graph.nodes]


def test_how_operators_are_cut_comes_back_too(plan: Plan, graph: KernelGraph) -> None:
    by_rows = dataclasses.replace(plan, split=ROWS)
    assert Plan.from_json(by_rows.to_json(graph)) == by_rows
    assert by_rows.title == "by hand, by rows"
    older = plan.to_json(graph)
    del older["split"]
    assert Plan.from_json(older) == plan


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda p: p.update(models=["another"]), "the plan is for another, not for"),
        (lambda p: p.update(device="d1"), "for device d1"),
        (lambda p: p.update(graph="0" * 16), "another build of"),
        (lambda p: p["stages"].pop(), "leaves out 1 operator: 3"),
        (lambda p: p["stages"].append(p["stages"][0]), "runs operators [0] more than once"),
        (lambda p: p["stages"][0][0]["operators"][0].update(op=9), "names operators [9]"),
        (lambda p: p["stages"][0][0].update(cores=[0, 5]), "uses cores [5]"),
        (lambda p: p["stages"][1][1].update(cores=[0]), "two groups share a core"),
        (lambda p: p["stages"][1][1]["operators"][0].update(threads=2), "is to have 2 threads on 1 core"),
        (lambda p: p["stages"].insert(0, p["stages"].pop(1)), "has not run by then: a cycle"),
        (lambda p: p.update(format="something else"), '"format" has to be'),
        (lambda p: p.update(version=99), "of version 99"),
        (lambda p: p.pop("merged"), "missing required field `merged`"),
        (lambda p: p.update(split="columns"), '"split" is \'columns\'; it has to be "blocks" or "rows"'),
        (lambda p: p["stages"][0][0]["operators"][0].update(op=True), "Expected `int`, got `bool`"),
        (lambda p: p["stages"][0][0].update(cores=[0.5]), "Expected `int`, got `float` - at `$.stages[0][0].cores[0]`"),
        (lambda p: p.update(models="mlp"), "Expected `array`, got `str` - at `$.models`"),
        (lambda p: p.update(predicted_us="fast"), "got `str` - at `$.predicted_us`"),
        (
            lambda p: p["stages"][0][0]["operators"][0].update(threads="2"),
            "Expected `int`, got `str` - at `$.stages[0][0].operators[0].threads`",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_difference(
    graph: KernelGraph, plan: Plan, change: Change, reason: str
) -> None:
    found = json.loads(json.dumps(plan.to_json(graph)))
    change(found)
    with pytest.raises(PlanError) as error:
        _check(Plan.from_json(found), graph)
    assert reason in str(error.value)
    assert error.value.exit_code == 2


def test_groups_of_a_stage_may_not_read_from_each_other(graph: KernelGraph) -> None:
    stages = (Stage((Group((Step(0, 1),), (0,)), Group((Step(1, 1), Step(2, 1), Step(3, 1)), (1,)))),)
    with pytest.raises(PlanError, match="in another group of the stage"):
        _check(_plan(graph, stages), graph)


def test_a_file_that_is_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text("{")
    with pytest.raises(PlanError, match="no plan that can be read"):
        read_plan(path)
    with pytest.raises(PlanError, match="no plan that can be read"):
        read_plan(tmp_path / "missing.json")


def test_the_digest_is_of_structure_and_not_of_names(graph: KernelGraph) -> None:
    renamed = [dataclasses.replace(node, name=f"other_{node.index}") for node in graph.nodes]
    assert KernelGraph(("other",), tuple(renamed)).digest == graph.digest
    cut = [dataclasses.replace(node, inputs=()) for node in graph.nodes]
    assert KernelGraph(graph.models, tuple(cut)).digest != graph.digest
