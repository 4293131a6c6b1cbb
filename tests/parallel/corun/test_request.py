"""What cannot work is refused before anything is loaded."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from op_profiler.cores import usable_cores
from op_profiler.errors import UsageError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.parallel.corun.request import CorunRequest
from op_profiler.targets.machine import Place

LLVM, GENERIC = "llvm", "llvm -keys=cpu"


def asked(*names: str) -> tuple[ModelRequest, ...]:
    return tuple(ModelRequest(source="local", name=name) for name in names)


REQUEST = CorunRequest(models=asked("mlp", "mlp"), targets=(LLVM, GENERIC), policy="nash", threads=2, rounds=2)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"models": asked("mlp")}, "name another model"),
        ({"policy": "ios"}, "--policy ios plans for one target; with several give nash or auto"),
        ({"rounds": 0}, "--rounds 0 is out of range"),
        ({"targets": ("llvm", "llvm")}, "cuda once, one board, and llvm with different options"),
        ({"targets": ("cuda", "cuda -arch=sm_90")}, "cuda once"),
        ({"targets": ("llvm", "pynq")}, "give --host and --port"),
        ({"targets": ("llvm", "pynq", "arm_cpu")}, "one board"),
        ({"place": Place(host="127.0.0.1", port=9190, key="pynq")}, "add pynq or arm_cpu to the targets"),
        ({"threads": 10_000}, "--threads 10000 is not possible here"),
    ],
)
def test_what_cannot_work_on_several_targets_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        dataclasses.replace(REQUEST, **changes).check()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"policy": "collaborate"}, "tunes for processors"),
        ({"costs": "predicted"}, "leave out --costs"),
        ({"db": "sqlite:///x.db"}, "and --db"),
    ],
)
def test_what_is_not_possible_on_a_gpu_is_refused(changes: dict[str, Any], words: str) -> None:
    request = CorunRequest(models=(ModelRequest(source="local", name="mlp"),), targets=("cuda",), policy="ios")
    with pytest.raises(UsageError, match=words):
        dataclasses.replace(request, **changes).check()


def test_predicted_costs_are_refused_where_plans_are_tuned() -> None:
    with pytest.raises(UsageError, match="--costs"):
        CorunRequest(models=asked("mlp"), policy="collaborate", costs="predicted", threads=1).check()


def test_options_of_plans_are_refused_where_there_is_none() -> None:
    for changes in ({"merge": True}, {"db": "sqlite:///x.db"}, {"costs": "predicted"}):
        (option,) = changes
        with pytest.raises(UsageError, match=f"leave out --{option}"):
            dataclasses.replace(REQUEST, **changes).check()


def test_what_is_not_said_is_all_cores_and_four_streams() -> None:
    assert CorunRequest(models=asked("mlp")).cores == usable_cores()
    assert CorunRequest(models=asked("mlp"), targets=("cuda",)).cores == 4
    with pytest.raises(UsageError, match="--threads has no meaning for cuda"):
        CorunRequest(models=asked("mlp"), targets=("cuda",), threads=2).check()
    with pytest.raises(UsageError, match="--streams is for --target cuda"):
        CorunRequest(models=asked("mlp"), streams=2).check()


def test_every_target_gets_a_request_of_its_own() -> None:
    place = Place(host="127.0.0.1", port=9190, key="pynq")
    request = dataclasses.replace(REQUEST, targets=(LLVM, "pynq"), place=place, schedules="none")
    here, there = request.on(LLVM), request.on("pynq")
    assert [one.model for one in here] == [one.model for one in there] == list(request.models)
    assert {(one.target, one.place, one.schedules) for one in here} == {(LLVM, None, "none")}
    assert {(one.target, one.place, one.threads) for one in there} == {("pynq", place, (1, 2))}
