"""Models that one worker builds and another one measures."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("distributed")

from processes import Listening, request, scheduler, worker

from op_profiler import cache
from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Studies, TuneRequest
from op_profiler.collection.summary import ModelReport
from op_profiler.dataset import Dataset
from op_profiler.fleet import builds, runs, settings, work
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.machine import Compiles, FleetMachine
from op_profiler.fleet.state import state_of
from op_profiler.fleet.tasks import CollectTask
from op_profiler.frontends.frontend import ModelRequest


def kept(folder: Path) -> dict[str, Any]:
    """What a cache tells of its one build."""
    (about,) = folder.glob(f"built/*/*/{cache.ABOUT}")
    seconds: float = json.loads((about.parent / "build.json").read_text())["build_seconds"]
    return {"place": about.parent.name, "files": json.loads(about.read_text())["files"], "seconds": seconds}


def other_cache(folder: Path) -> str:
    """A cache folder without builds, which knows what takes seconds to find out."""
    for name in ("processor", "peaks", "relay"):
        if (cache.cache_folder() / name).is_dir():
            shutil.copytree(cache.cache_folder() / name, folder / name)
    return str(folder)


def test_what_one_worker_builds_is_measured_by_another(tmp_path: Path, sqlite_url: str) -> None:
    head, rack = tmp_path / "head", tmp_path / "rack"
    locks = {"OP_PROFILER_LOCKS": str(tmp_path)}
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        elsewhere = {"OP_PROFILER_CACHE": other_cache(head), "OP_PROFILER_HOST_ID": "head", **locks}
        stack.enter_context(worker(tmp_path, address, "--builds", "2", **elsewhere))
        stack.enter_context(worker(tmp_path, address, OP_PROFILER_CACHE=other_cache(rack), **locks))
        cluster = stack.enter_context(Cluster(address))
        listening = Listening()
        (report,) = runs.collect(cluster, [request(sqlite_url)], listening)
        assert report.error is None and report.threads[1].measured > 0
        assert kept(rack) == kept(head) and not any("built where it is measured" in text for text in listening.told)
        with Dataset.open(sqlite_url, read_only=True) as dataset:
            timing = dataset.find_model_timing(report.model_key, threads=1, cache="model", resources=_asked())
        assert timing is not None
        assert timing.timing.details["build_seconds"] == pytest.approx(kept(head)["seconds"], abs=1e-3)
        assert sorted(told["does"] for told in state_of(address)["workers"])[0] == "builds 2 at once"

        ready = _built(cluster, request(sqlite_url))
        assert ready.parcel is None and ready.reason == ""  # every machine has measured it before
        again = dataclasses.replace(request(sqlite_url), label="again")
        built = _built(cluster, again)
        assert built.parcel is not None and built.reason == ""
        damaged = bytearray(built.parcel.archive)
        damaged[len(damaged) // 2] ^= 1
        parcel = msgspec.structs.replace(built.parcel, archive=bytes(damaged))
        shutil.rmtree(rack / "built")
        finished = _measured(cluster, again, msgspec.structs.replace(built, parcel=parcel))
        (sentence,) = (text for text in finished.messages if "refused" in text)
        assert "its digest is not that of what was sent; it is built where it is measured" in sentence
        answer = msgspec.msgpack.decode(finished.answer, type=ModelReport)
        assert answer.error is None and answer.threads[1].measured > 0
        assert kept(rack)["place"] == kept(head)["place"] and kept(rack)["seconds"] != kept(head)["seconds"]

        for folder in (rack, head):
            shutil.rmtree(folder / "built")
        (building,) = (at for at, (machine, _) in cluster.workers().items() if machine.builds)
        (pid,) = cluster.client.run(os.getpid, workers=[building]).values()
        alone = dataclasses.replace(request(sqlite_url), label="alone")
        (report,) = runs.collect(cluster, [alone], Listening(lambda: os.kill(pid, signal.SIGKILL)))
        assert report.error is None and report.threads[1].measured > 0

        missing = _built(cluster, request(sqlite_url, "nothing-of-this-name"))
        assert missing.parcel is None and "unknown" in missing.reason


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


def _measured(cluster: Cluster, asked: CollectRequest, built: builds.Built) -> work.Finished:
    """By the worker that measures."""
    task, parcel = msgspec.msgpack.encode(CollectTask(asked)), msgspec.msgpack.encode(built)
    done = cluster.client.submit(work.carry_out, task, parcel, resources={settings.MACHINE: 1}, pure=False)
    return msgspec.msgpack.decode(done.result(), type=work.Finished)


def machine(**others: Any) -> FleetMachine:
    told: dict[str, Any] = {"host": "a", "host_id": "a", "processor": "a", "features": (), "cores": 1, "version": "1"}
    compilers = {"relay": Compiles("tvm 1 on x86_64", "llvm -mcpu=znver5")}
    return FleetMachine(**{**told, "memory_bytes": 1, "measures": {"llvm": "a"}, "compilers": compilers, **others})


def test_builds_are_for_the_machines_that_may_measure() -> None:
    task = CollectTask(request("sqlite:///a.db"))
    build = builds.build_for(task, [machine(), machine(measures={"llvm": "b"})])
    assert build is not None
    assert (build.target, build.machines, build.needs) == (
        "llvm -mcpu=znver5",
        ("a", "b"),
        {"builds with tvm 1 on x86_64": 1},
    )
    other = machine(compilers={"relay": Compiles("tvm 1 on x86_64", "llvm -mcpu=skylake")})
    older = machine(compilers={"relay": Compiles("tvm 0 on x86_64", "llvm -mcpu=znver5")})
    for machines in ([machine(), other], [machine(), older], [machine(), machine(compilers={})], []):
        assert builds.build_for(task, machines) is None
    named = CollectTask(task.request.of(target="llvm -mcpu=core-avx2"))
    build = builds.build_for(named, [machine()])
    assert build is not None and build.target == "llvm -mcpu=core-avx2"
    for changed in (
        dataclasses.replace(task.request, dry_run=True),
        dataclasses.replace(task.request, studies=Studies(tune=TuneRequest())),
        task.request.of(target="cuda"),
    ):
        assert builds.build_for(CollectTask(changed), [machine()]) is None
