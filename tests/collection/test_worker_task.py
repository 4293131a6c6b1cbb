"""What a supervisor hands to its worker gets there whole, and what the worker does with it on the way."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from op_profiler import child_processes
from op_profiler.building.request import BuildRequest
from op_profiler.collection import worker_process
from op_profiler.collection.request import CollectRequest, Measuring, Studies, TuneRequest
from op_profiler.collection.worker import CollectionWorker
from op_profiler.collection.worker_task import WorkerTask
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.report.collection import Screen
from op_profiler.targets.machine import Place


def test_a_worker_reads_the_task_that_was_written() -> None:
    model = ModelRequest(source="local", name="mlp", input_names=("data",), input_shapes=((1, 64), (1, 8)))
    request = CollectRequest(
        build=BuildRequest(model=model, place=Place(host="here", port=9190, key="pynq"), threads=(1, 2), cache="cold"),
        measuring=Measuring(resources={"core_set": (0, 1), "numa_node": 1, "governor": "performance"}, rounds=3),
        studies=Studies(tune=TuneRequest(trials=20), vendor=True),
    )
    task = WorkerTask(request, work="tune", operators=frozenset("ab"), excluded={"a": "it crashed"})
    assert msgspec.json.decode(msgspec.json.encode(task), type=WorkerTask) == task


_DIES_OVER_A_LINE = """
import os, sys
os.write(int(sys.argv[1]), b'{"stage": "loading"}\\n{"stage": "mea')
os.kill(os.getpid(), 9)
"""


def test_a_worker_that_is_killed_over_a_line_is_a_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(child_processes, "_program", lambda module: _DIES_OVER_A_LINE)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    task = WorkerTask(CollectRequest(build=BuildRequest(model=ModelRequest(source="local", name="mlp"))))
    outcome = worker_process.run_worker(task, Screen(quiet=True), 0, (0.0, 1.0))
    assert (outcome.stage, outcome.crash) == ("loading", "SIGKILL")


def test_windows_of_rounds_are_all_told_and_stored_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    events, stored = list[dict[str, object]](), list[float]()
    model = ModelRequest(source="local", name="mlp")
    worker = CollectionWorker(
        WorkerTask(CollectRequest(build=BuildRequest(model=model))), lambda **event: events.append(event)
    )
    monkeypatch.setattr(worker, "results", SimpleNamespace(keep=stored.append), raising=False)
    for at in (10.0, 10.3, 10.9, 11.1, 11.2, 12.3):
        monkeypatch.setattr("op_profiler.collection.worker.time", SimpleNamespace(monotonic=lambda at=at: at))
        worker._checkpoint(at / 100, lambda at=at: at)  # type: ignore[misc]
    assert stored == [10.0, 11.1, 12.3], "results are worked out only where they are stored"
    assert len(events) == 6
