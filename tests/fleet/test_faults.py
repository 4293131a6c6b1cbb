"""What a cluster survives: workers and schedulers that die, models that kill, machines that drift, strangers."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
import threading
from pathlib import Path

import pytest
from processes import PATIENCE_SECONDS, Listening, dask_workers_of, other_cache, request, said, scheduler, worker

from op_profiler.dataset import Dataset
from op_profiler.fleet import runs
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.state import state_of

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


def test_a_model_that_takes_workers_down_is_put_aside(tmp_path: Path, sqlite_url: str) -> None:
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        stack.enter_context(worker(tmp_path, address))
        cluster = stack.enter_context(Cluster(address))
        killed: list[int] = []

        class Deadly(Listening):
            def step(self, description: str, done_models: float) -> None:
                super().step(description, done_models)
                if ": mlp: " in description:
                    process = dask_workers_of(address)[0]
                    if process.pid not in killed:
                        killed.append(process.pid)
                        process.send_signal(signal.SIGKILL)

        listening = Deadly()
        asked = [request(sqlite_url), dataclasses.replace(request(sqlite_url, "nothing-of-this-name"))]
        first, second = runs.collect(cluster, asked, listening)
    assert len(killed) == 3 and "3 workers died of it" in str(first.error) and first.exit_code == 5
    assert "unknown" in str(second.error)  # it stood in line on the worker, and is not blamed
    (aside,) = [index for index, text in enumerate(listening.told) if "took 2 workers down" in text]
    assert listening.told.index("nothing-of-this-name") > 0 and aside > 0
    with Dataset.open(sqlite_url) as dataset:
        assert dataset.counts()["measurements"] == 0


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
        (path,) = Path(caches["rack1"], "states").glob("*.json")
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
