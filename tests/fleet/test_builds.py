"""Models that one worker builds and another one measures."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

pytest.importorskip("distributed")

from processes import Listening, end, other_cache, request, scheduler, worker

from op_profiler import cache
from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Studies, TuneRequest
from op_profiler.collection.sampling.draw import Draw
from op_profiler.collection.summary import ModelReport
from op_profiler.dataset import Dataset
from op_profiler.fleet import builds, dispatch, runs, settings, work
from op_profiler.fleet import machine as fleet_machine
from op_profiler.fleet.certificates import make
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.machine import Compiles, FleetMachine
from op_profiler.fleet.state import state_of
from op_profiler.fleet.tasks import CollectTask, SampleTask
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.turns import PROCESSOR, measuring


def kept(folder: Path) -> dict[str, Any]:
    """What a cache tells of its one build."""
    (about,) = folder.glob(f"built/*/*/{cache.ABOUT}")
    seconds: float = json.loads((about.parent / "build.json").read_text())["build_seconds"]
    return {"place": about.parent.name, "files": json.loads(about.read_text())["files"], "seconds": seconds}


def test_what_one_worker_builds_is_measured_by_another(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, rack = tmp_path / "head", tmp_path / "rack"
    make(tmp_path / "tls", ["localhost"])
    monkeypatch.setenv(settings.TLS, str(tmp_path / "tls"))
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(_one_builds_for_the_other(tmp_path, head, rack))
        turn = stack.enter_context(contextlib.ExitStack())
        turn.enter_context(_measuring_on(rack))
        received: list[list[Path]] = []  # while something is measured

        class Waiting(Listening):
            def step(self, description: str, done_models: float) -> None:
                super().step(description, done_models)
                if "waiting: " in description and not received:
                    received.append(list(rack.glob("built/*/*")))
                    turn.close()

        assert cluster.address.startswith("tls://")
        listening = Waiting()
        (report,) = runs.collect(cluster, [request(sqlite_url)], listening)
        assert report.error is None and report.threads[1].measured > 0 and received == [[]]
        assert kept(rack) == kept(head) and not any("built where it is measured" in text for text in listening.told)
        with Dataset.open(sqlite_url, read_only=True) as dataset:
            timing = dataset.find_model_timing(report.model_key, threads=1, cache="model", resources=_asked())
        assert timing is not None
        assert timing.timing.details["build_seconds"] == pytest.approx(kept(head)["seconds"], abs=1e-3)
        first, second = sorted(state_of(cluster.address)["workers"], key=lambda told: str(told["does"]))
        assert (first["does"], first["finished"], second["finished"]) == ("builds 2 at once", None, 1)

        ready = _built(cluster, request(sqlite_url))
        assert ready.place == "" and ready.reason == ""  # every machine has measured it before
        assert _built(cluster, request(sqlite_url).of(threads=(1, 2))).place  # but not all of it
        again = dataclasses.replace(request(sqlite_url), label="again")
        built = _built(cluster, again)
        assert built.place.endswith(f"/{kept(head)['place']}") and built.reason == ""
        shutil.rmtree(rack / "built")
        (graph,) = head.glob("built/*/*/graph.json")
        graph.write_text(f"{graph.read_text()} ")
        finished = _measured(cluster, again, built)
        (sentence,) = (text for text in finished.messages if "refused" in text)
        assert "a file in it is not as it was written; it is built where it is measured" in sentence
        answer = msgspec.msgpack.decode(finished.answer, type=ModelReport)
        assert answer.error is None and answer.threads[1].measured > 0
        assert kept(rack)["place"] == kept(head)["place"] and kept(rack)["seconds"] != kept(head)["seconds"]

        crashed = _killed_while_it_builds(cluster, dataclasses.replace(request(sqlite_url), label="crashed"), head)
        assert crashed.place == "" and "the process died (SIGKILL)" in crashed.reason
        finished = _measured(cluster, again, crashed)
        told, sentence, *_ = finished.messages
        assert "the worker's log: " in told and "the process died (SIGKILL)" in sentence

        missing = _built(cluster, request(sqlite_url, "nothing-of-this-name"))
        assert missing.place == "" and "unknown" in missing.reason
        only_there = request(sqlite_url).of(input_data=str(tmp_path / "only-there.npz"))
        assert "only-there.npz" in _built(cluster, only_there).reason
        finished = _measured(cluster, again, b"no answer of a build")
        (sentence,) = (text for text in finished.messages if "refused" in text)
        assert "built where it is measured" in sentence

        taken: list[int] = []

        def samples() -> Iterator[SampleTask]:
            """Each ends at once: there is no such kind."""
            for number in itertools.count():
                taken.append(number)
                yield SampleTask(request(sqlite_url), Draw(label="none", kinds=("no such kind",)), number)

        assert next(dispatch.Dispatch(cluster, Listening()).run(samples())).answer is None
        assert len(taken) == 4  # two for each worker that measures, and two more; none for what others may build


def test_what_a_lost_worker_was_to_build_is_built_where_it_is_measured(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One build is lost while it waits for its turn, and one is asked for of a worker that is not there any more."""
    head, rack = tmp_path / "head", tmp_path / "rack"
    monkeypatch.setattr(dispatch, "_KNOWN_SECONDS", 1e9)  # it is not noticed in time
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(_one_builds_for_the_other(tmp_path, head, rack))
        stack.enter_context(_measuring_on(head))
        _hurry(cluster)
        (building,) = (at for at, (machine, _) in cluster.workers().items() if machine.builds)

        def tasks() -> Iterator[CollectTask]:
            yield CollectTask(dataclasses.replace(request(sqlite_url), label="begun"))
            while not cluster.processing().get(building):
                time.sleep(0.1)
            _end(cluster, building)
            relative = f"sqlite:///{os.path.relpath(sqlite_url.removeprefix('sqlite:///'), tmp_path)}"
            yield CollectTask(dataclasses.replace(request(relative), label="late"))

        listening = Listening()
        ended = list(dispatch.Dispatch(cluster, listening).run(tasks()))
        assert sorted(one.task.request.label for one in ended if isinstance(one.task, CollectTask)) == ["begun", "late"]
        assert {one.task.request.db for one in ended} == {sqlite_url}  # workers are in other folders
        for one in ended:
            assert isinstance(one.answer, ModelReport) and one.answer.error is None
        lost = [text for text in listening.told if "was lost" in text]
        assert ["KilledWorker" in text for text in lost] == [True, False] and "NoValidWorkerError" in lost[1]
        assert kept(rack)["files"] and not list(head.glob("built/*/*"))
        (last,) = cluster.workers()
        (nobody,) = dispatch.Dispatch(cluster, listening).run(_without(cluster, last, sqlite_url))
        assert "no worker that measures llvm" in nobody.error and nobody.machine is None


def _hurry(cluster: Cluster) -> None:
    """Let it wait for nobody."""

    def set_timeout(dask_scheduler: Any) -> None:
        dask_scheduler.no_workers_timeout = 0.1

    cluster.client.run_on_scheduler(set_timeout)


@contextlib.contextmanager
def _one_builds_for_the_other(folder: Path, head: Path, rack: Path) -> Iterator[Cluster]:
    """Two workers with caches and locks of their own."""
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(folder))
        there = {"OP_PROFILER_CACHE": other_cache(head), "OP_PROFILER_LOCKS": str(head), "OP_PROFILER_HOST_ID": "head"}
        stack.enter_context(worker(folder, address, "--builds", "2", **there))
        there = {"OP_PROFILER_CACHE": other_cache(rack), "OP_PROFILER_LOCKS": str(rack)}
        stack.enter_context(worker(folder, address, **there))
        yield stack.enter_context(Cluster(address))


@contextlib.contextmanager
def _measuring_on(folder: Path) -> Iterator[None]:
    """Have the turn of those whose locks lie in a folder."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as turn:
        patch.setenv("OP_PROFILER_LOCKS", str(folder))
        turn.enter_context(measuring([PROCESSOR]))
        patch.undo()
        yield


def _end(cluster: Cluster, address: str) -> None:
    """Kill the command of a worker with all that it started."""
    (pid,) = cluster.client.run(os.getppid, workers=[address]).values()
    end(pid)
    while address in cluster.workers():
        time.sleep(0.1)


def _without(cluster: Cluster, last: str, db: str) -> Iterator[CollectTask]:
    """A task that is asked for while the only worker leaves."""
    _end(cluster, last)
    yield CollectTask(request(db))


def _asked() -> dict[str, Any]:
    return CollectRequest(build=BuildRequest(model=ModelRequest(source="local", name="mlp"))).asked(1)


def _machines(cluster: Cluster) -> list[FleetMachine]:
    return [machine for machine, _ in cluster.workers().values() if not machine.builds]


def _built(cluster: Cluster, asked: CollectRequest) -> builds.Built:
    """By the worker that builds."""
    build = builds.build_for(CollectTask(asked), _machines(cluster))
    assert build is not None and "-mcpu=" in build.target
    done = cluster.client.submit(builds.carry_out, msgspec.msgpack.encode(build), resources=build.needs, pure=False)
    return msgspec.msgpack.decode(done.result(), type=builds.Built)


def _killed_while_it_builds(cluster: Cluster, asked: CollectRequest, locks: Path) -> builds.Built:
    """Its process is, when it waits for its turn."""
    build = builds.build_for(CollectTask(asked), _machines(cluster))
    assert build is not None
    (building,) = (at for at, (machine, _) in cluster.workers().items() if machine.builds)
    (pid,) = cluster.client.run(os.getpid, workers=[building]).values()
    with _measuring_on(locks):
        encoded = msgspec.msgpack.encode(build)
        done = cluster.client.submit(builds.carry_out, encoded, resources=build.needs, pure=False)
        while not (children := psutil.Process(pid).children()):
            time.sleep(0.05)
        children[0].kill()
        return msgspec.msgpack.decode(done.result(), type=builds.Built)


def _measured(cluster: Cluster, asked: CollectRequest, built: builds.Built | bytes) -> work.Finished:
    """By the worker that measures."""
    task = msgspec.msgpack.encode(CollectTask(asked))
    answer = built if isinstance(built, bytes) else msgspec.msgpack.encode(built)
    done = cluster.client.submit(work.carry_out, task, answer, resources={settings.MACHINE: 1}, pure=False)
    return msgspec.msgpack.decode(done.result(), type=work.Finished)


def machine(**others: Any) -> FleetMachine:
    told: dict[str, Any] = {"host": "a", "host_id": "a", "processor": "a", "features": (), "cores": 1, "version": "1"}
    compilers = {"relay": Compiles("tvm 1 on x86_64", "llvm -mcpu=znver5", "5eed")}
    return FleetMachine(**{**told, "memory_bytes": 1, "measures": {"llvm": "a"}, "compilers": compilers, **others})


def test_builds_are_for_the_machines_that_may_measure() -> None:
    task = CollectTask(request("sqlite:///a.db"))
    build = builds.build_for(task, [machine(), machine(measures={"llvm": "b"})])
    assert build is not None
    assert (build.target, build.machines, build.needs) == (
        "llvm -mcpu=znver5",
        ("a", "b"),
        {"builds with tvm 1 on x86_64 by 5eed": 1},
    )
    other = machine(compilers={"relay": Compiles("tvm 1 on x86_64", "llvm -mcpu=skylake", "5eed")})
    older = machine(compilers={"relay": Compiles("tvm 0 on x86_64", "llvm -mcpu=znver5", "5eed")})
    changed = machine(compilers={"relay": Compiles("tvm 1 on x86_64", "llvm -mcpu=znver5", "c0de")})
    without = machine(compilers={})
    for machines in ([machine(), other], [machine(), older], [machine(), changed], [machine(), without], []):
        assert builds.build_for(task, machines) is None
    named = CollectTask(task.request.of(target="llvm -mcpu=core-avx2"))
    build = builds.build_for(named, [machine()])
    assert build is not None and build.target == "llvm -mcpu=core-avx2"
    for other_task in (
        dataclasses.replace(task.request, dry_run=True),
        dataclasses.replace(task.request, studies=Studies(tune=TuneRequest())),
        task.request.of(target="cuda"),
    ):
        assert builds.build_for(CollectTask(other_task), [machine()]) is None


def test_a_tvm_that_cannot_be_imported_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    monkeypatch.setattr(fleet_machine, "_COMPILES_FOR", "raise ImportError('libtvm.so is not there')")
    told: list[str] = []
    assert fleet_machine.compilers_here(told.append) == {}
    assert told and all(text.endswith("cannot be used: ImportError: libtvm.so is not there") for text in told)
