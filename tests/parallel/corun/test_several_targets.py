"""Several models that choose among several targets: here processors' cores, compiled for in two ways."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from op_profiler.cli.command import command
from op_profiler.cli.corun import corun
from op_profiler.cores import available_cores
from op_profiler.errors import MeasureError, UsageError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.parallel.corun import several_targets, target_workers, timing
from op_profiler.parallel.corun.request import CorunRequest, parse_targets
from op_profiler.parallel.corun.several_targets import corun_on_targets
from op_profiler.parallel.corun.target_workers import split_cores
from op_profiler.parallel.corun.timing import TimedWays
from op_profiler.parallel.planning.games import GameOutcome

COMMAND = typer.Typer()
COMMAND.command()(command(corun))
LLVM, GENERIC = "llvm", "llvm -keys=cpu"
two_cores = pytest.mark.skipif(len(available_cores()) < 2, reason="one core only: nothing can run beside another")


def asked(*names: str) -> tuple[ModelRequest, ...]:
    return tuple(ModelRequest(source="local", name=name) for name in names)


REQUEST = CorunRequest(models=asked("mlp", "mlp"), targets=(LLVM, GENERIC), policy="nash", threads=2, rounds=2)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("llvm", ["llvm"]),
        ("llvm,cuda", ["llvm", "cuda"]),
        ("llvm -mcpu=haswell , cuda -arch=sm_90", ["llvm -mcpu=haswell", "cuda -arch=sm_90"]),
        ("llvm -mattr=+avx,+fma,llvm -keys=arm_cpu,cpu", ["llvm -mattr=+avx,+fma", "llvm -keys=arm_cpu,cpu"]),
        ("llvm -mattr=+cuda,-llvm", ["llvm -mattr=+cuda,-llvm"]),
    ],
)
def test_targets_are_told_from_their_options(text: str, found: list[str]) -> None:
    assert list(parse_targets("--target", text)) == found


def test_cores_are_shared_out() -> None:
    cores = (0, 1, 4, 5, 6)
    assert split_cores(("llvm", "cuda"), cores) == [(0, 1, 4, 5), (6,)]
    assert split_cores(("cuda", "llvm", "llvm -keys=cpu"), cores) == [(0,), (1, 4), (5, 6)]
    assert split_cores(("llvm", "llvm -keys=cpu"), cores) == [(0, 1, 4), (5, 6)]
    assert split_cores(("llvm", "pynq"), cores) == [cores, ()]
    with pytest.raises(UsageError, match="2 targets need a core each, here are 1"):
        split_cores(("llvm", "cuda"), (3,))


@pytest.fixture(scope="module")
def built(tvm: Any) -> list[Any]:
    return several_targets._load(REQUEST, lambda text: None)


@pytest.fixture
def loaded(built: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Built once; a test may put others in their place."""
    found = list(built)
    monkeypatch.setattr(several_targets, "_load", lambda request, announce: found)
    return found


def choose(monkeypatch: pytest.MonkeyPatch, *choices: int) -> None:
    """Whatever the costs are."""
    outcome = GameOutcome(choices, makespan_us=5.0, worst_us=5.0, exact=True, equilibria=1, load_us=np.ones((2, 2)))
    monkeypatch.setattr(several_targets, "play", lambda load_us: outcome)


@two_cores
def test_models_run_at_once_each_on_cores_of_its_own(
    loaded: list[Any], watched: set[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two waits for the second one in the middle of a run."""
    choose(monkeypatch, 0, 1)
    both_at_once = threading.Barrier(2)
    seen: set[tuple[str, frozenset[int]]] = set()
    run_all, run = target_workers.run_all, target_workers.TargetWorker._run
    together = threading.Event()

    def all_of(work: Any) -> Any:
        together.set() if len(work) == 2 else together.clear()
        return run_all(work)

    def meet(worker: Any, number: int) -> Any:
        if together.is_set():
            both_at_once.wait(timeout=600)
            seen.add((worker.loaded.name, frozenset(os.sched_getaffinity(0))))
        return run(worker, number)

    monkeypatch.setattr(several_targets, "run_all", all_of)
    monkeypatch.setattr(target_workers.TargetWorker, "_run", meet)
    result = corun_on_targets(REQUEST, lambda text: None)
    first, second = available_cores()[:2]
    assert watched == {(first, second)}, "others are looked for on the cores of both"
    assert seen == {(LLVM, frozenset({first})), (GENERIC, frozenset({second}))}
    assert [(p.target, p.cores, p.models) for p in result.placements] == [
        (LLVM, (first,), ("mlp",)),
        (GENERIC, (second,), ("mlp",)),
    ]
    assert result.sequential.cores == (first, second) and result.sequential.models == ("mlp", "mlp")
    assert result.outputs_agree and 0 <= result.largest_difference < 1e-5


@two_cores
def test_auto_keeps_everything_on_one_target_where_that_is_faster(
    loaded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, 0, 1)
    time_in_turn: Callable[..., TimedWays] = timing.time_in_turn

    def slower(ways: Any, **limits: Any) -> TimedWays:
        timed = time_in_turn(ways, **limits)
        factors = np.ones(len(ways)) if len(ways) > 2 else np.array([1.0, 1e6])
        return dataclasses.replace(timed, samples_us=timed.samples_us * factors)

    monkeypatch.setattr(several_targets, "time_in_turn", slower)
    result = corun_on_targets(dataclasses.replace(REQUEST, policy="auto"), lambda text: None)
    assert result.placements == (result.sequential,)
    assert result.timed.speedup(1) < 1e-3, "what was measured is told"
    assert "was not faster than everything on" in result.notes[-1]
    assert result.outputs_equal


@two_cores
def test_a_model_that_fails_is_named_and_no_thread_is_left_behind(tvm: Any, loaded: list[Any]) -> None:
    works, other = loaded[1].graphs
    wrong = tvm.nd.empty((3,), "float32")
    broken = dataclasses.replace(other)
    broken.run = lambda: other.kernels[0].function(*[wrong] * len(other.kernels[0].arrays))
    loaded[1] = dataclasses.replace(loaded[1], graphs=(works, broken))
    before = threading.active_count()
    with pytest.raises(MeasureError, match=f"mlp failed on {GENERIC}: .*"):
        corun_on_targets(REQUEST, lambda text: None)
    assert threading.active_count() == before


@two_cores
def test_the_command_tells_who_runs_where(tmp_path: Path) -> None:
    found = tmp_path / "result.json"
    arguments = ["mlp", "mlp", "--target", f"{LLVM}, {GENERIC}", "--policy", "nash", "--rounds", "6"]
    done = CliRunner().invoke(COMMAND, [*arguments, "--threads", "2", "--json", str(found), "--quiet"])
    assert done.exit_code == 0, done.output
    assert "equilibria in all" in done.output and "side by side (nash)" in done.output
    result = json.loads(found.read_text())
    assert result["policy"] == "nash" and result["targets"] == [LLVM, GENERIC]
    assert min(result["sequential_us"], result["plan_us"], result["predicted_us"]) > 0
    assert (result["speedup"] is None) == (result["not_compared"] is not None)  # where others used the machine
    costs = np.array(result["costs_us"])
    assert costs.shape == (2, 2) and (costs > 0).all()
    assert result["price_of_anarchy"] >= result["price_of_stability"] >= 1 - 1e-9
    (stage,) = result["stages"]
    assert sorted(model for placement in stage for model in placement["models"]) == ["mlp", "mlp"]
    assert isinstance(result["outputs_equal"], bool)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["mlp", "mlp", "--target", "llvm,llvm -keys=cpu", "--merge", "--trace", "t.json"],
            "leave out --merge, --trace",
        ),
        (["mlp", "--target", "pynq", "--host", "127.0.0.1", "--port", "9190"], "--target llvm,pynq"),
        (["mlp", "--target", "llvm", "--streams", "2"], "--streams is for --target cuda"),
        (["mlp", "--target", "cuda", "--threads", "2"], "--threads has no meaning for cuda"),
    ],
)
def test_options_that_do_not_go_together_are_refused(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(COMMAND, arguments)
    assert isinstance(done.exception, UsageError) and words in str(done.exception)
