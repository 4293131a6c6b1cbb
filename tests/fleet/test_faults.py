"""What a cluster survives: workers and schedulers that die, models that kill, machines that drift, strangers."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import msgspec
import psutil
import pytest
from processes import PATIENCE_SECONDS, Listening, dask_workers_of, other_cache, request, said, scheduler, worker

from op_profiler.collection.request import Measuring
from op_profiler.collection.sampling.draw import Draw
from op_profiler.dataset import Dataset
from op_profiler.errors import OpProfilerError
from op_profiler.fleet import dispatch, runs, workforce
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.events import Announcing, TaskEnd
from op_profiler.fleet.jobs import Job
from op_profiler.fleet.machine import DESCRIPTION, this_machine
from op_profiler.fleet.nodes import machine_of
from op_profiler.fleet.state import state_of
from op_profiler.fleet.tasks import CollectTask
from op_profiler.fleet.workforce import Workforce
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.turns import WAITING

from ..command_line import op_profiler
from ..installed import needs

pytestmark = needs("distributed")


def test_a_worker_and_a_scheduler_that_die_cost_nothing_but_time(tmp_path: Path, sqlite_url: str) -> None:
    with contextlib.ExitStack() as stack:
        address, first = stack.enter_context(scheduler(tmp_path))
        log = stack.enter_context(worker(tmp_path, address))
        cluster = stack.enter_context(Cluster(address))
        (machine, _), *others = cluster.workers().values()
        assert not others and "llvm" in machine.measures

        def kill_worker() -> None:
            dask_workers_of(address)[0].send_signal(signal.SIGKILL)

        # The worker runs in another folder than this process.
        relative = f"sqlite:///{os.path.relpath(sqlite_url.removeprefix('sqlite:///'))}"
        (report,) = runs.collect(cluster, [request(relative)], Listening(kill_worker))
        assert report.error is None and report.threads[1].measured == len(report.operators) > 0

        def restart_scheduler() -> None:
            first.kill()
            first.wait()
            stack.enter_context(scheduler(tmp_path, int(address.rsplit(":", 1)[1])))

        listening = Listening(restart_scheduler)
        asked = [request(sqlite_url), dataclasses.replace(request(sqlite_url), label="again")]
        reports = runs.collect(cluster, asked, listening)
        assert [r.error for r in reports] == [None, None]
        assert [r.request.label for r in reports] == ["", "again"] and reports[0].threads[1].reused > 0
        said(log, "(connected)", times=2)
        with Dataset.open(sqlite_url, read_only=True) as dataset:
            assert len(dataset.models()) == 2
            assert dataset.counts()["measurements"] == 2 * len(report.operators)


@pytest.mark.slow  # with nobody but such a worker a file is refused, in test_cluster.py
def test_a_worker_on_another_machine_gets_nothing_of_a_file(tmp_path: Path, sqlite_url: str, shared: str) -> None:
    came = threading.Event()
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(Cluster(shared))

        def join() -> None:
            stack.enter_context(worker(tmp_path, shared, OP_PROFILER_HOST_ID="rack9"))
            came.set()

        def wait(text: str) -> None:
            assert came.wait(PATIENCE_SECONDS)

        listening = Listening(join)
        found = []
        for number in range(3):
            found.append(dataclasses.replace(request(sqlite_url), label=f"run{number}"))
        for _, report in runs.reports(cluster, found, listening):
            assert report.error is None
            wait(report.request.label)
        assert len([text for text in listening.told if "gets nothing of this" in text]) == 1
    with Dataset.open(sqlite_url, read_only=True) as dataset:
        assert len({model.device_key for model in dataset.models()}) == 1 and len(dataset.models()) == 3


class Deadly(Listening):
    """Signals a worker's process with its children when it says that it carries a model out, each process once.

    On a busy machine a signal can come when the model is done already, which costs it nothing. So signals go on until
    the run has reported `enough` stopped workers; without `enough`, until it is over.
    """

    def __init__(self, address: str, number: signal.Signals, enough: int | None = None) -> None:
        super().__init__()
        self.signalled: list[int] = []
        self._address, self._number, self._enough = address, number, enough

    @property
    def ended(self) -> int:
        """Workers that the run says were told to end while they had the model."""
        return sum("was stopped while it had mlp" in text for text in self.told)

    def step(self, description: str, done_models: float) -> None:
        super().step(description, done_models)
        if ": mlp: " not in description or (self._enough is not None and self.ended >= self._enough):
            return
        process = dask_workers_of(self._address)[0]
        if process.pid not in self.signalled:
            self.signalled.append(process.pid)
            for one in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.send_signal(self._number)


def test_a_model_that_takes_workers_down_is_put_aside(tmp_path: Path, sqlite_url: str) -> None:
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        stack.enter_context(worker(tmp_path, address))
        cluster = stack.enter_context(Cluster(address))
        deadly = Deadly(address, signal.SIGKILL)
        asked = [request(sqlite_url), dataclasses.replace(request(sqlite_url, "nothing-of-this-name"))]
        first, second = runs.collect(cluster, asked, deadly)
        assert len(deadly.signalled) >= 3 and "died during this request" in str(first.error) and first.exit_code == 5
        assert "unknown" in str(second.error)  # it stood in line on the worker, and is not blamed
        (aside,) = [index for index, text in enumerate(deadly.told) if "2 workers died while they measured mlp" in text]
        assert deadly.told.index("nothing-of-this-name") > 0 and aside > 0
        with Dataset.open(sqlite_url) as dataset:
            assert dataset.counts()["measurements"] == 0
            (kept,) = dataset.failures()
        assert (kept.error, kept.cause, kept.model_key) == ("mlp took 2 workers down", "operator", "")

        later = Listening()
        labelled = dataclasses.replace(request(sqlite_url), label="another")  # of the same model
        for report in runs.collect(cluster, [request(sqlite_url), labelled], later):
            assert str(report.error).startswith("quarantined: mlp took 2 workers down on 2") and report.exit_code == 1
        assert not any(": mlp: " in text for text in later.told), "nothing of it was tried"

        again = dataclasses.replace(request(sqlite_url), measuring=Measuring(rounds=3, remeasure="failed"))
        (report,) = runs.collect(cluster, [again], Listening())
        assert report.error is None and report.threads[1].measured > 0
        (report,) = runs.collect(cluster, [labelled], Listening())
        assert report.error is None, "it took no worker down the last time"
    with Dataset.open(sqlite_url) as dataset:
        assert dataset.failures() == []


def test_a_worker_that_is_told_to_end_did_not_die_of_its_model(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SLURM ends a job whose time is over: every process of it gets the signal."""
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        stack.enter_context(worker(tmp_path, address))
        cluster = stack.enter_context(Cluster(address))
        ending = Deadly(address, signal.SIGTERM, enough=2)
        (report,) = runs.collect(cluster, [request(sqlite_url)], ending)
        monkeypatch.setattr(dispatch, "_MOST_LOST", 1)
        again = dataclasses.replace(request(sqlite_url), measuring=Measuring(rounds=3, remeasure="all"))
        (put_aside,) = runs.collect(cluster, [again], Deadly(address, signal.SIGTERM))
    assert report.error is None and ending.ended >= 2
    assert not any("2 workers died" in text for text in ending.told)
    assert str(put_aside.error).startswith("quarantined: 1 workers were stopped during this request")


def test_what_a_machine_measured_while_it_drifted_is_measured_on_another_one(tmp_path: Path, postgres_url: str) -> None:
    """A machine whose probe is slower than ever, whatever else runs here: its readings are cut to a sixteenth."""
    caches = {host: other_cache(tmp_path / host) for host in ("rack1", "rack2")}
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        locks = {"OP_PROFILER_LOCKS": str(tmp_path)}

        def start(host: str) -> None:
            environment = {"OP_PROFILER_HOST_ID": host, "OP_PROFILER_CACHE": caches[host], **locks}
            stack.enter_context(worker(tmp_path, address, **environment))

        start("rack1")
        cluster = stack.enter_context(Cluster(address))
        (report,) = runs.collect(cluster, [request(postgres_url)], Listening())
        assert report.error is None
        (path,) = (p for p in Path(caches["rack1"], "states").glob("*.json") if "-compute-" not in p.name)
        (reading,) = json.loads(path.read_text())
        path.write_text(json.dumps([[value - math.log(16) for value in reading]] * 6))
        start("rack2")
        with Dataset.open(postgres_url, read_only=True) as dataset:
            (first,) = {model.device_key for model in dataset.models()}
        listening = Listening()
        asked = [dataclasses.replace(request(postgres_url), label=f"run{number}") for number in range(2)]
        reports = runs.collect(cluster, asked, listening)
        assert [r.error for r in reports] == [None, None]
        assert any("has drifted: +" in text for text in listening.told)
        with Dataset.open(postgres_url, read_only=True) as dataset:
            on = {(model.label, model.device_key) for model in dataset.models()}
        assert {label for label, device in on if device != first} == {"run0", "run1"}
        state = state_of(address)
        assert sorted(told["drifts"] for told in state["workers"]) == [False, True]


def test_what_a_broken_machine_cannot_do_goes_to_another_one(tmp_path: Path, postgres_url: str) -> None:
    """The first has no place for its locks; a full disk looks the same."""
    (tmp_path / "full").touch()
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        cluster = stack.enter_context(Cluster(address))
        for host, locks in (("broken", tmp_path / "full" / "locks"), ("whole", tmp_path / "locks")):
            stack.enter_context(worker(tmp_path, address, OP_PROFILER_HOST_ID=host, OP_PROFILER_LOCKS=str(locks)))
        asked = [dataclasses.replace(request(postgres_url), label=f"run{number}") for number in range(2)]
        listening = Listening()
        reports = runs.collect(cluster, asked, listening)
        assert [(r.error, r.threads[1].measured > 0) for r in reports] == [(None, True)] * 2
        draw = Draw(label="models", models=(ModelRequest(source="local", name="mlp"),))
        done = runs.sample(cluster, draw, request(postgres_url), listening, count=None, budget_seconds=None)
        assert (done.batches, done.errors, done.failed) == (1, [], 0) and done.measured > 0
        whole, broken = sorted(state_of(address)["workers"], key=lambda told: int(told["failed"]))
        assert whole["failed"] == 0 and broken["failed"] > 0
        shown = op_profiler("fleet", address, folder=tmp_path).stdout
        # Of the three requests the broken one took any first: who is free gets the next.
        assert "2 workers on 2 machines" in shown and f"failed on {broken['host']}: " in shown and "LOCKS" in shown


def test_a_worker_of_somebody_else_stops_nobody(tmp_path: Path, sqlite_url: str) -> None:
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        stack.enter_context(worker(tmp_path, address))
        stranger = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--no-dashboard", "--no-nanny"]
        process = subprocess.Popen(stranger, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        cluster = stack.enter_context(Cluster(address))
        cluster.client.wait_for_workers(2)
        listening = Listening()
        (report,) = runs.collect(cluster, [request(sqlite_url)], listening)
        assert report.error is None
        (told,) = (text for text in listening.told if "it gets nothing" in text)
        assert "was not started by 'op-profiler worker'" in told
        state = state_of(address)
        assert len(state["workers"]) == 1 and len(state["left_out"]) == 1
        (machine, about), *_ = cluster.workers().values()
        other = {**about, DESCRIPTION: msgspec.to_builtins(msgspec.structs.replace(machine, version="0.0.9"))}
        with pytest.raises(OpProfilerError, match=r"is of op_profiler 0\.0\.9, and this is"):
            machine_of(other)


def test_a_task_whose_last_worker_leaves_ends_with_the_reason(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workforce, "_KNOWN_SECONDS", 1e9)  # it is not noticed in time
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        leaving = stack.enter_context(contextlib.ExitStack())
        leaving.enter_context(worker(tmp_path, address))
        cluster = stack.enter_context(Cluster(address))

        def no_patience(dask_scheduler: Any) -> None:
            dask_scheduler.no_workers_timeout = 0.1

        cluster.client.run_on_scheduler(no_patience)

        def tasks() -> Iterator[CollectTask]:
            leaving.close()
            until = time.monotonic() + PATIENCE_SECONDS
            while cluster.workers():
                assert time.monotonic() < until, "the scheduler did not notice"
                time.sleep(0.1)
            yield CollectTask(request(sqlite_url))

        run = dispatch.Dispatch(cluster, Listening())
        run._workforce.all()
        (nobody,) = run.run(tasks())
        assert "no worker that measures llvm" in nobody.error and nobody.machine is None


def test_a_wait_is_told_however_soon_it_comes_after_another_step(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, str]] = []
    here = SimpleNamespace(get_current_task=lambda: "mlp", log_event=lambda _topic, event: told.append(event))
    monkeypatch.setattr("distributed.get_worker", lambda: here)
    progress = Announcing("rack")
    for text in ("mlp: lowering", "mlp: 1 of 60 rounds", f"mlp: {WAITING}another process works"):
        progress.step(text, 0.0)
    assert [one["text"].startswith(f"mlp: {WAITING}") for one in told] == [False, True]


class Machines:
    """Two machines as a scheduler knows them, of which one has drifted in a run before."""

    left_out: ClassVar[dict[str, str]] = {}
    address = "tcp://127.0.0.1:9"

    def workers(self) -> dict[str, Any]:
        here = this_machine()
        return {
            name: (msgspec.structs.replace(here, host=name, host_id=name), {"resources": {"machine": 1}})
            for name in ("one", "other")
        }

    def events(self, _topic: str) -> list[tuple[float, Any]]:
        ended = [("one", 0.3, 2.0), ("other", 0.3, 5.0), ("other", 0.0, 3.0)]
        return [
            (time.time() - ago, msgspec.to_builtins(TaskEnd(host, "mlp", 1.0, None, off))) for host, off, ago in ended
        ]


def test_a_mark_is_known_to_the_next_run_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(0, CollectTask(request("sqlite:///a.db")), {"machine": 1})
    crew = Workforce(cast("Cluster", Machines()), Listening())
    machines = {address: machine for address, (machine, _) in Machines().workers().items()}
    assert crew.others(job) == ["other"]
    assert not crew.has_drifted(job, machines["one"], 0.0) and crew.others(job) == []  # it is as usual again
    assert crew.has_drifted(job, machines["other"], -0.2) and crew.others(job) == ["one"]
    monkeypatch.setattr(workforce, "_MARK_SECONDS", 0.0)
    later = dataclasses.replace(job, drifted=set(), failed_on=set())
    crew.has_drifted(dataclasses.replace(later, drifted=set()), machines["other"], -0.2)
    assert crew.others(later) == []  # it gets work again, which shows how it is
    assert Workforce(cast("Cluster", Machines()), Listening()).others(later) == []

    monkeypatch.undo()
    listening = Listening()
    crew = Workforce(cast("Cluster", Machines()), listening)
    crew.has_drifted(later, machines["one"], 0.0)
    for number in range(3):
        failing = dataclasses.replace(later, index=number, failed_on=set())
        assert crew.has_failed(failing, machines["one"], 5) and crew.others(failing) == ["other"]
    assert crew.others(later) == ["other"] and "could not carry out 3 requests" in listening.told[-1]
    assert not crew.has_failed(failing, machines["other"], 5)  # there is nobody else
    assert not crew.has_failed(later, machines["one"], 4)  # the model's own fault
