"""``op-profiler corun`` as a user calls it: its files, its errors, and the choice of ``auto``."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from op_profiler.c_compiler import compiler
from op_profiler.dataset import Dataset
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.parallel.corun.comparison import compare
from op_profiler.parallel.corun.models import Models, in_order
from op_profiler.parallel.corun.request import CorunRequest
from op_profiler.parallel.corun.run import corun_on_one_target
from op_profiler.parallel.planning.plan import Plan
from op_profiler.parallel.runtime.lane_executor import PlanExecutor
from op_profiler.report.corun import _show_sweep, chrome_trace, summary

from ...command_line import op_profiler


def _run(*arguments: str, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, with changes to the environment."""
    done = op_profiler("corun", *arguments, environment=environment)
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
    done = op_profiler("corun", *arguments, without=["pygambit"])
    assert done.returncode == 0, done.stderr
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


def test_a_speed_up_stands_beside_its_interval_or_why_it_has_none(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    few = _run("mlp", "--policy", "sequential", "--rounds", "3", "--quiet", "--report", str(page)).stdout
    assert "too few rounds for an interval" in few or "no speed-up" in few  # where others used the machine
    assert ("times as fast (too few rounds for an interval)" in page.read_text()) == ("no speed-up" not in few)
    found = json.loads((files / "result.json").read_text())
    row = found | {"machine": "here", "asked_policy": "greedy", "error": None, "speedup": 1.5}
    for interval, told in (([1.25, 1.75], "1.500 (1.250 to 1.750, 95 %)"), (None, "1.500 (too few rounds")):
        _show_sweep([row | {"speedup_interval": interval}])
        assert told in capsys.readouterr().out


@pytest.mark.slow  # the choice is asked for in test_candidates.py, and below what is returned
def test_auto_tells_the_loss_that_it_measured(branching: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the best plan is slower than sequential, here since it is held up once it was chosen: for longer than
    others hold up a run, and for as many runs as are timed."""
    run = PlanExecutor.run
    rounds = 3
    held_up_runs = iter(range(2 * rounds))  # one that settles threads, and one that is timed

    def slowly(executor: PlanExecutor) -> None:
        if next(held_up_runs, None) is not None:
            time.sleep(0.6)
        run(executor)

    def compared(*arguments: Any) -> Any:
        with monkeypatch.context() as held_up:
            held_up.setattr(PlanExecutor, "run", slowly)
            return compare(*arguments)

    monkeypatch.setattr("op_profiler.parallel.corun.run.compare", compared)
    monkeypatch.setattr("op_profiler.parallel.corun.run.load_models", lambda *_, **__: branching)
    monkeypatch.setattr("op_profiler.parallel.corun.candidates.mergeable", lambda _: False)
    monkeypatch.setattr("op_profiler.parallel.corun.candidates._CHOICE_SECONDS", 0.0)
    asked = ModelRequest(source="local", name="branching")
    request = CorunRequest(models=(asked,), threads=len(branching.cores), rounds=rounds)
    result = corun_on_one_target(request, lambda text: None)
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


def test_the_trace_names_the_cores(branching: Models) -> None:
    plan = in_order(branching, len(branching.cores))
    with branching.executor(plan) as executor:
        executor.run()
        trace = chrome_trace(branching.graph, plan, executor.timeline_us())
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert names == [f"core {core}" for core in branching.cores]
