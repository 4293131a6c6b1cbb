"""``op-profiler corun`` as a user calls it, the choice of ``auto``, traces, and what enters the dataset."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.c_compiler import compiler
from op_profiler.collection.request import CollectRequest
from op_profiler.dataset import Dataset
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.load import ForeignLoad
from op_profiler.measure.rounds import Limits
from op_profiler.parallel.comparison import compare
from op_profiler.parallel.corun import Candidate, CorunRequest, best_of, candidates_of, corun
from op_profiler.parallel.loaded_models import Models
from op_profiler.parallel.measured_costs import in_order, measure_costs, plan_of
from op_profiler.parallel.planning.merge import merged
from op_profiler.parallel.planning.plan import Plan
from op_profiler.parallel.planning.policies.exhaustive import exhaustive
from op_profiler.parallel.planning.policies.ios import ios_candidates
from op_profiler.parallel.runtime.lane_executor import PlanExecutor
from op_profiler.parallel.stage_timer import StageTimer
from op_profiler.parallel.stored_coruns import record_coruns
from op_profiler.parallel.timing import (
    Load,
    Timed,
    Way,
    compare_outputs,
    in_quiet_rounds,
    surely_fastest,
    time_in_turn,
)
from op_profiler.report.corun import summary
from op_profiler.report.trace import chrome_trace


def _run(*arguments: str, code: int = 0, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, after a statement and with changes to the environment."""
    line = [sys.executable, "-c", f"import sys; {before}from op_profiler.cli import main; main()", "corun", *arguments]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two models at once: its JSON, its plan and its trace."""
    folder = tmp_path_factory.mktemp("corun")
    _run("mlp", "rnn", "--policy", "greedy", "--rounds", "7", "--schedules", "none", "--quiet",
         "--json", str(folder / "result.json"), "--save-plan", str(folder / "plan.json"),
         "--trace", str(folder / "trace.json"), "--db", f"sqlite:///{folder / 'd.db'}")  # fmt: skip
    return folder


def test_json_has_what_scripts_need(files: Path) -> None:
    found = json.loads((files / "result.json").read_text())
    assert found["policy"] == "greedy" and found["models"] == ["mlp", "rnn"]
    assert found["outputs_equal"] is True
    assert found["sequential_us"] > 0 and found["plan_us"] > 0 and found["predicted_us"] > 0
    if found["not_compared"] is None:
        low, high = found["speedup_interval"]
        assert low <= found["speedup"] <= high
    else:  # others used the machine
        assert found["foreign_load"] and found["speedup"] is found["speedup_interval"] is None
    for group in (group for stage in found["stages"] for group in stage):
        for operator in group["operators"]:
            assert 1 <= operator["threads_effective"] <= operator["threads"]
            assert operator["core_effective"] in group["cores"]
    there = [o["op"] for stage in found["stages"] for group in stage for o in group["operators"]]
    assert sorted(there) == list(range(len(there)))


def test_a_saved_plan_is_run_again_and_only_for_its_models(files: Path) -> None:
    plan = str(files / "plan.json")
    done = _run("mlp", "rnn", "--plan", plan, "--rounds", "1", "--schedules", "none", "--quiet")
    assert "bit for bit" in done.stdout
    done = _run("mlp", "--plan", plan, "--schedules", "none", code=2)
    assert "the plan is for mlp, rnn, not for mlp" in done.stderr


def test_the_trace_has_every_operator(files: Path) -> None:
    plan = Plan.from_json(json.loads((files / "plan.json").read_text()))
    events = json.loads((files / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {event["args"]["op"] for event in spans} == {step.node for step, _ in plan.steps}
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in spans)
    assert {event["tid"] for event in spans} <= set(plan.cores)


def test_co_runs_are_in_the_dataset(files: Path) -> None:
    with Dataset.open(f"sqlite:///{files / 'd.db'}", create=False) as dataset:
        found = dataset.coruns()
        names = {model.name for model in dataset.models()}
    assert names == {"mlp", "rnn"}
    for group in found:
        assert len(group.members) > 1
        for member in group.members:
            assert member.slowdown is not None and member.slowdown > 0
            assert member.settings.executor == "lanes"
            assert member.settings.core_set_effective == member.settings.core_set


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("mlp", "--policy", "gredy"), 2, "unknown policy 'gredy'; the nearest known: greedy"),
        (("mlp", "--threads", "4096"), 2, "--threads 4096 is not possible here"),
        (("mlp", "--costs", "guessed"), 2, "unknown costs 'guessed'"),
        (("nothing-of-that-name",), 2, "unknown local model"),
        (("mlp", "--rounds", "0"), 2, "--rounds 0 is out of range"),
    ],
)
def test_wrong_questions_get_an_answer(arguments: tuple[str, ...], code: int, reason: str) -> None:
    assert reason in _run(*arguments, code=code).stderr


def test_auto_needs_no_package_beyond_the_base() -> None:
    arguments = ("mlp", "mlp", "--rounds", "3", "--schedules", "none", "--json", "-")
    done = _run(*arguments, before="sys.modules['pygambit'] = None; ")
    (note,) = (note for note in json.loads(done.stdout)["notes"] if "pygambit" in note)
    assert "source ./env_var.sh predict" in note and "best responses solve all games" in note
    assert done.stderr.index(note) < done.stderr.index("lowering mlp"), "it is told before anything is built"


def test_without_a_compiler_it_says_so_at_once(tmp_path: Path) -> None:
    done = _run("mlp", code=5, PATH=str(tmp_path), CC="")
    assert "needs a C compiler: install gcc or clang" in done.stderr and "lowering" not in done.stderr
    done = _run("mlp", code=5, CC="no-such-compiler -O2")
    assert "there is no no-such-compiler" in done.stderr and "lowering" not in done.stderr


def test_the_compiler_may_be_a_command_with_arguments(tmp_path: Path) -> None:
    """As ``ccache gcc``: a launcher, here one that writes down what it is asked to do."""
    launcher = tmp_path / "launcher"
    launcher.write_text('#!/bin/sh\necho "$@" >>"$0.log"\nexec "$@"\n')
    launcher.chmod(0o755)
    _run("mlp", "--policy", "sequential", "--rounds", "1", "--quiet",
         CC=f"'{launcher}' {compiler()[0]} -g", OP_PROFILER_CACHE=str(tmp_path / "cache"))  # fmt: skip
    asked = (tmp_path / "launcher.log").read_text()
    assert "lanes.c" in asked and ".o" in asked, "it compiles the lanes and links the kernels"


def test_auto_tells_the_loss_that_it_measured(branching: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the best plan is slower than sequential, here since its machine is asked to do all twice and more."""
    run = PlanExecutor.run

    def slowly(executor: PlanExecutor) -> None:
        time.sleep(0.05)
        run(executor)

    monkeypatch.setattr(PlanExecutor, "run", slowly)
    monkeypatch.setattr("op_profiler.parallel.corun.load_models", lambda *_, **__: branching)
    monkeypatch.setattr("op_profiler.parallel.corun.mergeable", lambda _: False)
    asked = CollectRequest(model=ModelRequest(source="local", name="branching"))
    monkeypatch.setattr(CollectRequest, "check", lambda _: None)
    result = corun(CorunRequest(models=(asked,), cores=len(branching.cores), rounds=5), lambda text: None)
    assert result.timed.speedup(1) < 1
    found = result.to_json()
    assert found["policy"] == "sequential" and len(found["stages"]) == 1
    assert found["plan_us"] > found["sequential_us"], "what was measured is told"
    (note,) = (note for note in found["notes"] if "is not returned" in note)
    assert f"({found['compared_policy']})" in note
    told = summary(result)
    assert f"speed-up {found['speedup']:.3f}" in told if found["not_compared"] is None else "no speed-up" in told
    assert f"({result.compared.title})" in told
    assert result.outputs_equal


def test_auto_returns_nothing_that_is_slower_than_sequential() -> None:
    done = _run("rnn", "--policy", "auto", "--rounds", "9", "--schedules", "none", "--quiet", "--json", "-")
    found = json.loads(done.stdout)
    returned = not any("is not returned" in note for note in found["notes"])
    if found["not_compared"] is None:
        assert returned == (found["plan_us"] <= found["sequential_us"] and found["speedup"] >= 1)
    else:  # others used the machine, so that not all that decides is told
        assert not returned or found["plan_us"] <= found["sequential_us"]
    assert returned or found["policy"] == "sequential"
    assert found["outputs_equal"] is True


def test_outputs_are_compared_bit_for_bit() -> None:
    ones = np.ones(4, np.float32)
    assert compare_outputs([ones, ones], [ones, ones.copy()]) == (True, 0.0)
    assert compare_outputs([ones], [ones + np.float32(1e-3)]) == (False, pytest.approx(1e-3, rel=1e-3))
    assert compare_outputs([np.zeros(1)], [-np.zeros(1)]) == (False, 0.0)
    nan = np.array([np.nan, 2.0])
    assert compare_outputs([nan], [nan.copy()]) == (True, 0.0)
    assert compare_outputs([nan], [np.array([1.0, 2.0])]) == (False, np.inf)
    assert compare_outputs([], []) == (True, 0.0)


def test_merged_operators_give_nearly_the_same(branching_network: Any, target: Any) -> None:
    from op_profiler.building.requested_model import random_inputs
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.compilers.relay.tvm_build import runtime_device
    from op_profiler.measure.kernels import load_graph

    model, kinds = merged(branching_network)
    assert kinds == ("conv2d",)
    inputs = random_inputs(list(branching_network.inputs))
    device = runtime_device(target)
    outputs = [
        load_graph(compile_model(one, target), device, inputs).output_arrays()[0] for one in (branching_network, model)
    ]
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-4, atol=1e-6)


def test_a_model_without_parallel_operators_is_not_merged(small_network: Any) -> None:
    assert merged(small_network)[1] == ()


def test_ways_are_timed_in_turn() -> None:
    order: list[int] = []
    ways = [Way(lambda i=i: order.append(i), lambda: None) for i in range(3)]  # type: ignore[misc]
    timed = time_in_turn(ways, rounds=3, meter=None, limits=Limits())
    assert order == [0, 1, 2, 1, 2, 0, 2, 0, 1]
    assert timed.samples_us.shape == (3, 3)


def test_a_way_is_timed_when_what_ran_before_is_asleep() -> None:
    """One long run is enough; many short ones are as long as other threads look for work."""
    started: list[float] = []

    def run(seconds: float) -> None:
        started.append(time.perf_counter())
        time.sleep(seconds)

    time_in_turn([Way(lambda: None, lambda: run(1e-5))], rounds=1, meter=None, limits=Limits())
    assert started[-1] - started[0] >= 0.002
    started.clear()
    time_in_turn([Way(lambda: None, lambda: run(0.003))], rounds=1, meter=None, limits=Limits())
    assert len(started) == 2


class _Others:
    """Stands in for a machine that others use: the share that they use, reading after reading."""

    def __init__(self, *shares: float) -> None:
        self._shares = iter(shares)

    def read(self) -> ForeignLoad:
        share = next(self._shares)
        return ForeignLoad(share, share > 0.5)


@pytest.mark.parametrize(("patience_seconds", "taken", "foreign"), [(60.0, 4, False), (0.0, 2, True)])
def test_rounds_under_the_load_of_others_are_taken_again_or_marked(
    patience_seconds: float, taken: int, foreign: bool
) -> None:
    calls: list[int] = []
    limits = Limits(window_seconds=0.0001, repeat_seconds=patience_seconds)
    meter = _Others(0.0, 1.0, 1.0, 0.0, 0.0)

    def one_round(turn: int) -> int:
        calls.append(turn)
        time.sleep(0.001)
        return turn

    kept, load = in_quiet_rounds(one_round, rounds=2, meter=meter, limits=limits)
    assert kept == [0, 1]
    assert (len(calls), load.foreign, load.before) == (taken, foreign, 0.0)


def test_when_the_time_is_up_the_fewest_rounds_are_taken() -> None:
    kept, load = in_quiet_rounds(lambda turn: turn, rounds=9, meter=None, limits=Limits(), fewest=3, until=0.0)
    assert kept == [0, 1, 2]
    assert load.before is None


def test_a_way_gives_place_only_to_one_that_is_surely_faster() -> None:
    noise = np.random.default_rng(0).normal(0, 1, (15, 3))
    assert surely_fastest(np.array([10.0, 10.0, 9.9]) + noise, 0) == 0
    assert surely_fastest(np.array([10.0, 10.0, 9.9]) + noise, 1) == 1
    assert surely_fastest(np.array([10.0, 12.0, 6.0]) + noise, 0) == 2


def test_the_speedup_is_that_of_rounds_and_not_of_medians() -> None:
    timed = Timed(np.array([[10.0, 5.0], [40.0, 20.0], [20.0, 20.0]]), Load(False, None, None))
    assert timed.speedup(1) == 2.0
    assert timed.median_us.tolist() == [20.0, 20.0]


@pytest.mark.parametrize(
    ("ratios", "foreign", "compared"),
    [
        ([2.0, 1277.0, 900.0, 1.0, 1300.0], True, False),
        ([2.0, 1277.0, 900.0, 1.0, 1300.0], False, True),
        ([2.0] * 5, True, False),  # too few to tell how far the rounds agree
        ([1.0, 40.0] * 20, True, False),
        ([1.9, 2.0, 2.1] * 7, True, True),
    ],
)
def test_under_foreign_load_a_speedup_is_one_only_where_the_rounds_agree(
    ratios: list[float], foreign: bool, compared: bool
) -> None:
    timed = Timed(np.array([[10.0 * ratio, 10.0] for ratio in ratios]), Load(foreign, None, None))
    found = timed.to_json()
    assert found["foreign_load"] == foreign and found["rounds"] == len(ratios) and found["plan_us"] == 10.0
    if compared:
        assert found["speedup"] == pytest.approx(np.median(ratios)) and found["not_compared"] is None
    else:
        assert found["speedup"] is found["speedup_interval"] is None
        assert "was not obtained" in found["not_compared"] and "repeat it" in found["not_compared"]


def test_measured_stages_agree_with_the_exhaustive_search(branching: Models) -> None:
    costs = measure_costs(branching).costs
    timer = StageTimer(branching, rounds=3)
    found = ios_candidates(branching.graph, costs, branching.cores, count=1, stage_us=timer.us)
    asked = timer.count
    assert found.complete and asked > len(branching.graph)
    with branching.executor(plan_of(branching, "ios", found.candidates[0])) as executor:
        executor.run()
    if len(branching.graph) <= 12:
        best = exhaustive(branching.graph, costs, branching.cores)
        assert sorted(step.node for stage in best for step in stage.steps) == list(range(len(branching.graph)))


def test_auto_measures_running_in_order_by_blocks_and_by_rows(branching: Models) -> None:
    if len(branching.cores) < 2:
        pytest.skip("one core only")
    request = CollectRequest(model=ModelRequest(source="local", name="mlp"))
    candidates = candidates_of(CorunRequest(models=(request,), cores=2), branching, lambda text: None)
    profile = candidates[0].profile
    assert profile is not None and set(profile.in_order_us) == {"blocks", "rows"}
    assert {one.models.split for one in candidates[:-1]} == {profile.split} == {candidates[0].plan.split}
    other = candidates[-1].plan
    assert other.policy == "sequential" and other.split != profile.split
    assert other.predicted_us == profile.in_order_us[other.split]
    winner, tried = best_of(candidates, lambda text: None)
    assert {"sequential", "sequential, by rows"} <= {name for name, *_ in tried}
    assert any(winner is one for one in candidates)
    slow = [dataclasses.replace(one, plan=dataclasses.replace(one.plan, predicted_us=1e9)) for one in candidates]
    others = [dataclasses.replace(one, plan=dataclasses.replace(one.plan, policy="other")) for one in candidates * 4]
    tried = best_of([slow[0], *others, slow[-1]], lambda text: None)[1]
    assert {"sequential", "sequential, by rows"} <= {name for name, *_ in tried} and len(tried) == 6


def test_only_the_cores_in_use_are_watched(branching: Models, watched: set[tuple[int, ...]]) -> None:
    """Work of others elsewhere meets a plan's at the memory only."""
    models = dataclasses.replace(branching, cores=branching.cores[:1])
    candidate = Candidate(models, in_order(models, 1), measure_costs(models))
    best_of([candidate, candidate], lambda text: None)
    compare(models, candidate.plan, models, 1)
    assert watched == {branching.cores[:1]}


def test_nothing_is_stored_of_a_plan_without_neighbours(branching: Models, tmp_path: Path) -> None:
    """But for the operators beside their own copies."""
    plan = in_order(branching, 1)
    profile = measure_costs(branching)
    _, run = compare(branching, plan, branching, 1)
    request = CollectRequest(model=ModelRequest(source="local", name="mlp"))
    db = f"sqlite:///{tmp_path / 'd.db'}"
    count = record_coruns(db, [request], branching, profile, plan, run)
    distinct = len({node.operator.key for node in branching.graph.nodes})
    assert count == (distinct if len(branching.cores) > 1 else 0)


def test_the_trace_names_the_cores(branching: Models) -> None:
    plan = in_order(branching, len(branching.cores))
    with branching.executor(plan) as executor:
        executor.run()
        trace = chrome_trace(branching.graph, plan, executor.timeline_us())
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert names == [f"core {core}" for core in branching.cores]
