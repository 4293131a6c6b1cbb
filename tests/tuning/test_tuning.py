"""The search: every tuner, what it costs to go on, and which tasks an operator has."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from op_profiler.collection.studies.tune import measurement_of, trial_result
from op_profiler.collection.studies.vendor import _disturbed
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.relay.chosen import chosen_schedules
from op_profiler.compilers.relay.lower import compile_model
from op_profiler.compilers.relay.tasks import anchor_of, tunables
from op_profiler.compilers.relay.templates import register_templates
from op_profiler.errors import UnknownNameError
from op_profiler.measure.disturbance import UNSTEADY
from op_profiler.schedules.schedule import OWN_TEMPLATE
from op_profiler.tuning.candidate import Candidate, TaskSpec, TrialResult
from op_profiler.tuning.reference import Reference
from op_profiler.tuning.search import OperatorSearch, Search, make_tuner
from op_profiler.tuning.trials.runner import TrialLimits, TrialRunner
from op_profiler.tuning.tuners import TUNERS


def tensor(*shape: int) -> tuple[str, tuple[int, ...], str]:
    return ("TENSOR", shape, "float32")


DENSE = TaskSpec("dense_pack.op_profiler", (tensor(8, 32), tensor(2, 32, 16), None, "float32"))
STOCK = TaskSpec("dense_pack.x86", DENSE.arguments)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cost model is trained after four trials, and proposes the next four; the two best are compared at the end."""
    monkeypatch.setattr("op_profiler.compilers.relay.tuners.xgboost._PLAN", 4)
    monkeypatch.setattr("op_profiler.tuning.search._BATCH", 4)
    monkeypatch.setattr("op_profiler.tuning.search._FINAL_ROUNDS", 3)
    monkeypatch.setattr("op_profiler.tuning.search._FINALISTS", 2)


@pytest.fixture(scope="module")
def runner(target: Any, patient: TrialLimits) -> Iterator[TrialRunner]:
    with TrialRunner(str(target), 1, limits=patient) as made:
        yield made


class Counting:
    """A runner that counts what it is asked for."""

    def __init__(self, runner: TrialRunner) -> None:
        self.runner = runner
        self.asked = 0

    def run(self, candidates: Any, best_us: float) -> list[TrialResult]:
        self.asked += len(candidates)
        return self.runner.run(candidates, best_us)

    def compare(self, candidates: Any, rounds: int) -> list[TrialResult]:
        return self.runner.compare(candidates, rounds)


@pytest.mark.parametrize("tuner", list(TUNERS))
def test_every_tuner_makes_its_trials(tuner: str, runner: TrialRunner, target: Any) -> None:
    trials = 8
    search = OperatorSearch([DENSE], target, runner, tuner=tuner, trials=trials).run()
    tried = len({t.candidate.index for t in search.trials})
    assert len(search.trials) == tried
    assert tried == trials or (tuner == "droplet" and tried >= 2)  # it stops where no neighbour is better
    assert search.finalists and search.finalists[0].result.median_us <= search.finalists[-1].result.median_us
    assert search.best_after(trials) == min(t.result.median_us for t in search.trials)


def test_unknown_tuner(target: Any) -> None:
    with pytest.raises(UnknownNameError, match="random"):
        make_tuner("randm", compiler_in_use().task(DENSE, target), 0)


@pytest.mark.parametrize("tuner", ["random", "xgb_knob", "ga"])
def test_what_is_known_is_not_measured_again(tuner: str, runner: TrialRunner, target: Any) -> None:
    def search(trials: int, known: dict[str, TrialResult]) -> tuple[Search, int]:
        counting = Counting(runner)
        done = OperatorSearch(
            [DENSE], target, counting, tuner=tuner, trials=trials, defaults=[STOCK], known=lambda task: known
        ).run()
        return done, counting.asked

    first, asked = search(6, {})
    assert asked == 7 and first.trials[0].candidate == Candidate(STOCK, None)
    memory = {t.schedule.key: t.result for t in first.trials}
    again, asked = search(6, memory)
    assert asked == 0 and not any(t.new for t in again.trials)
    assert [t.schedule.key for t in again.trials] == [t.schedule.key for t in first.trials]
    longer, asked = search(9, memory)
    assert asked == 3 and [t.new for t in longer.trials] == [False] * 7 + [True] * 3


def test_a_resumed_search_tells_its_tuner_what_the_first_one_told() -> None:
    told = TrialResult(samples_us=(1.23456, 0.00049, 2.3456789))
    assert trial_result(measurement_of(told)) == told


def test_times_of_the_vendor_are_judged_as_ours() -> None:
    steady = TrialResult(samples_us=tuple(50.0 + 0.1 * (n % 5) for n in range(21)))
    apart = TrialResult(samples_us=tuple(50.0 if n % 2 else 400.0 for n in range(21)))
    loaded = dataclasses.replace(steady, foreign_load=True)
    found = {name: measurement_of(one) for name, one in (("vendor", apart), ("default", steady))}
    assert found["vendor"].disturbed_by == UNSTEADY and found["vendor"].median_us == 50.0
    assert _disturbed(found) == "unsteady: vendor"
    assert _disturbed({"default": measurement_of(steady)}) is None
    assert _disturbed({"vendor": measurement_of(loaded)}) == "background load"
    assert trial_result(measurement_of(loaded)) == loaded


def test_each_template_gets_a_share_and_the_best_the_rest(runner: TrialRunner, target: Any) -> None:
    search = OperatorSearch([DENSE, STOCK], target, runner, tuner="random", trials=16).run()
    by_template = [t.candidate.task.template for t in search.trials]
    assert len(by_template) == 16
    assert min(by_template.count(spec.template) for spec in (DENSE, STOCK)) >= 4
    assert {f.candidate.task.template for f in search.finalists} == {DENSE.template, STOCK.template}


def test_what_is_not_finite_must_be_so_in_both() -> None:
    right = np.array([1.0, np.nan, np.inf], "float32")
    reference = Reference([], lambda position, shape: None, lambda array: array, right)
    assert reference.difference(right.copy()) is None
    for wrong in ([1.0, 2.0, np.inf], [np.nan, np.nan, np.inf]):
        assert "1 are not finite" in str(reference.difference(np.array(wrong, "float32")))
    assert "the error is" in str(reference.difference(np.array([3.0, np.nan, np.inf], "float32")))


def test_own_tasks_are_those_that_a_build_asks_for(small_network: Any, target: Any) -> None:
    register_templates()
    with chosen_schedules() as choices:
        compiled = compile_model(small_network, target)
    seen = 0
    for occurrence in compiled.occurrences:
        asked = [TaskSpec(*task) for task in choices.tasks_of(occurrence)]
        own = [spec for spec in asked if spec.template.endswith(OWN_TEMPLATE)]
        mine = [
            spec
            for spec in (compiler_in_use().own_tasks(anchor_of(occurrence)) if own else ())
            if "winograd" not in spec.template
        ]
        assert mine == own
        seen += len(own)
    assert seen >= 4


def test_operators_with_one_anchor_are_tuned_once(small_network: Any, target: Any) -> None:
    register_templates()
    with chosen_schedules() as choices:
        compiled = compile_model(small_network, target)
    items = tunables(list(compiled.occurrences), choices)
    assert len({item.anchor.key for item in items}) == len(items)
    convolutions = [item for item in items if "conv2d" in item.anchor.anchor]
    winograd = [[t.template for t in item.tasks] for item in convolutions]
    assert ["conv2d_NCHWc.op_profiler", "conv2d_NCHWc_winograd.op_profiler"] in winograd
    assert ["conv2d_NCHWc.op_profiler"] in winograd  # the one with stride 2
    assert all(item.default is not None and item.default.template.endswith(".x86") for item in items)
    assert all(item.anchor.op_names == (item.anchor.anchor,) for item in items)
    assert tunables([], choices) == []
