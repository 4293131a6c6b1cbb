"""Operators under other schedules in a plan, and the search that tunes those that run side by side."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest

from op_profiler.errors import MeasureError, OpProfilerError
from op_profiler.measure.kernels import GraphKernels
from op_profiler.measure.load import ForeignLoad
from op_profiler.parallel.corun.candidates import proposals
from op_profiler.parallel.corun.collaborate import Collaboration, batches, collaborate
from op_profiler.parallel.corun.costs import Profile, measure_costs
from op_profiler.parallel.corun.models import Models, in_order, plan_of
from op_profiler.parallel.corun.schedule_variants import Variants
from op_profiler.parallel.corun.timing import Load, in_quiet_rounds
from op_profiler.parallel.planning.plan import Group, Plan, PlanError, Stage, Step
from op_profiler.schedules.schedule import Schedule

Schedules = dict[str, tuple[Schedule, ...]]


@pytest.fixture(scope="module")
def built() -> list[Variants]:
    """Where the first test leaves its kernels."""
    return []


@pytest.fixture
def branching(branching: Models, built: list[Variants]) -> Models:
    """All tests share the kernels that they build under other schedules."""
    if not built:
        built.append(branching.variants)
    vars(branching)["variants"] = built[0]
    return branching


def _schedules(models: Models, wanted: dict[str, int]) -> Schedules:
    """For each operator that has a template the schedule whose knobs are nearest to the wanted ones (0 elsewhere)."""
    found: Schedules = {}
    for label in dict.fromkeys(models.labels):
        for task in models.variants.tasks(label):
            point = task.point({name: wanted.get(name, 0) for name in task.knobs}, nearest=True)
            assert point is not None
            found[label] = (*found.get(label, ()), task.schedule(point))
    return found


@pytest.fixture
def slow(branching: Models) -> Schedules:
    """One element at a time: no register tile, nothing unrolled, half a vector."""
    return _schedules(branching, {})


@pytest.fixture
def good(branching: Models) -> Schedules:
    """A register tile of seven vectors, unrolled."""
    return _schedules(branching, {"tile_ow": 7, "split_ic": 16, "vectorize": 64, "unroll": 1})


@pytest.fixture
def profile(branching: Models, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """Of all rounds, also where others use the machine."""
    monkeypatch.setattr("op_profiler.parallel.corun.costs._SECONDS", 600.0)
    return measure_costs(branching)


def _from_core_to_core(models: Models, schedules: Schedules) -> Plan:
    """From core to core; every operator has the first of its schedules."""
    stages = []
    for node, label in enumerate(models.labels):
        own = schedules.get(label, (None,))[0]
        stages.append(Stage((Group((Step(node, 1, own),), (models.cores[node % len(models.cores)],)),)))
    return plan_of(models, "by hand", tuple(stages))


def _outputs(models: Models, plan: Plan) -> list[np.ndarray]:
    with models.executor(plan) as executor:
        executor.run()
        return [array.copy() for array in executor.outputs()]


class TestSchedulesInAPlan:
    def test_compute_the_same_and_come_back_from_the_file(self, branching: Models, good: Schedules) -> None:
        plan = _from_core_to_core(branching, good)
        expected = _outputs(branching, in_order(branching, 1))
        again = Plan.from_json(json.loads(json.dumps(plan.to_json(branching.graph))))
        assert again == plan
        assert sum(step.schedule is not None for step, _ in again.steps) >= 4
        assert not plan.as_built
        assert in_order(branching, 1).as_built
        np.testing.assert_allclose(_outputs(branching, again)[0], expected[0], rtol=1e-4, atol=1e-5)

    def test_change_what_an_operator_takes(self, branching: Models, good: Schedules, slow: Schedules) -> None:
        heavy = max(branching.graph.nodes, key=lambda node: node.operator.flops).index
        label = branching.labels[heavy]
        took: list[list[float]] = [[], []]
        with branching.executor(in_order(branching, 1)) as executor:
            for _ in range(15):
                for samples, schedules in zip(took, (good, slow)):
                    executor.use(branching.functions({heavy: schedules[label][-1]}))
                    executor.run()
                    executor.run()
                    start, end = executor.timeline_us()[heavy]
                    samples.append(end - start)
        assert np.min(took[0]) < 0.7 * np.min(took[1])

    def test_without_templates_or_with_strange_knobs_are_refused(self, branching: Models, good: Schedules) -> None:
        label, (schedule, *_) = next(iter(good.items()))
        strange = dataclasses.replace(schedule, knobs={**schedule.knobs, "unroll": 7})
        with pytest.raises(PlanError, match=r"conv2d.*unroll': 7.*no such knobs"):
            branching.variants.function(label, strange)
        softmax = branching.labels[-1]
        with pytest.raises(PlanError, match="softmax"):
            branching.executor(_from_core_to_core(branching, {softmax: (schedule,)}))

    def test_that_compute_something_else_are_refused(
        self, branching: Models, good: Schedules, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        label, (schedule, *_) = next(iter(good.items()))
        variants = dataclasses.replace(branching).variants  # without the kernels that were built before
        own = variants._own[label]

        def other(*arrays: Any) -> None:
            own(*arrays)
            arrays[-1].copyfrom(1.01 * arrays[-1].numpy())

        monkeypatch.setitem(variants._own, label, other)
        with pytest.raises(PlanError, match=r"something else: its error is 9\.9e-03"):
            variants.function(label, schedule)

    def test_are_read_only_when_they_are_whole(self, branching: Models) -> None:
        plain = in_order(branching, 1).to_json()
        for wrong in ({"template": "conv2d"}, {"template": 3, "knobs": {}}, {"template": "conv2d", "knobs": [1]}, "x"):
            plain["stages"][0][0]["operators"][0]["schedule"] = wrong
            with pytest.raises(
                PlanError, match=r"the plan cannot be read.* - at `\$\.stages\[0\]\[0\]\.operators\[0\]\.schedule"
            ):
                Plan.from_json(plain)


def test_a_function_for_another_operator_fails_with_the_name_and_leaves_when_told(branching: Models) -> None:
    kernels = cast("GraphKernels", branching.loaded[0]).kernels
    with branching.executor(in_order(branching, 1)) as executor:
        executor.use({1: kernels[-1].function})
        with pytest.raises(MeasureError, match=kernels[1].name):
            executor.run()
        executor.use({})
        executor.run()
        np.testing.assert_array_equal(executor.outputs()[0], _outputs(branching, in_order(branching, 1))[0])


@pytest.fixture
def tuned(branching: Models, profile: Profile, good: Schedules, slow: Schedules) -> Iterator[Collaboration]:
    schedules = {label: (*slow[label], *good[label]) for label in good}
    yield collaborate(branching, profile, schedules, seconds=20)


def test_tuning_keeps_the_outputs_and_takes_no_slow_schedule(
    branching: Models, tuned: Collaboration, slow: Schedules
) -> None:
    expected = _outputs(branching, in_order(branching, 1))
    for stages in (tuned.alone, tuned.jointly):
        plan = plan_of(branching, "collaborate", stages)
        np.testing.assert_allclose(_outputs(branching, plan)[0], expected[0], rtol=1e-4, atol=1e-5)
        heavy = max(branching.graph.nodes, key=lambda node: node.operator.flops).index
        (chosen,) = [step.schedule for step, _ in plan.steps if step.node == heavy]
        assert chosen not in slow[branching.labels[heavy]]
    assert len(tuned.alone_us) == len(tuned.jointly_us) == len(tuned.alone) == len(tuned.jointly)
    assert min(*tuned.alone_us, *tuned.jointly_us) >= 0
    assert tuned.predicted_us > 0
    members = [[sorted(step.node for step in stage.steps) for stage in each] for each in (tuned.alone, tuned.jointly)]
    assert members[0] == members[1]
    for row in tuned.to_json():
        assert len(tuned.alone[int(row["stage"])].groups) > 1 or len(tuned.jointly[int(row["stage"])].groups) > 1
    _was_measured_alone(tuned)


def _was_measured_alone(tuned: Collaboration) -> None:
    """All that is in one of the plans, and every schedule that was tried."""
    steps = [step for stages in (tuned.alone, tuned.jointly) for stage in stages for step in stage.steps]
    assert tuned.profile.tuned_us
    assert all(len(alone) >= 7 and np.median(alone) > 0 for alone in tuned.profile.tuned_us.values())
    for step in steps:
        alone = tuned.profile.alone(step)
        assert alone is not None and len(alone) >= 7 and np.median(alone) > 0


@pytest.mark.slow  # the search above chooses between the same schedules
def test_a_model_that_was_built_slow_is_given_its_good_schedules(
    branching: Models, good: Schedules, slow: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search sees kernels that are slow in place of those of the build, and another choice for each."""
    functions = Models.functions

    def built_slow(models: Models, schedules: dict[int, Schedule | None]) -> Any:
        own = {node: slow.get(label, (None,))[0] for node, label in enumerate(models.labels)}
        return functions(models, {node: schedules.get(node) or own[node] for node in own})

    monkeypatch.setattr(Models, "functions", built_slow)
    heavy = max(branching.graph.nodes, key=lambda node: node.operator.flops).index

    def gives_a_good_one() -> bool:
        found = collaborate(branching, measure_costs(branching), good, seconds=20)
        stages = (*found.alone, *found.jointly)
        chosen = [step.schedule for stage in stages for step in stage.steps if step.node == heavy]
        assert len(chosen) == 2
        return all(schedule in good[branching.labels[heavy]] for schedule in chosen)

    assert any(gives_a_good_one() for _ in range(10)), "under load a search may be sure of nothing, but not ten"


def test_a_search_waits_for_others_once_and_not_at_every_comparison(
    branching: Models, profile: Profile, good: Schedules, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Others:
        def read(self) -> ForeignLoad:
            return ForeignLoad(1.0, True)

    waited: list[float] = []

    def counted(*arguments: Any, **options: Any) -> tuple[list[Any], Load]:
        kept, load = in_quiet_rounds(*arguments, **options)
        waited.append(load.repeated_seconds)
        return kept, load

    machine = branching.machine
    monkeypatch.setattr(machine, "meter", lambda cores=None: Others())
    monkeypatch.setattr(machine, "limits", dataclasses.replace(machine.limits, repeat_seconds=0.1))
    monkeypatch.setattr("op_profiler.parallel.corun.collaborate.in_quiet_rounds", counted)
    found = collaborate(branching, profile, good, seconds=20)
    assert found.foreign_load and len(waited) > 2
    assert waited[0] >= 0.1 and not any(waited[1:])


def test_on_one_core_there_is_nothing_to_share(branching: Models, good: Schedules) -> None:
    alone = dataclasses.replace(branching, cores=branching.cores[:1])
    vars(alone)["variants"] = branching.variants
    found = collaborate(alone, measure_costs(alone), good, seconds=5)
    assert found.shared == ()
    assert found.jointly == found.alone


def test_operators_of_a_batch_have_no_neighbour_in_common() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 30):
        beside = rng.random((size, size)) < 0.1
        beside |= beside.T | np.eye(size, dtype=bool)
        found = batches(range(size), beside)
        assert sorted(node for batch in found for node in batch) == list(range(size))
        for batch in found:
            assert (beside[batch].sum(axis=0) <= 1).all()
    assert batches([2, 0, 1], np.eye(3, dtype=bool)) == [[2, 0, 1]]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    from op_profiler.prediction.schedules.suggestions import load_trials
    from op_profiler.shipped import shipped_trials

    return load_trials(None, shipped_trials(), print)[::60]


def test_proposals_are_built_and_heavy_operators_come_first(branching: Models, rows: list[dict[str, Any]]) -> None:
    heavy = next(node for node, label in enumerate(branching.labels) if len(branching.variants.tasks(label)) == 1)
    latency_us = np.where(np.arange(len(branching.graph)) == heavy, 100.0, 1.0)
    found = proposals(branching, latency_us, rows, seconds=0.01)
    assert next(iter(found)) == branching.labels[heavy]
    assert len(found) < sum(bool(branching.variants.tasks(label)) for label in set(branching.labels))
    plan = _from_core_to_core(branching, {label: schedules for label, schedules in found.items() if schedules})
    assert not plan.as_built
    expected = _outputs(branching, in_order(branching, 1))
    np.testing.assert_allclose(_outputs(branching, plan)[0], expected[0], rtol=1e-4, atol=1e-5)


def test_too_few_trials_are_an_error_that_tells_what_to_do(branching: Models, rows: list[dict[str, Any]]) -> None:
    with pytest.raises(OpProfilerError, match="tune some models first"):
        proposals(branching, np.zeros(len(branching.graph)), rows[:3], seconds=1)
