"""What is built ahead for which machines."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("distributed")

from processes import request

from op_profiler.collection.lookup import stored_for
from op_profiler.collection.request import Studies, TuneRequest
from op_profiler.collection.sampling.draw import Draw
from op_profiler.fleet import machine as fleet_machine
from op_profiler.fleet.ahead import maker
from op_profiler.fleet.ahead.order import order_for
from op_profiler.fleet.machine import Compiles, FleetMachine, builds_at_once
from op_profiler.fleet.tasks import CalibrateTask, CollectTask, CorunTask, SampleTask, Task
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.parallel.corun.request import CorunRequest

MLP = ModelRequest(source="local", name="mlp")


def machine(**others: Any) -> FleetMachine:
    told: dict[str, Any] = {"host": "a", "host_id": "a", "processor": "a", "features": (), "cores": 1, "version": "1"}
    compilers = {"relay": Compiles("tvm 1 on x86_64", "llvm -mcpu=znver5", "5eed")}
    return FleetMachine(**{**told, "memory_bytes": 1, "measures": {"llvm": "a"}, "compilers": compilers, **others})


OTHERS = [
    machine(compilers={"relay": Compiles("tvm 1 on x86_64", "llvm -mcpu=skylake", "5eed")}),
    machine(compilers={"relay": Compiles("tvm 0 on x86_64", "llvm -mcpu=znver5", "5eed")}),
    machine(compilers={"relay": Compiles("tvm 1 on x86_64", "llvm -mcpu=znver5", "c0de")}),
    machine(compilers={}),
]


def test_builds_are_for_the_machines_that_may_measure() -> None:
    task = CollectTask(request("sqlite:///a.db"))
    order = order_for(task, [machine(), machine(measures={"llvm": "b"})])
    assert order is not None and order.count == 1
    assert [(one.target, one.machines, one.merge) for one in order.models] == [("llvm -mcpu=znver5", ("a", "b"), False)]
    for machines in (*([machine(), other] for other in OTHERS), []):
        assert order_for(task, machines) is None
    named = order_for(CollectTask(task.request.of(target="llvm -mcpu=core-avx2")), [machine()])
    assert named is not None and named.models[0].target == "llvm -mcpu=core-avx2"
    for other_task in (dataclasses.replace(task.request, dry_run=True), task.request.of(target="cuda")):
        assert order_for(CollectTask(other_task), [machine()]) is None
    tuned = order_for(CollectTask(dataclasses.replace(task.request, studies=Studies(tune=TuneRequest()))), [machine()])
    assert tuned is not None and not tuned.models[0].request.studies  # the candidates are built where they are tried

    can = [order.can_be_built_by(one) for one in (machine(builds=1), machine(), *OTHERS)]
    assert can == [True, False, False, False, False, False]
    assert order.can_be_built_by(msgspec.structs.replace(OTHERS[0], builds=2))  # it builds for other processors, too


@pytest.mark.parametrize(
    ("task", "count"),
    [
        (SampleTask(request("sqlite:///a.db"), Draw(label="draw"), 7), 1),
        (CalibrateTask(request("sqlite:///a.db"), 60.0, 3), None),
        (CorunTask(CorunRequest(models=(MLP, MLP), policy="greedy")), 1),
        (CorunTask(CorunRequest(models=(MLP, ModelRequest(source="local", name="dqn")), policy="auto")), 4),
        (CorunTask(CorunRequest(models=(MLP,), policy="greedy", merge=True)), 2),
        (CorunTask(CorunRequest(models=(MLP,), targets=("llvm", "pynq"))), 2),
    ],
)
def test_every_kind_of_work_is_built_ahead(task: Task, count: int | None) -> None:
    order = order_for(task, [machine(), machine()])
    assert order is not None and order.count == count
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(order), type=maker.Order) == order
    if isinstance(task, SampleTask | CalibrateTask):
        assert (
            order.batches is not None
            and order.batches.target == "llvm -mcpu=znver5"
            and order.batches.machines == ("a",)
        )
        assert order_for(task, [machine(), machine(processor="b")]) is None  # batches are named for a processor
    else:
        assert {one.target for one in order.models} <= {"llvm -mcpu=znver5", "pynq"}


def test_a_machine_builds_as_many_as_it_has_cores_and_memory_for() -> None:
    found = [builds_at_once(machine(cores=cores, memory_bytes=gib << 30)) for cores, gib in ((4, 64), (64, 8), (2, 1))]
    assert found == [4, 4, 1]


def test_a_tvm_that_cannot_be_imported_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    monkeypatch.setattr(fleet_machine, "_COMPILES_FOR", "raise ImportError('libtvm.so is not there')")
    told: list[str] = []
    assert fleet_machine.compilers_here(told.append) == {}
    assert told and all(text.endswith("cannot be used: ImportError: libtvm.so is not there") for text in told)


@pytest.mark.parametrize("missing", ["psycopg", ""])
def test_who_builds_needs_no_dataset(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it cannot see is as if it were not there: another machine's file, or PostgreSQL without its driver."""
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    address = "postgresql://me@127.0.0.1:9/times" if missing else f"sqlite:///{tmp_path}/elsewhere.db"
    assert stored_for(request(address), ["a"]) == {}
